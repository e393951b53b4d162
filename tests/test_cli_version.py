"""`coulomb version`: what a report of an error needs, and nothing about the user."""

import getpass
import json
import socket
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch

import coulomb
from coulomb.cli import main


def printed(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["coulomb", "version", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_the_version_is_one_line(monkeypatch, capsys):
    assert printed(monkeypatch, capsys) == f"{coulomb.__version__}\n"
    assert json.loads(printed(monkeypatch, capsys, "--json")) == {"coulomb": coulomb.__version__}


def test_verbose_has_the_machine_and_every_package(monkeypatch, capsys):
    facts = json.loads(printed(monkeypatch, capsys, "--verbose", "--json"))
    assert facts["torch"] == torch.__version__ and facts["numpy"] == metadata.version("numpy")
    assert facts["gpu"] == "none" or torch.cuda.is_available()
    assert {"lightning", "faiss-cpu", "s3fs", "starlette", "processor", "system"} <= set(facts)
    assert "sphinx" not in facts and "pytest" not in facts
    lines = printed(monkeypatch, capsys, "--verbose").splitlines()
    assert [line.split(maxsplit=1)[0] for line in lines] == list(facts)


def test_a_package_that_is_missing_is_said(monkeypatch, capsys):
    monkeypatch.setattr(metadata, "requires", lambda name: ["torch>=2", 'no-such-package[x]>=1; extra == "train"'])
    assert json.loads(printed(monkeypatch, capsys, "--verbose", "--json"))["no-such-package"] == "not installed"


def test_nothing_names_the_user(monkeypatch, capsys):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    text = printed(monkeypatch, capsys, "--verbose")
    assert "OMP_NUM_THREADS" in text
    for private in (str(Path.cwd()), str(Path.home()), socket.gethostname(), f"/{getpass.getuser()}"):
        assert private not in text
