"""The files of a run, and how they are written: whole or not at all, and never through a link that leaves the folder."""

import contextlib
import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

from coulomb.errors import InputError
from coulomb.models.saving import write_atomically


class RunFolder:
    """Paths inside a run folder.

    Args:
        path: the folder; need not exist yet.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._created: list[Path] = []
        self.config = self.path / "config.yaml"
        self.data = self.path / "data.json"
        self.split = self.path / "split.json"
        self.environment = self.path / "environment.json"
        self.metrics = self.path / "metrics.jsonl"
        self.evaluation = self.path / "evaluation.json"
        self.doctor = self.path / "doctor.json"
        self.transfer = self.path / "transfer"
        self.samples = self.path / "samples.npz"
        self.views = self.path / "views.png"
        self.log = self.path / "train.log"
        self.lock = self.path / "lock"
        self.report = self.path / "report.html"
        self.initial = self.path / "checkpoints" / "initial"
        self.checkpoint = self.path / "checkpoints" / "last.ckpt"

    def refuse_existing(self) -> None:
        """A folder that holds anything is never overwritten."""
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            remedy = "continue it with --resume" if self.config.is_file() else "remove it"
            raise InputError(f"out={str(self.path)!r}: already exists; choose another folder, or {remedy}")

    def create(self) -> None:
        """Make the folder."""
        try:
            self.refuse_existing()
            self._created = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
            self.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"out={str(self.path)!r}: cannot be created ({error.strerror})") from None

    def discard(self) -> None:
        """Undo `create`: remove the folder, or empty it where it existed before."""
        for path in self.path.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        for folder in self._created:
            with contextlib.suppress(OSError):  # something else was put there in the meantime
                folder.rmdir()

    def require(self) -> None:
        """Raises `InputError` if the folder is not a run, or if something in it is a link that leaves it."""
        if not self.config.is_file():
            raise InputError(f"{str(self.path)!r}: not a run folder (no config.yaml in it)")
        self.refuse_links()

    def refuse_links(self) -> None:
        """Raises `InputError` if a symbolic link in the folder, at any depth, leads out of it: what is written into the
        folder would change files elsewhere. The folder itself may be a link.
        """
        inside = self.path.resolve()
        for folder, folders, files in os.walk(inside):
            for path in (Path(folder, name) for name in folders + files):
                if path.is_symlink() and not _target(path).is_relative_to(inside):
                    raise InputError(
                        f"{path}: is a symbolic link that leaves the run folder, and writing to it would change files "
                        f"elsewhere ({_target(path)}); replace it with a copy, or remove it"
                    )


def _target(link: Path) -> Path:
    try:
        return link.resolve()
    except (OSError, RuntimeError):  # a loop of links, which leads nowhere
        return link.parent / link.readlink()


def command_for(command: str, path: Path) -> str:
    """What to type to apply ``command`` to the run in ``path``."""
    return f"coulomb {command} {shlex.quote(str(path))}"


def free_folder(name: str, method: str) -> Path:
    """``runs/NAME-METHOD``, or the first of ``-2``, ``-3``, … that does not exist yet."""
    safe = safe_name(name)
    path, number = Path("runs") / f"{safe}-{method}", 1
    while path.exists():
        number += 1
        path = Path("runs") / f"{safe}-{method}-{number}"
    return path


def safe_name(name: str) -> str:
    """``name`` with letters, digits, ``-_.`` alone, for a file or folder."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip("-.") or "data"


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically: readers see the old file or the new one, never half of one."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write text atomically."""
    write_atomically(path, text.encode("utf-8"))
