"""The programs of an export read files of every mode as `encode` does."""

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from coulomb.export import to_hub, to_onnx
from export_cases import by_the_card, files_of_all_modes, published, run


def cosines(found, expected):
    found, expected = (np.asarray(each, np.float64) for each in (found, expected))
    return (found * expected).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)


def by_the_script(script, paths):
    """Features by an exported script, in a process in which neither coulomb nor torch can be imported."""
    blocked = (
        "import sys; sys.modules['coulomb'] = sys.modules['torch'] = None; sys.argv = sys.argv[1:]; import runpy; "
    )
    command = [
        sys.executable,
        "-I",
        "-W",
        "error",
        "-c",
        blocked + "runpy.run_path(sys.argv[0], run_name='__main__')",
        script,
        *paths,
    ]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split(" ")[0] for line in lines] == [str(path) for path in paths]
    return [[float(value) for value in line.split(" ")[1:]] for line in lines]


def encoder_of(kind, folder, channels=3, dtype="uint8"):
    if kind == "published":
        return published("convnet", width=8)
    return run(folder, "convnet", width=8, channels=channels, canvas=48, dtype=dtype)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "channels", "dtype"),
    [("published", 3, None), ("run", 3, "uint8"), ("run", 1, "uint8"), ("run", 1, "float32")],
)
def test_the_programs_of_exports_read_files_as_encode_does(tmp_path, kind, channels, dtype):
    paths = files_of_all_modes(tmp_path / "photos")
    square = tmp_path / "square.png"  # of the size of the canvas: not resampled
    Image.open(tmp_path / "photos" / "I16.png").resize((48, 48)).save(square)
    paths.append(square)
    loaded = encoder_of(kind, tmp_path / "run", channels, dtype)
    expected = np.concatenate([loaded.encode(path).numpy() for path in paths])
    to_hub(loaded, tmp_path / "hub")
    found = cosines(by_the_card(tmp_path / "hub", paths), expected)
    assert found.min() > 0.99999, dict(zip(paths, found, strict=True))
    to_onnx(loaded, tmp_path / "m.onnx")
    found = cosines(by_the_script(tmp_path / "m.py", paths), expected)
    # Photos with more than 8 bits are rounded to 8 for the graph; a run on such photos keeps them.
    assert found.min() > 0.9999, dict(zip(paths, found, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["published", "run"])
def test_the_programs_refuse_what_encode_refuses(tmp_path, kind):
    values = np.linspace(0, 255, 40 * 40, dtype=np.float32).reshape(40, 40)
    Image.fromarray(values).save(tmp_path / "floats.tif")
    Image.new("RGB", (9, 9)).save(tmp_path / "program.eps")
    loaded = encoder_of(kind, tmp_path / "run")
    to_hub(loaded, tmp_path / "hub")
    to_onnx(loaded, tmp_path / "m.onnx")
    for path, reason in ((tmp_path / "floats.tif", "from 0 to 255"), (tmp_path / "program.eps", "cannot identify")):
        for program in (lambda p: by_the_card(tmp_path / "hub", p), lambda p: by_the_script(tmp_path / "m.py", p)):
            with pytest.raises(subprocess.CalledProcessError) as caught:
                program([path])
            assert reason in caught.value.stderr
