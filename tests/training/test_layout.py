"""Tests of `coulomb.training.layout`."""

import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

from lightning.fabric.strategies.launchers.subprocess_script import _ChildProcessObserver
from lightning.pytorch.plugins.environments import LightningEnvironment

from coulomb.training import layout


def test_the_observer_waits_until_a_lost_process_is_reported(monkeypatch):
    """Lightning's observer of the started processes kills the first one only after `REPORT_SECONDS`."""
    killed, slept = threading.Event(), []
    monkeypatch.setattr(os, "kill", lambda process, number: killed.set() if number == signal.SIGKILL else None)
    monkeypatch.setattr("lightning.pytorch.strategies.DDPStrategy.setup_environment", lambda self: None)
    monkeypatch.setattr(layout, "time", SimpleNamespace(sleep=slept.append))
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(9)"])
    process.wait()
    _ChildProcessObserver(main_pid=0, child_processes=[process], sleep_period=1).start()
    layout.PatientDDP(cluster_environment=LightningEnvironment()).setup_environment()
    assert killed.wait(30)
    assert slept == [layout.REPORT_SECONDS]
