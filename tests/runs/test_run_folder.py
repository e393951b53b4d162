import json

import pytest

from coulomb.errors import InputError
from coulomb.reading import read_json
from coulomb.runs.folder import RunFolder, free_folder, write_json, write_text


def test_an_existing_folder_is_never_overwritten(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match=r"already exists.*or remove it"):
        RunFolder(tmp_path / "run").create()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.txt"]
    (tmp_path / "run" / "config.yaml").write_text("")
    with pytest.raises(InputError, match=r"already exists.*--resume"):
        RunFolder(tmp_path / "run").create()


def test_an_empty_folder_may_be_used(tmp_path):
    folder = RunFolder(tmp_path)
    folder.create()
    assert folder.checkpoint.parent.is_dir()


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "run").write_text("x")
    with pytest.raises(InputError, match="already exists"):
        RunFolder(tmp_path / "run").create()
    with pytest.raises(InputError, match="cannot be created"):
        RunFolder(tmp_path / "run" / "below").create()


def test_free_folder_counts_up(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(free_folder("my photos/..", "simclr")) == "runs/my-photos-simclr"
    (tmp_path / "runs" / "my-photos-simclr").mkdir(parents=True)
    assert str(free_folder("my photos/..", "simclr")) == "runs/my-photos-simclr-2"


def test_a_failed_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"x": 1})
    with pytest.raises(ValueError):
        write_json(path, {"x": float("nan")})
    assert json.loads(path.read_text()) == {"x": 1}


def test_json_errors_name_the_file(tmp_path):
    with pytest.raises(InputError, match="missing.json"):
        read_json(tmp_path / "missing.json")
    write_text(tmp_path / "broken.json", "{\n oops")
    with pytest.raises(InputError, match=r"broken\.json.*line 2"):
        read_json(tmp_path / "broken.json")
