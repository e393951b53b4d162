"""The last lines of a test run, in one process and with workers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest

@pytest.mark.skipif(True, reason="no browser")
def test_a(): pass

def test_b(): pytest.skip("no GPU")

@pytest.mark.parametrize("x", range(3))
def test_c(x): pytest.importorskip("no_such_module", reason="no browser")

@pytest.fixture
def retried():
    print("rendezvous failed: attempt 1 of 3")

def test_d(retried): pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
def test_skips_are_counted_by_reason_and_retries_are_listed(tmp_path, workers):
    (tmp_path / "test_one.py").write_text(TESTS)
    (tmp_path / "test_two.py").write_text("import pytest\npytest.skip('not root', allow_module_level=True)\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "summary", "-p", "no:cacheprovider", "-n", workers, tmp_path],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    skips, retry, result = done.stdout.splitlines()[-3:]
    assert skips == "skipped tests: 6 (4 × no browser; 1 × no GPU; 1 × not root)"
    assert retry == "test_one.py::test_d: rendezvous failed: attempt 1 of 3"
    assert result.startswith("1 passed, 6 skipped")
