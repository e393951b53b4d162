"""What `make wheel` makes: the three packages with all of their files, entry points, license and types; no tests, no data."""

import subprocess
import sys
import tarfile
import zipfile
from configparser import ConfigParser
from email import message_from_string
from pathlib import Path

import pytest

import coulomb

ROOT = Path(__file__).parents[1]
PACKAGES = ("coulomb", "coulomb_browse", "coulomb_lab")
MOST = 1_500_000  # bytes of the wheel; a picture or data by mistake would be more


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Builds wheel and source distribution in a folder outside the source."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as archive:
        yield archive


def info(wheel, name):
    return wheel.read(f"coulomb-{coulomb.__version__}.dist-info/{name}").decode()


def test_the_wheel_holds_every_file_of_the_three_packages_and_nothing_else(wheel):
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    files = (path for package in PACKAGES for path in (ROOT / "src" / package).rglob("*") if path.is_file())
    expected = {path.relative_to(ROOT / "src").as_posix() for path in files if "__pycache__" not in path.parts}
    assert held == expected
    assert {f"{package}/py.typed" for package in PACKAGES} <= held
    assert sum(each.compress_size for each in wheel.infolist()) < MOST


def test_its_metadata_say_what_it_is_and_needs(wheel):
    metadata = message_from_string(info(wheel, "METADATA"))
    assert metadata["Name"] == "coulomb" and metadata["Version"] == coulomb.__version__
    core = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert sorted(line.split(">")[0] for line in core) == ["numpy", "torch"]
    assert {"train", "text", "browse", "export"} <= set(metadata.get_all("Provides-Extra"))
    assert metadata["License-Expression"] == "Apache-2.0" and "Apache License" in info(wheel, "licenses/LICENSE")
    assert metadata.get_payload().startswith("# coulomb")


def test_its_entry_points_can_be_called(wheel):
    points = ConfigParser()
    points.read_string(info(wheel, "entry_points.txt"))
    assert dict(points["console_scripts"]) == {"coulomb": "coulomb.cli:main"}
    held = wheel.namelist()
    for point in points["coulomb.commands"].values():
        module = point.partition(":")[0].replace(".", "/")
        assert f"{module}.py" in held


def test_the_source_distribution_builds_the_same_wheel(built, wheel, tmp_path):
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = next(tmp_path.iterdir())
    assert not (folder / "tests").exists() and not (folder / "benchmarks").exists()
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "again")],
        cwd=folder, capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next((tmp_path / "again").glob("*.whl"))) as again:
        assert sorted(again.namelist()) == sorted(wheel.namelist())
