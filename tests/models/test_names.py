"""What the name of an encoder says by itself."""

import pytest

from coulomb.ground.errors import InputError
from coulomb.models.names import is_local, is_published, local_path, names_weights, parse_name


def test_published_names():
    assert is_published("hf:a/b") and is_published("timm:x") and not is_published("my.py:Net")
    assert not is_published("resnet18") and not is_published(None)
    assert parse_name("hf:a/b@weights")[:3] == ("hf", "a/b", True)
    with pytest.raises(InputError, match="timm:NAME"):
        parse_name("timm:@weights")


def test_local_names(tmp_path):
    for name in (str(tmp_path), "run:runs/first", "weights.safetensors", "./here", "old.pth"):
        assert is_local(name), name
    for name in (None, "lite0", "resnet18", "hf:./here", "mine.py:Net"):
        assert not is_local(name), name
    assert local_path("run:runs/first") == local_path("runs/first@weights") == local_path("runs/first")
    assert local_path("~/run").is_absolute()


def test_names_of_weights(tmp_path):
    assert names_weights(str(tmp_path)) and names_weights("hf:a/b@weights")
    assert not names_weights("hf:a/b") and not names_weights("resnet18@weights") and not names_weights(None)
