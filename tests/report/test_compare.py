"""Several runs on one page."""

import shutil

import pytest
import yaml

from coulomb.ground.errors import InputError
from coulomb.report import build_comparison
from coulomb.report.collect import read_run
from coulomb.report.compare import caution, differences, distinct_names, render_comparison, results


@pytest.fixture
def pair(pristine, maker, tmp_path):
    """Two runs: the second at another temperature, with every figure, and less accurate."""
    folders = [shutil.copytree(pristine, tmp_path / name) for name in ("cool", "warm")]
    maker.changes["figures"](folders[1])
    config = yaml.safe_load((folders[1] / "config.yaml").read_text())
    (folders[1] / "config.yaml").write_text(yaml.safe_dump(config | {"temperature": 0.5, "out": "elsewhere"}))
    evaluation = read_run(folders[1]).evaluation
    trained = evaluation["trained"] | {"knn": 0.9}
    maker.edit_json(folders[1] / "evaluation.json", trained=trained)
    return folders


def test_common_starting_weights_are_a_baseline(pair, maker):
    starts = [{"starting_point": {"knn": 0.7}}, {"starting_point": {"knn": 0.8}}]
    for folder, start in zip(pair, (starts[0], starts[0]), strict=True):
        maker.edit_json(folder / "evaluation.json", **start)
    runs = [read_run(folder) for folder in pair]
    (row,) = [row for row in dict(results(runs))["Trained encoders"] if row.label == "k nearest neighbors"]
    assert row.shared == {"starting_point": "70.0\u202f%", "raw_pixels": "96.1\u202f%"}
    assert "starting weights" in render_comparison(runs)
    maker.edit_json(pair[1] / "evaluation.json", **starts[1])
    runs = [read_run(folder) for folder in pair]
    (row,) = [row for row in dict(results(runs))["Trained encoders"] if row.label == "k nearest neighbors"]
    assert row.shared == {"raw_pixels": "96.1\u202f%"}
    assert "starting weights" not in render_comparison(runs)


def test_differences_leave_out_the_output_folder(pair):
    assert differences([read_run(folder) for folder in pair]) == [("temperature", ["0.2", "0.5"])]


def test_results_mark_the_best_run(pair):
    groups = dict(results([read_run(folder) for folder in pair]))
    rows = {row.label: row for row in groups["Trained encoders"]}
    assert rows["k nearest neighbors"].cells == [("98.1\u202f%", "", True), ("90.0\u202f%", "", False)]
    assert rows["k nearest neighbors"].shared == {"raw_pixels": "96.1\u202f%"}
    assert rows["5 labels per class"].cells == [("93.4\u202f%", "± 1.1", False)] * 2  # equal: none is the best
    live = {row.label: row for row in groups["Last live evaluation"]}
    assert [text for text, *_ in live["separation"].cells] == ["–", "98.0\u202f%"]


def test_caution_names_what_cannot_be_compared(pair, maker):
    runs = [read_run(folder) for folder in pair]
    assert "temperatures differ" in caution(runs)
    assert "held-out images" not in caution(runs)
    maker.edit_json(pair[0] / "data.json", split="another")
    assert "different held-out images" in caution([read_run(folder) for folder in pair])


def test_the_page_shows_verdicts_tables_and_curves(pair, tmp_path):
    text = build_comparison(pair, tmp_path / "compare.html").read_text(encoding="utf-8")
    for expected in (
        "2 runs compared",
        "The encoder learned well",
        "The doctor found 1 problem",
        "kNN accuracy during",
    ):
        assert expected in text, expected
    assert text.count('class="line k0"') >= 4
    assert text.count('class="line k1"') >= 4
    assert not list(tmp_path.glob(".compare*"))


def test_names_are_distinct(pristine, tmp_path):
    folders = [shutil.copytree(pristine, tmp_path / parent / "run") for parent in ("a", "b")]
    assert distinct_names([read_run(folder) for folder in folders]) == ["a/run", "b/run"]
    assert distinct_names([read_run(folders[0]), read_run(pristine)]) == ["run", "digits-demo"]


def test_invalid_arguments_are_rejected(pair, tmp_path):
    with pytest.raises(InputError, match="runs: 1 "):
        build_comparison(pair[:1], tmp_path / "c.html")
    with pytest.raises(InputError, match="runs: .*twice"):
        build_comparison([*pair, pair[0]], tmp_path / "c.html")
    with pytest.raises(InputError, match="run: "):
        build_comparison([pair[0], tmp_path], tmp_path / "c.html")
    with pytest.raises(InputError, match="out="):
        build_comparison(pair, tmp_path)
    with pytest.raises(InputError, match="out="):
        build_comparison(pair, tmp_path / "nowhere" / "c.html")
