"""No wrong command line ends with a traceback, without a message, or with files left behind."""

import shutil
import sys
import warnings

import pytest

import coulomb
from cli_mistakes import LINES, arguments, prepare
from coulomb.cli import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("mistakes")
    prepare(made)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        options = {"epochs": 1, "batch_size": 4, "encoder": "convnet", "encoder_width": 8, "image_size": 16}
        coulomb.train("photos", out="run", evaluate=False, progress=False, workers=0, **options)
    return made


@pytest.mark.parametrize("line", LINES)
def test_a_wrong_command_line_is_refused_with_one_line(folder, line, monkeypatch, capsys, own_console):
    before = set(folder.rglob("*"))
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["coulomb", *arguments(line, folder / "run")])
    with pytest.raises(SystemExit) as ended, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the images; what counts here is the error
        main()
    output = capsys.readouterr().err
    left = [path for path in sorted(folder.rglob("*")) if path not in before and "__pycache__" not in path.parts]
    files = [path for path in left if path.is_file() or path.name == "new"]
    for path in left:
        shutil.rmtree(path, ignore_errors=True)
    assert ended.value.code == 2, output
    assert "Traceback" not in output
    assert sum(text.startswith("coulomb: error:") for text in output.splitlines()) == 1, output
    assert not files
