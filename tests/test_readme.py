"""Code, commands, counts and links of the README are correct."""

import re

import pytest

from page_blocks import ROOT, blocks_of, broken_links, make_photos, parse_command, run_block

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = blocks_of(ROOT / "README.md")


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_photos(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_python_blocks_run(block, photos):
    run_block(block.replace("epochs=20", "epochs=1, batch_size=4, progress=False"), "README.md", strict=False)


def test_losses_and_methods_are_counted_and_named():
    import coulomb.losses
    from coulomb.losses.options import Loss
    from coulomb.methods import METHODS

    losses = [name for name in coulomb.losses.__all__ if issubclass(getattr(coulomb.losses, name), Loss)]
    assert f"There are {len(losses)} losses" in README
    assert f"There are {len(METHODS)} methods" in README
    methods = (ROOT / "docs" / "guide" / "methods.md").read_text(encoding="utf-8")
    assert f"one of {len(METHODS)} methods" in methods
    assert {name for name in METHODS if f"| `{name}` |" not in methods} == set()
    self_supervised = [name for name, method in METHODS.items() if not method.needs_labels]
    comparison = (ROOT / "docs" / "guide" / "comparison.md").read_text(encoding="utf-8")
    assert f"| self-supervised methods | {len(self_supervised)} |" in comparison


def test_there_is_one_short_block_per_use():
    assert len(BLOCKS) == 2
    assert all(len(block.strip().splitlines()) <= 12 for block in BLOCKS)


@pytest.mark.parametrize("line", re.findall(r"^    (coulomb .*)", README, flags=re.M))
def test_commands_parse(line):
    parse_command(line)


def test_files_in_the_map_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Map of the files")[1].split("## ")[0]
    listed = re.findall(r"(?:^|  )((?:\w+/)+|\w+\.(?:py|md))(?=\s)", text, flags=re.M)
    assert len(listed) > 10
    for name in listed:
        places = [ROOT / name, ROOT / "src" / "coulomb" / name, ROOT / "tests" / name]
        assert any(place.exists() for place in places), name


def test_it_is_short():
    assert len(README.encode()) <= 4500


def test_links_resolve():
    assert broken_links(ROOT / "README.md") == []


def test_pictures_exist():
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README):
        assert (ROOT / picture).is_file(), picture


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^    make (\w+)", README, flags=re.M):
        assert re.search(rf"^{target}:", makefile, flags=re.M), target
