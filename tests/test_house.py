"""Rules of the house: imports go strictly down, the core imports little, CONTRIBUTING.md describes the rooms as they are."""

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOUSE = ROOT / "src" / "coulomb"

TOP = {"api", "cli", "__init__", "__main__"}  # not rooms: the two interfaces, on top of all rooms


def place(path: Path) -> str:
    return path.relative_to(HOUSE).parts[0].removesuffix(".py")


@functools.cache
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


@functools.cache
def rooms_below() -> dict[str, set[str]]:
    """The rooms that each room imports."""
    below: dict[str, set[str]] = {}
    for path in FILES:
        found = below.setdefault(place(path), set())
        for name in imports_of(path):
            parts = name.split(".")
            if parts[0] == "coulomb" and len(parts) > 1 and parts[1] != "__version__":
                found |= {parts[1]} - {place(path)}
    return below


def floors() -> dict[str, int]:
    """The floor of each room: 0 without imports, else one above the highest room that it imports."""
    below, known = rooms_below(), {}

    def floor(room: str, above: tuple[str, ...] = ()) -> int:
        assert room not in above, "rooms import each other: " + " → ".join([*above, room])
        if room not in known:
            known[room] = max((floor(each, (*above, room)) + 1 for each in below[room] - TOP), default=0)
        return known[room]

    return {room: floor(room) for room in below if room not in TOP}


def test_imports_go_strictly_down():
    """No circle of rooms, so that each has a floor; and no room imports the interfaces on top."""
    assert max(floors().values()) <= 12
    for room, below in rooms_below().items():
        assert room in TOP or not below & TOP, f"{room} imports {below & TOP}"


PLUGINS = {"coulomb_browse", "coulomb_lab"}


def test_plug_ins_stand_outside():
    """The house imports no plug-in, and neither the house nor a plug-in imports the benchmarks or the tests."""
    for package, forbidden in (("coulomb", PLUGINS | {"benchmarks"}), *((each, {"benchmarks"}) for each in PLUGINS)):
        paths = sorted((ROOT / "src" / package).rglob("*.py"))
        assert paths, package
        for path in paths:
            found = {name.split(".")[0] for name in imports_of(path)} & (forbidden | PLUGINS - {package})
            assert not found, f"{path} imports {found}"


def test_the_core_imports_torch_and_numpy_alone():
    core = {"ground", "similarity", "losses", "negatives", "laws"}
    for room in core:
        assert rooms_below()[room] <= core, f"{room} imports {rooms_below()[room] - core}"


def test_no_rooms_called_utils_or_base():
    names = [path.stem for path in FILES]
    assert not {"utils", "helpers", "common", "misc"} & set(names)
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not (isinstance(node, ast.ClassDef) and node.name.startswith("Base")), f"{path}: {node.name}"


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


def test_contributing_lists_every_room_once_from_the_ground_up():
    rows = re.findall(r"^\| `(\w+)/` \|", CONTRIBUTING, flags=re.M)
    assert sorted(rows) == sorted(floors()), set(rows) ^ set(floors())
    for place, room in enumerate(rows):
        assert rooms_below()[room] <= set(rows[:place]), f"{room} imports {rooms_below()[room] - set(rows[:place])}"


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


HEAVY = (
    "lightning torchvision transformers sklearn scipy PIL pyarrow datasets pandas tensorboard rich typer yaml jinja2"
)
LIGHT = [  # what is imported, what must not be imported with it: seconds for who only computes a loss, or asks for help
    ("import coulomb", f"torch numpy {HEAVY}"),
    ("import coulomb.losses, coulomb.negatives, coulomb.similarity", f"torch._dynamo torch._inductor {HEAVY}"),
    ("import coulomb.laws", HEAVY),
    ("import coulomb.cli", "torch numpy yaml PIL pyarrow"),
    ("import coulomb.api", "lightning transformers torch._dynamo tensorboard torchvision"),
]


@pytest.mark.parametrize(("imported", "heavy"), LIGHT, ids=[imported for imported, _ in LIGHT])
def test_what_is_imported_brings_nothing_heavy(imported, heavy):
    script = f"import sys\n{imported}\nprint(sorted(set({heavy.split()!r}) & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert found == "[]\n"


ONLY_TRAINING = """
import sys, pkgutil, importlib
import coulomb.api
for room in ("coulomb_browse", "coulomb.cli", "coulomb.evaluation", "coulomb.export", "coulomb.index", "coulomb.report"):
    package = importlib.import_module(room)
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
print(sorted({"lightning", "transformers", "torch._dynamo"} & set(sys.modules)))
"""


def test_only_training_imports_lightning():
    """It takes three to five seconds, which every search of an index would wait for."""
    found = subprocess.run([sys.executable, "-c", ONLY_TRAINING], capture_output=True, text=True, check=True).stdout
    assert found == "[]\n"
