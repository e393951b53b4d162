"""Processes forked from a server that has imported torch, coulomb and its libraries once: they start within milliseconds."""

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(
    [
        "pytest", "coulomb.api", "coulomb.cli.every", "coulomb.similarity.collectives", "torch._dynamo", "torch.nn.parallel",
        # what `train` and `evaluate` import when they begin
        "coulomb.training.launch", "coulomb.report.tables", "torch.utils.tensorboard", "sklearn.linear_model",
        "sklearn.datasets", "rich.progress", "pyarrow.parquet",
    ]
)  # fmt: skip


def coulomb(*arguments, cwd, before=None, timeout=240):
    """Runs ``python -m coulomb`` in a process of its own, where ``before`` is called first.

    Returns what subprocess.run returns: exit code and output. It saves the seconds that the imports of a new
    interpreter take; a test that is about these imports needs subprocess.run.
    """
    command = ["coulomb", *map(str, arguments)]
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder) / name for name in ("stdout", "stderr")]
        process = context.Process(target=_command, args=(command, cwd, dict(os.environ), outputs, before))
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(command, timeout)
        return subprocess.CompletedProcess(command, process.exitcode, *(path.read_text() for path in outputs))


def _command(command, cwd, environment, outputs, before):
    multiprocessing.set_start_method(None, force=True)  # that of a new interpreter, not of this process
    for number, path in enumerate(outputs, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = command
    if before is not None:
        before()
    runpy.run_module("coulomb", run_name="__main__", alter_sys=True)
