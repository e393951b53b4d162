"""The pages in docs/losses agree with the docstrings, are complete, and their code prints the output shown."""

import importlib.util
import re

import pytest

import coulomb.losses
from page_blocks import ROOT, blocks_of, broken_links, run_block

FOLDER = ROOT / "docs" / "losses"
PAGES = sorted(FOLDER.glob("*.md"))
BLOCKS = [(page.name, number, block) for page in PAGES for number, block in enumerate(blocks_of(page))]

PARTS = {"Diagnosis", "LearnableTemperature", "ParametricCenters"}


@pytest.fixture(scope="module")
def build():
    spec = importlib.util.spec_from_file_location("build_losses", ROOT / "docs" / "build_losses.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_are_up_to_date(build):
    old = [path.name for path, text in build.pages().items() if not path.exists() or path.read_text("utf-8") != text]
    assert not old, f"{old}: run `make docs`"


def test_every_exported_name_is_documented(build):
    assert set(build.LOSSES) | (set(build.PARTS) & set(coulomb.losses.__all__)) == set(coulomb.losses.__all__)
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    decisions = index.partition("## All losses")[0]
    for name in build.LOSSES:
        assert f"]({name}.md)" in decisions, f"{name} is missing in `Which loss for my data?`"
        assert f"| [{name}]({name}.md) |" in index
    handwritten = {FOLDER / "two-infonce.md"}
    assert set(PAGES) == set(build.pages()) | handwritten


@pytest.mark.parametrize("name", sorted(set(coulomb.losses.__all__) - PARTS))
def test_docstrings_have_the_sections_of_a_page(name, build):
    found = build.sections(getattr(coulomb.losses, name).__doc__)
    assert build.formula(found["Formula"]), "the first line is the formula"
    lacking = {"When to use", "Needs", "Temperature", "Shape", "Args", "Deviation", "Cost", "Reference"} - set(found)
    assert not lacking
    assert any(key.startswith("Degenerate input") for key in found)
    assert any(key.endswith("Raises") for key in found)
    for text in found.values():
        assert not re.search(r"^[A-Z]\w+:$", text, flags=re.M), "an unknown section"


@pytest.mark.parametrize(("page", "number", "block"), BLOCKS, ids=[f"{page}-{number}" for page, number, _ in BLOCKS])
def test_blocks_print_the_output_shown(page, number, block):
    run_block(block, page)


def test_every_page_of_a_loss_has_a_block(build):
    assert {page for page, _, _ in BLOCKS} == {page.name for page in PAGES}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_links_resolve(page):
    assert broken_links(page) == []


def test_tests_named_on_a_page_exist():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (FOLDER / "two-infonce.md").read_text(encoding="utf-8"))
    assert named
    for file, function in named:
        assert f"def {function}(" in (ROOT / file).read_text(encoding="utf-8")
