"""The suite of sick runs: that it is complete, its table, and a few of its runs."""

import numpy as np
import pytest
from typer.testing import CliRunner

from coulomb.cli.every import app
from coulomb.evaluation.doctor import RULES
from coulomb.evaluation.doctor.pair_rules import PAIR_RULES
from coulomb.ground.errors import InputError
from coulomb.ground.randomness import numpy_generator
from coulomb.methods import METHODS
from coulomb_lab.doctor import END, START, load_images, main, perform_cases, run_case, table, write_table
from coulomb_lab.sick import CASES, HEALTHY, SICK

RESULT = {
    "rows": [
        {
            "case": "hot",
            "expected": "temperature-too-high",
            "sick": ["temperature-too-high"],
            "warnings": [],
            "found": True,
        },
        {
            "case": "leak",
            "expected": "evaluation-leak",
            "sick": ["duplicates"],
            "warnings": ["no-signal"],
            "found": False,
        },
        {"case": "healthy-simclr", "expected": None, "sick": [], "warnings": [], "found": True},
    ],
    "missed": [],
    "wrong": ["leak"],
    "alarms": [],
    "skipped": ["photos-black"],
}


def test_every_verdict_has_a_sick_run_and_every_method_a_healthy_one():
    of_images = set(RULES) - set(PAIR_RULES)  # all runs are on images
    assert {case.expected for case in SICK} == {rule.name for rule in of_images}
    assert [case.options["method"] for case in HEALTHY] == list(METHODS)
    assert len({case.name for case in CASES}) == len(CASES)


def test_the_table_marks_what_was_found(tmp_path):
    text = table(RESULT)
    assert text.startswith(
        "1 of 2 problems found, 0 missed, 1 with a wrong cause; 0 false alarms in 1 healthy runs. 1 runs were skipped: "
        "they need photos (--data)."
    )
    columns = ["no-signal", "temperature-too-high", "duplicates", "evaluation-leak"]
    assert ", ".join(f"{n} {name}" for n, name in enumerate(columns, 1)) in text
    lines = text.splitlines()
    assert "| hot | temperature-too-high |  | **●** |  |  |" in lines
    assert "| leak | evaluation-leak | ○ |  | ● |  |" in lines
    assert "| healthy-simclr | healthy |  |  |  |  |" in lines


def test_a_page_gets_the_table_between_its_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{START}\nold\n{END}\nafter\n")
    write_table(RESULT, page)
    write_table(RESULT, page)  # again: nothing is added twice
    assert page.read_text() == f"before\n{START}\n\n{table(RESULT)}\n\n{END}\nafter\n"
    page.write_text("no place")
    with pytest.raises(InputError, match="no markers for the table"):
        write_table(RESULT, page)


def test_load_images_the_digits_and_of_photos(tmp_path):
    images, labels = load_images("digits")
    assert images.shape == (1797, 8, 8) and images.dtype == np.uint8 and len(labels) == 1797
    np.savez(tmp_path / "photos.npz", images=np.zeros((2000, 6, 6, 3), np.uint8), labels=np.arange(2000) % 4)
    images, labels = load_images(str(tmp_path / "photos.npz"))
    assert images.shape == (1875, 6, 6, 3) and len(labels) == 1875
    np.save(tmp_path / "bare.npy", np.zeros((20, 6, 6, 3), np.uint8))
    with pytest.raises(InputError, match="no labels"):
        load_images(str(tmp_path / "bare.npy"))


@pytest.mark.parametrize("case", [case for case in CASES if case.data is not None], ids=lambda case: case.name)
def test_the_data_of_every_case_can_be_made(case, tmp_path):
    shape = (1797, 32, 32, 3) if case.photos else (1797, 8, 8)
    images, labels = numpy_generator(0, "case").integers(0, 255, shape, dtype=np.uint8), np.arange(1797) % 10
    made = case.data(tmp_path, images, labels)
    with np.load(made["data"]) as saved:
        assert len(saved["images"]) == len(saved["labels"])


def test_cases_on_photos_are_skipped_and_counted_without_photos(tmp_path):
    found = perform_cases(tmp_path, ("photos-black", "photos-shuffled"))
    assert found == {
        "rows": [],
        "missed": [],
        "wrong": [],
        "alarms": [],
        "skipped": ["photos-black", "photos-shuffled"],
    }
    assert "2 runs were skipped: they need photos (--data)." in table(found)


def test_a_case_that_there_is_not_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such case"):
        main(["--only", "plague", "--out", str(tmp_path)])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bottleneck", "mispaired", "weak-views", "hot", "still", "unnormalized", "leak"])
def test_sicknesses_are_found(name, tmp_path):
    (case,) = [case for case in SICK if case.name == name]
    assert case.expected in [verdict["name"] for verdict in run_case(case, tmp_path)["verdicts"]]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["simclr", "simsiam", "supcon", "softmax"])
def test_healthy_runs_are_healthy(method, tmp_path):
    (case,) = [case for case in HEALTHY if case.options["method"] == method]
    assert run_case(case, tmp_path)["healthy"]


def test_the_command_runs_it_and_tells_by_its_exit_code(tmp_path, monkeypatch):
    def suite(folder, only, seed, photos):
        assert (folder, only, seed, photos) == (tmp_path / "doctor", ("hot",), 3, "photos.parquet")
        return RESULT

    monkeypatch.setattr("coulomb_lab.doctor.suite", suite)
    asked = ["lab", "doctor", "--out", str(tmp_path), "--only", "hot", "--seed", "3", "--data", "photos.parquet"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 1 and done.stdout == table(RESULT) + "\n"
    refused = CliRunner().invoke(app, [*asked, "--quick"])
    assert isinstance(refused.exception, InputError) and "--quick: doctor has no such option" in str(refused.exception)
