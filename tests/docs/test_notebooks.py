"""The notebooks run without an error or a warning, draw pictures, and take less than two minutes of processor time."""

import resource
import shutil

import pytest

from page_blocks import ROOT

FOLDER = ROOT / "docs" / "notebooks"
NOTEBOOKS = sorted(path for path in FOLDER.glob("*.md") if path.name != "index.md")
LIMIT = 120  # seconds of processor time, which other work on the machine lengthens less than the time on the clock


def processor_seconds():
    """Returns the processor time of the processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_within_the_limit_and_has_pictures(path, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONWARNINGS", "ignore:IProgress not found")  # as in conf.py
    pytest.importorskip("myst_nb", reason="pip install -e '.[docs]'")
    import matplotlib.font_manager  # noqa: F401  (as in conf.py)
    from myst_nb.core.read import myst_nb_reader_plugin
    from nbclient import NotebookClient

    shutil.copy(FOLDER / "matplotlibrc", tmp_path)
    before = processor_seconds()
    notebook = NotebookClient(
        myst_nb_reader_plugin(str(path)), timeout=600, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    assert processor_seconds() - before <= LIMIT
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 2


def test_there_are_five_and_the_first_page_names_them():
    assert len(NOTEBOOKS) == 5
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    assert all(f"]({path.name})" in index for path in NOTEBOOKS)
    assert all(f"{{nb-download}}`{path.stem}.ipynb`" in path.read_text(encoding="utf-8") for path in NOTEBOOKS)
