"""Helpers for tests of Markdown pages: code blocks, links, anchors and commands."""

import contextlib
import importlib.util
import io
import re
import shlex
import warnings
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).parents[1]


def blocks_of(page, kind="python"):
    """Returns the fenced blocks of a language, in order."""
    return re.findall(rf"```{kind}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S)


def run_block(block, name, names=None, strict=True):
    """Executes a block. If it has comments `# → …`, its output must equal them."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        if strict:
            warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*LeafSpec.*", FutureWarning)  # within Lightning, by torch
        exec(compile(block, str(name), "exec"), {} if names is None else names)
    shown = re.findall(r"^# → (.*)", block, flags=re.M)
    if shown:
        assert printed.getvalue().splitlines() == shown, printed.getvalue()


def make_photos(folder):
    """Creates photos/ and more-photos/ with twelve images of noise each."""
    rng = np.random.default_rng(0)
    for name in ("photos", "more-photos"):
        (folder / name).mkdir()
        for number in range(12):
            pixels = rng.integers(0, 256, (20, 20, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


def prose_of(page):
    """Returns a page without its code."""
    text = re.sub(r"^(`{3,}).*?^\1", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    return re.sub(r"`[^`\n]*`", "`…`", text)


def links_of(page):
    """Returns the links of a page, without external ones."""
    text = prose_of(page)
    found = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:href|src)="([^"]+)"', text)
    return [target for target in found if not target.startswith("https://")]


def anchors_of(page):
    """Returns the anchors of the headings of a page."""
    text = re.sub(r"^(`{3,}).*?^\1", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    titles = re.findall(r"^#+ (.*)", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(page):
    """Returns the links to missing files or headings."""
    broken = []
    for target in links_of(page):
        file, _, anchor = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors_of(there)):
            broken.append(target)
    return broken


def _check_benchmark(module, arguments):
    """Parses the arguments of a benchmark, which must exist."""
    import typer.main

    assert re.fullmatch(r"benchmarks\.\w+", module), f"unknown module {module}"
    assert importlib.util.find_spec(module) is not None, f"unknown benchmark {module}"
    app = typer.Typer()
    app.command()(importlib.import_module(module).main)
    typer.main.get_command(app).make_context(module, list(arguments))


def parse_command(line):
    """Parses a shell line: its command and options must exist, and their values have the right types."""
    import typer.main

    from coulomb.cli.every import app

    words = shlex.split(line, comments=True)
    while words and re.fullmatch(r"\w+=\S*", words[0]):  # environment variables
        words = words[1:]
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M)
        return
    if words[:2] == ["python", "-m"]:
        _check_benchmark(words[2], words[3:])
        return
    if words[0] == "sh":
        assert (ROOT / words[1]).is_file()
        return
    if words[0] == "torchrun":
        from torch.distributed.run import parse_args

        words = parse_args(words[1:]).training_script_args
        assert line.count(" -m coulomb ") == 1, "torchrun starts the module coulomb"
        words = ["coulomb", *words]
    assert words[0] in ("coulomb", "pip", "uv"), f"unknown program {words[0]}"
    if words[0] == "coulomb":
        command, rest = typer.main.get_command(app), words[1:]
        while hasattr(command, "commands"):
            if rest and rest[0].startswith("--"):  # of coulomb itself
                assert rest[0] in {flag for each in command.params for flag in each.opts}
                return
            assert rest and rest[0] in command.commands, f"unknown command {rest[:1]}"
            command, rest = command.commands[rest[0]], rest[1:]
        command.make_context("coulomb", list(rest))
