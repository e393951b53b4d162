"""Code and commands of the guide work, and no link is broken."""

import pkgutil
import re

import pytest
import typer

from coulomb.ground.plugins import KINDS
from page_blocks import ROOT, blocks_of, broken_links, make_photos, parse_command, run_block

DOCS = ROOT / "docs"
GUIDE = sorted((DOCS / "guide").glob("*.md"))
EXPERIMENTS = sorted((DOCS / "experiments").glob("*.md"))
PAGES = [
    *GUIDE,
    DOCS / "index.md",
    *sorted((DOCS / "notebooks").glob("*.md")),
    *sorted((DOCS / "api").glob("*.md")),
    DOCS / "benchmarks" / "index.md",
    *EXPERIMENTS,
]
TRAINING = re.compile(r"coulomb\.(?:train|load|evaluate)")
SHORT = {"epochs=20": "epochs=1, batch_size=4, progress=False", "epochs=5": "epochs=1"}


def commands_of(page):
    """Returns the lines of shell blocks, and commands indented by four spaces."""
    lines = "\n".join(blocks_of(page, "sh")).replace("\\\n", " ").splitlines()
    lines += re.findall(r"^    ((?:coulomb|make) .*)", page.read_text(encoding="utf-8"), flags=re.M)
    return [line for line in lines if line.strip() and not line.startswith("#")]


def commands_within(page):
    """Returns the commands inside the sentences and tables of a page."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    return re.findall(r"`((?:coulomb|make|python -m benchmarks|sh) ?[^`…]*)`", text)


COMMANDS = [(page.name, line) for page in EXPERIMENTS for line in commands_within(page) if len(line.split()) > 2]
COMMANDS += [(page.name, line) for page in PAGES for line in commands_of(page)]


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=pytest.mark.slow) if TRAINING.search(p.read_text()) else p for p in GUIDE], ids=str
)
def test_python_blocks_run_and_print_the_output_shown(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_photos(tmp_path)
    for number, block in enumerate(blocks_of(page)):
        for long, short in SHORT.items():
            block = block.replace(long, short)
        run_block(block, f"{page.name}-{number}", strict=not TRAINING.search(block))


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=[f"{page}:{line}" for page, line in COMMANDS])
def test_commands_parse(page, line):
    parse_command(line)


@pytest.mark.parametrize(
    "line",
    [
        "coulomb train digits --lerning-rate 1",
        "coulomb trane digits",
        "coulomb train digits --epochs many",
        "python -m benchmarks.loses",
        "python -m benchmarks.losses --besides 2",
        "make dinner",
    ],
)
def test_commands_that_do_not_parse_fail(line):
    with pytest.raises((AssertionError, typer.BadParameter.__base__)):
        parse_command(line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_links_resolve(page):
    built = {"../explore.html"}  # written by docs/extensions/pages.py; checked in the built site
    assert set(broken_links(page)) - built == set()


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES], ids=lambda page: page.name)
def test_names_of_the_library_exist(page):
    names = set(re.findall(r"coulomb(?:\.(?!md\b)[A-Za-z_]\w*)+", page.read_text(encoding="utf-8")))
    for name in names - set(KINDS):
        pkgutil.resolve_name(name)


def test_every_page_is_in_the_table_of_contents():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    for page in [*GUIDE, *sorted((DOCS / "notebooks").glob("*.md"))]:
        assert f"{page.parent.name}/{page.stem}\n" in index, page.name
    experiments = (DOCS / "experiments" / "index.md").read_text(encoding="utf-8")
    for page in EXPERIMENTS:
        assert page.name == "index.md" or (f"\n{page.stem}\n" in experiments and f"({page.name})" in experiments), (
            page.name
        )


def test_every_public_name_is_in_the_api():
    import importlib

    import coulomb

    page = (DOCS / "api" / "coulomb.md").read_text(encoding="utf-8")
    for name in set(coulomb.__all__) - {"__version__"}:
        assert re.search(rf"^.. auto(?:function|class):: {name}$", page, flags=re.M), name

    for place in ("losses", "similarity", "negatives", "metrics", "evaluation", "tables", "models", "methods"):
        assert importlib.import_module(f"coulomb.{place}").__all__
        assert f".. automodule:: coulomb.{place}\n" in (DOCS / "api" / f"{place}.md").read_text(encoding="utf-8")


def test_no_page_contains_a_local_path():
    for page in PAGES:
        assert not re.search(r"(?<![\w.])/(?:home|work|root|tmp)/", page.read_text(encoding="utf-8")), page.name
