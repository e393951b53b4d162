"""Archive bombs, wrong headers and pickles are refused before memory is allocated."""

import io
import tracemalloc
import zipfile

import numpy as np
import pytest

from coulomb.ground.errors import InputError
from coulomb.ground.reading import open_arrays
from coulomb.tables.sources import open_source


def header(shape, dtype="|u1"):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": dtype, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def archive(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


def zeros(path, name, size):
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file,
        file.open(f"{name}.npy", "w", force_zip64=True) as member,
    ):
        member.write(header((size,)))
        for _ in range(size // 2**24):
            member.write(bytes(2**24))
    return path


@pytest.mark.parametrize("order", ["C", "F"])
def test_it_reads_what_numpy_writes(tmp_path, order):
    made = {
        "images": np.asarray(np.arange(24, dtype=np.float16).reshape(2, 3, 4), order=order),
        "names": np.array(["a", "äöü"]),
        "none": np.zeros((0, 3)),
        "one": np.array(7),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", **made)
        with open_arrays(tmp_path / "a.npz") as file:
            assert file.names == list(made) and "images" in file and "other" not in file
            for name, array in made.items():
                assert file[name].dtype == array.dtype
                np.testing.assert_array_equal(file[name], array)


@pytest.mark.slow
def test_archive_bomb_is_refused_before_it_expands(tmp_path):
    path = zeros(tmp_path / "a.npz", "images", 2**31 + 2**24)
    assert path.stat().st_size < 2**25
    tracemalloc.start()
    with pytest.raises(InputError, match=r"a\.npz: .* that expand to 2\.0. GiB, more than the limit of 2 GiB; .*\.npy"):
        open_source(path)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


@pytest.mark.parametrize("shape", [(10**13,), (2**40, 2**40), (5,), (3, -1)])
def test_wrong_array_header_is_refused(tmp_path, shape):
    path = archive(tmp_path / "a.npz", images=header(shape) + bytes(12))
    with pytest.raises(InputError, match=r"a\.npz: not a readable NumPy file"), open_arrays(path) as file:
        file["images"]


def test_wrong_sizes_in_the_archive_directory_are_refused(tmp_path):
    """The archive directory declares 12 bytes for data of 16 MiB, or vice versa."""
    path = archive(tmp_path / "a.npz", images=header((2**24,)) + bytes(2**24))
    for lie in (140, 2**28):
        with zipfile.ZipFile(path) as file:
            true = file.infolist()[0].file_size
        content = path.read_bytes().replace(true.to_bytes(4, "little"), lie.to_bytes(4, "little"))
        (tmp_path / "b.npz").write_bytes(content)
        with pytest.raises(InputError, match="not a readable NumPy file"), open_arrays(tmp_path / "b.npz") as file:
            file["images"]


def test_missing_array_name(tmp_path):
    np.savez(tmp_path / "a.npz", images=np.zeros(3))
    with pytest.raises(InputError, match="it holds no array 'labels'"), open_arrays(tmp_path / "a.npz") as file:
        file["labels"]
