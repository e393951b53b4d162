"""open_clip's own tests with the losses here in place of its own: ``python -m benchmarks.open_clip_tests CHECKOUT``."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any
from xml.etree import ElementTree

import typer

import coulomb
from benchmarks.command import Json, command, progress, show
from coulomb.ground.errors import InputError

FILES = (
    "test_loss.py",
    "test_siglip_chunked_loss.py",
    "test_task_base_unit.py",
    "test_task_specific_unit.py",
    "test_task_checkpoint.py",
    "test_task_compile.py",
    "test_task_fsdp_unit.py",
    "test_factory_task.py",
)
PASSED, SKIPPED, FAILED = "passed", "skipped", "failed"

# A plug-in of pytest: stands in for a missing torchvision, which the package imports but these losses do not use, and puts
# the losses here wherever open_clip has its own.
PLUGIN = """
import importlib, importlib.util, os, sys, types

class Named(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return name

class Missing(types.ModuleType):
    __path__ = []
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name[:1].isupper():
            return Named(name, (), {"__init__": lambda self, *given, **named: None})
        full = f"{self.__name__}.{name}"
        return sys.modules.get(full) or (lambda *given, **named: None)

if importlib.util.find_spec("torchvision") is None:
    for name in ("", ".transforms", ".transforms.functional", ".ops", ".ops.misc", ".io", ".datasets"):
        module = Missing("torchvision" + name)
        module.__spec__ = importlib.util.spec_from_loader(module.__name__, None)
        module.__version__ = "0"
        sys.modules[module.__name__] = module

if os.environ["LOSSES"] == "coulomb":
    import open_clip.loss
    import open_clip.factory
    from coulomb.integrations.open_clip import ClipLoss, CoCaLoss, DistillClipLoss, SigLipLoss
    for module in [module for name, module in sys.modules.items() if name.split(".")[0] == "open_clip"]:
        for loss in (ClipLoss, CoCaLoss, DistillClipLoss, SigLipLoss):
            if loss.__name__ in vars(module):
                setattr(module, loss.__name__, loss)
"""


def run_tests(checkout: Path, files: Sequence[str], losses: str) -> dict[str, dict[str, tuple[str, str]]]:
    """Runs test files of a checkout in a process of their own.

    Args:
        checkout: a checkout of open_clip.
        files: in its folder tests.
        losses: ``"coulomb"``, or ``"open_clip"`` for its own.

    Returns:
        file → test → (``"passed"``, ``"skipped"`` or ``"failed"``, why).
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "put_losses.py").write_text(PLUGIN, encoding="utf-8")
        report = Path(folder, "report.xml")
        places = [folder, str(checkout / "src"), str(Path(coulomb.__file__).parents[1])]
        environment = os.environ | {
            "LOSSES": losses,
            "PYTHONPATH": os.pathsep.join([*places, os.environ.get("PYTHONPATH", "")]),
            "HF_HUB_OFFLINE": "1",
        }
        options = ["-p", "put_losses", "-p", "no:cacheprovider", "-q", "--rootdir", str(checkout), "-c", os.devnull]
        paths = [str(checkout / "tests" / file) for file in files]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, f"--junitxml={report}", *paths],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if not report.exists():
            raise InputError(f"the tests did not run: {(done.stdout + done.stderr).strip().splitlines()[-1:]}")
        return results_in(report, files)


def results_in(report: Path, files: Sequence[str]) -> dict[str, dict[str, tuple[str, str]]]:
    """Reads a JUnit file: file → test → (result, why)."""
    out: dict[str, dict[str, tuple[str, str]]] = {file: {} for file in files}
    for case in ElementTree.parse(report).iter("testcase"):
        place = f"{case.get('classname', '')}.{case.get('name', '')}"
        file = next((file for file in files if file.removesuffix(".py") in place.split(".")), None)
        if file is None:
            continue
        problem = next((each for each in case if each.tag in ("failure", "error", "skipped")), None)
        result = PASSED if problem is None else SKIPPED if problem.tag == "skipped" else FAILED
        why = "" if problem is None else (problem.get("message") or "").strip()
        out[file][case.get("name", "")] = (result, (why.splitlines() or [""])[0])
    return out


def bench_tests(
    checkout: Path, files: Sequence[str] = FILES, say: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Runs the tests with open_clip's losses and with those here.

    Returns:
        ``{"files": {file: {"tests", "theirs", "ours", "only_theirs": {test: why}, "neither": {test: why}}}}``: how many pass.

    Raises:
        InputError: no checkout of open_clip, or no such tests.
    """
    for path in [checkout / "src" / "open_clip" / "loss.py", *(checkout / "tests" / file for file in files)]:
        if not path.is_file():
            raise InputError(f"checkout={checkout}: has no {path.relative_to(checkout)}")
    say("with open_clip's losses")
    theirs = run_tests(checkout.resolve(), files, "open_clip")
    say("with the losses here")
    ours = run_tests(checkout.resolve(), files, "coulomb")
    out = {}
    for file in files:
        missing = ("failed", "not collected")
        both = {
            test: (theirs[file].get(test, missing), ours[file].get(test, missing)) for test in theirs[file] | ours[file]
        }
        out[file] = {
            "tests": len(both),
            "theirs": sum(there[0] == PASSED for there, _ in both.values()),
            "ours": sum(here[0] == PASSED for _, here in both.values()),
            "only_theirs": {
                test: here[1] for test, (there, here) in both.items() if there[0] == PASSED and here[0] != PASSED
            },
            "neither": {
                test: here[1] for test, (there, here) in both.items() if there[0] != PASSED and here[0] != PASSED
            },
        }
    return {"files": out}


def render(result: dict[str, Any]) -> str:
    """Returns the result as text."""
    lines = [f"{'':32}{'tests':>7}{'theirs':>8}{'ours':>7}"]
    for file, found in result["files"].items():
        lines.append(f"{file:32}{found['tests']:>7}{found['theirs']:>8}{found['ours']:>7}")
    total = [sum(found[name] for found in result["files"].values()) for name in ("tests", "theirs", "ours")]
    lines.append(f"{'together':32}{total[0]:>7}{total[1]:>8}{total[2]:>7}")
    for name, what in (("only_theirs", "passes with theirs only"), ("neither", "passes with neither")):
        for file, found in result["files"].items():
            lines += [f"{what}: {file}::{test}: {why}" for test, why in found[name].items()]
    return "\n".join(lines)


def main(
    checkout: Annotated[Path, typer.Argument(help="a checkout of github.com/mlfoundations/open_clip")],
    file: Annotated[list[str] | None, typer.Option(help="only this file of tests/; may be repeated")] = None,
    as_json: Json = False,
) -> None:
    """Run open_clip's own tests of its losses and tasks with the losses here in place of its own."""
    with progress(quiet=as_json) as doing:
        result = bench_tests(checkout, file or FILES, doing)
    show(result, as_json, render)


if __name__ == "__main__":
    command(main, "open_clip", "open_clip --file test_siglip_chunked_loss.py")
