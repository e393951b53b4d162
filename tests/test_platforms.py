"""What other systems lack: Windows the modules and functions below, macOS processes that may be forked."""

import multiprocessing
import subprocess
import sys

import pytest

from coulomb.laws import NOT_APPLICABLE, verify
from coulomb.losses import NTXentLoss

WINDOWS = """
import importlib, os, pkgutil, sys, tarfile
import torch, numpy, datasets, typer, PIL.Image, sklearn, starlette.testclient, uvicorn  # have their own ways there

for module in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[module] = None
for name in ("register_at_fork", "fork", "pread", "sched_getaffinity", "getuid", "O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK"):
    delattr(os, name)

import coulomb
for top in ("coulomb", "coulomb_browse", "coulomb_lab"):
    package = importlib.import_module(top)
    for module in pkgutil.walk_packages(package.__path__, top + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

from pathlib import Path
from coulomb.ground.files import locked, write_json
from coulomb.losses import NTXentLoss
from coulomb_browse.work import Work

rows = torch.randn(2, 2000, 8, requires_grad=True)
NTXentLoss(0.2)(*rows).backward()
write_json(Path("a.json"), {})


class Closed(type(Path())):
    def unlink(self, missing_ok=False):
        assert not [link for link in Path("/proc/self/fd").iterdir() if link.exists() and link.samefile(self)]
        super().unlink(missing_ok)


with locked(Closed("lock")):
    assert Path("lock").exists()
assert not Path("lock").exists()
assert not Work(Path("work.jsonl")).locked
with tarfile.open("a.tar", "w") as shard:
    shard.add("a.json")
try:
    coulomb.train("a.tar")
except coulomb.ground.errors.InputError as error:
    print(error)
"""


@pytest.mark.slow
def test_without_what_windows_lacks_all_is_imported_and_files_are_written(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WINDOWS], capture_output=True, text=True, cwd=tmp_path, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert "Windows Subsystem for Linux" in done.stdout


def test_where_processes_cannot_be_forked_their_law_does_not_apply(monkeypatch):
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    for finding in verify(NTXentLoss, laws=["processes"]).findings:
        assert finding.outcome == NOT_APPLICABLE and "forked" in finding.cause


SPAWNED = """
import multiprocessing

import coulomb

if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    options = {"epochs": 1, "batch_size": 16, "encoder": "convnet", "image_size": 16, "workers": 2, "progress": False}
    coulomb.train("photos", out="run", evaluate=False, **options)
    print(coulomb.Index.build("photos", "photos.index", encoder="run", workers=2, batch_size=8, progress=False).info["images"])
"""


@pytest.mark.slow  # each process imports torch
def test_data_workers_that_are_spawned_as_on_macos(tmp_path, digit_tree):
    (tmp_path / "photos").symlink_to(digit_tree)
    (tmp_path / "spawned.py").write_text(SPAWNED)
    done = subprocess.run([sys.executable, "spawned.py"], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 60
