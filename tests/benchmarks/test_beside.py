import pytest

from benchmarks import beside
from benchmarks.beside import bench_beside, busy, render
from coulomb.ground.errors import InputError


def test_each_contestant_is_measured_beside_each_load(monkeypatch):
    asked = []

    def fresh(contestant, case, threads, repeats):
        asked.append((contestant, case, threads, repeats))
        return len(asked) / 1000

    monkeypatch.setattr(beside, "_fresh", fresh)
    result = bench_beside([0, 1], ["ntxent-8192x128"], repeats=3)
    assert [row["beside"] for row in result["rows"]] == [0, 1]
    assert result["rows"][0]["seconds"] == {
        "coulomb": 0.001,
        "coulomb, one thread": 0.002,
        "dense PyTorch": 0.003,
        "two matrix products": 0.004,
    }
    assert asked[1] == ("coulomb", "ntxent-8192x128", 1, 3)
    table = render(result)
    assert "ntxent-8192x128" in table and "3.0" in table and "0.25" in table


def test_busy_processes_end_with_the_block():
    with pytest.raises(ZeroDivisionError), busy(2):
        raise ZeroDivisionError


@pytest.mark.slow
def test_a_fresh_process_measures_a_small_case(monkeypatch):
    seconds = {name: beside._fresh(name, "queue-256x65536x128", 1, 1) for name in ("coulomb", "dense", "products")}
    assert all(value > 0 for value in seconds.values())


@pytest.mark.parametrize(("given", "named"), [(([0], ["nothing"]), "nothing"), (([-1],), "-1")])
def test_bad_arguments_are_named(given, named):
    with pytest.raises(InputError, match=named):
        bench_beside(*given)
