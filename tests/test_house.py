"""Rules of the house: imports go strictly down, the core imports little, CONTRIBUTING.md describes the rooms as they are."""

import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOUSE = ROOT / "src" / "coulomb"

# A room imports only rooms on lower floors, none on its own floor.
FLOORS = {
    "errors": 0,
    "checked": 0,
    "randomness": 0,
    "machine": 0,
    "names_elsewhere": 0,
    "reading": 0,
    "workers": 0,
    "similarity": 0,
    "mapped_rows": 1,
    "team": 1,
    "negatives": 2,
    "models": 1,
    "pages": 2,
    "data": 1,
    "losses": 2,
    "metrics": 2,
    "diagnostics": 3,  # public names of metrics
    "methods": 3,
    "curation": 3,
    "doctor": 4,
    "runs": 4,
    "watching": 5,
    "training": 6,
    "evaluation": 7,
    "report": 8,
    "export": 8,
    "index": 8,
    "browse": 9,
    "bench": 9,  # measures the index
    "api": 9,
    "lab": 10,  # measures memory with bench
    "cli": 11,
    "__init__": 12,
    "__main__": 12,
}
GROUND = {
    "errors",
    "checked",
    "machine",
    "names_elsewhere",
    "randomness",
    "reading",
    "workers",
}  # may be imported from anywhere, floor 0 included


def place(path: Path) -> str:
    return path.relative_to(HOUSE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write it from coulomb"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


FILES = sorted(HOUSE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(HOUSE)))
def test_imports_go_strictly_down(path):
    here = place(path)
    assert here in FLOORS, f"{here} has no floor: give it one in tests/test_house.py"
    for name in imports_of(path):
        parts = name.split(".")
        if parts[0] != "coulomb" or len(parts) < 2:
            continue
        there = parts[1]
        if there == here or there in GROUND or there == "__version__":
            continue
        assert there in FLOORS, f"{path.name} imports unknown place {name}"
        assert FLOORS[there] < FLOORS[here], f"{path.relative_to(HOUSE)} (floor {FLOORS[here]}) imports {name} upwards"


def test_no_rooms_called_utils_or_base():
    names = [path.stem for path in FILES]
    assert not {"utils", "helpers", "common", "misc"} & set(names)
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not (isinstance(node, ast.ClassDef) and node.name.startswith("Base")), f"{path}: {node.name}"


def test_files_stay_small():
    lengths = sorted(len(path.read_text(encoding="utf-8").splitlines()) for path in FILES)
    assert lengths[len(lengths) // 2] <= 150
    assert lengths[-1] <= 450


def code_lines(path: Path) -> int:
    """Lines without blank lines, comments and docstrings."""
    source = path.read_text(encoding="utf-8")
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    strings = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None
        for line in range(node.body[0].lineno, node.body[0].end_lineno + 1)
    }
    blank = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in blank:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - strings)


def test_a_loss_reads_like_its_formula():
    text = (HOUSE / "losses" / "__init__.py").read_text("utf-8")
    modules = {node.module: node.names for node in ast.parse(text).body if isinstance(node, ast.ImportFrom)}
    losses = [name for name, names in modules.items() if any(one.name.endswith("Loss") for one in names)]
    lines = {name: code_lines(HOUSE / "losses" / f"{name.rsplit('.', 1)[1]}.py") for name in losses}
    long = {name for name, count in lines.items() if count > 80}
    assert long <= {"coulomb.losses.nce", "coulomb.losses.triplet"} and max(lines.values()) <= 150
    assert sorted(lines.values())[len(lines) // 2] <= 50


def test_no_circle_of_imports():
    graph = {}
    for path in FILES:
        module = ".".join(path.relative_to(HOUSE.parent).with_suffix("").parts).removesuffix(".__init__")
        graph[module] = (path, {name for name in imports_of(path) if name.startswith("coulomb.")})
    below = {}

    def visit(module, trail):
        assert module not in trail, " → ".join([*trail[trail.index(module) :], module])
        if module not in below:
            for name in graph[module][1]:
                target = name if name in graph else name.rpartition(".")[0]
                if target in graph and target != module and not module.startswith(f"{target}."):
                    visit(target, [*trail, module])
            below[module] = True

    for module in graph:
        visit(module, [])


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_contributing_lists_every_room_once_with_its_floor():
    rows = re.findall(r"^\| (\d+) \| `([\w./]+)` \|", CONTRIBUTING, flags=re.M)
    rooms = [room for _, room in rows]
    assert all((HOUSE / room).exists() for room in rooms), rooms
    assert len(rooms) == len(set(rooms))
    floors = {room.rstrip("/").removesuffix(".py"): int(floor) for floor, room in rows}
    assert floors == {room: floor for room, floor in FLOORS.items() if not room.startswith("__")}
    directories = {path.name for path in HOUSE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert directories == {room.rstrip("/") for room in rooms if room.endswith("/")}
    anywhere = re.search(r"may be imported from everywhere: (.*?)\. ", CONTRIBUTING, flags=re.S)
    assert anywhere is not None
    assert set(re.findall(r"`(\w+)`", anywhere[1])) == GROUND


def test_files_that_contributing_names_exist():
    prose = re.sub(r"^    .*$", "", CONTRIBUTING, flags=re.M)
    paths = re.findall(r"`((?:\w+/)+(?:\w+\.\w+)?|\w+\.(?:py|md))`", prose)
    assert len(paths) > 50
    for path in paths:
        assert (ROOT / path).exists() or (HOUSE / path).exists(), path


def test_names_that_contributing_places_in_files_are_there():
    places = re.findall(r"`(\w+)` (?:or `(\w+)` )?in\s`([\w/]+\.py)`", CONTRIBUTING)
    assert len(places) > 5
    for name, other, path in places:
        for each in filter(None, (name, other)):
            assert re.search(rf"\b{each}\b", (ROOT / path).read_text(encoding="utf-8")), f"{each} in {path}"


CORE_IMPORT = """
import sys
import torch  # not measured
import time
start = time.process_time()  # of this process only
import coulomb.losses
import coulomb.negatives
elapsed = time.process_time() - start
heavy = {"lightning", "sklearn", "PIL", "pyarrow", "datasets", "plotly", "typer", "rich", "tensorboard", "pandas"}
print(sorted(heavy & set(sys.modules)), elapsed)
"""


def test_core_imports_light_and_fast():
    runs = [
        subprocess.run([sys.executable, "-c", CORE_IMPORT], capture_output=True, text=True, check=True).stdout
        for _ in range(3)
    ]
    heavy = [run.rsplit("]", 1)[0] for run in runs]
    assert heavy == ["["] * 3, f"import coulomb.losses pulled in {heavy[0]}]"
    assert min(float(run.split()[-1]) for run in runs) <= 0.3


ONLY_TRAINING = """
import sys, pkgutil, importlib
import coulomb.api
for room in ("browse", "cli", "evaluation", "export", "index", "report"):
    package = importlib.import_module(f"coulomb.{room}")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
print(sorted({"lightning", "transformers", "torch._dynamo"} & set(sys.modules)))
"""


def test_only_training_imports_lightning():
    """It takes three to five seconds, which every search of an index would wait for."""
    found = subprocess.run([sys.executable, "-c", ONLY_TRAINING], capture_output=True, text=True, check=True).stdout
    assert found == "[]\n"
