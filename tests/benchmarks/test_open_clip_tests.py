"""Tests of a checkout run with the losses here in place of its own, and what passes with whose is told apart."""

import pytest

from benchmarks.open_clip_tests import bench_tests, render
from coulomb.ground.errors import InputError

FILES = {
    "src/open_clip/__init__.py": "from torchvision.transforms import Normalize, functional\nfrom .loss import ClipLoss\n",
    "src/open_clip/loss.py": "class ClipLoss:\n    own = True\nclass SigLipLoss:\n    own = True\n",
    "src/open_clip/factory.py": "from .loss import ClipLoss, SigLipLoss\n",
    "tests/test_loss.py": """
import pytest, open_clip
from open_clip.loss import ClipLoss, SigLipLoss
from open_clip import factory

def test_both():
    assert factory.ClipLoss is ClipLoss is open_clip.ClipLoss

def test_ours():
    assert SigLipLoss.__module__ == "coulomb.integrations.open_clip"

def test_theirs():
    assert ClipLoss.own, "only theirs"

@pytest.mark.parametrize("n", [1, 2])
def test_neither(n):
    assert n == 3
""",
}


@pytest.mark.slow
def test_what_passes_with_whose_losses_is_told_apart(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    result = bench_tests(tmp_path, ["test_loss.py"])
    found = result["files"]["test_loss.py"]
    assert (found["tests"], found["theirs"], found["ours"]) == (5, 2, 2)
    assert set(found["only_theirs"]) == {"test_theirs"}
    assert set(found["neither"]) == {"test_neither[1]", "test_neither[2]"}
    assert "passes with theirs only: test_loss.py::test_theirs" in render(result)


def test_a_folder_without_the_tests_is_named(tmp_path):
    with pytest.raises(InputError, match="^checkout=.*src/open_clip/loss.py"):
        bench_tests(tmp_path)
