"""Files of bands: TIFF files that Pillow would reduce or refuse, and images saved as .npy or .npz.

Pillow reads TIFF files of 1 or 3 channels, perhaps with alpha. It refuses most others, and of 8 bits it drops what follows the
third channel. These are read by ``tifffile`` (the extra ``bands``), which is pure Python; rasterio would bring GDAL, 80 MB of
binaries, for map projections that training does not use.

| TIFF | channels |
|---|---|
| gray, RGB, palette, CMYK, YCbCr, LAB; with alpha | as Pillow reads it, see `coulomb.kinds.image.pixels` |
| any other number of samples per pixel, or three that are not declared as RGB | one per sample |
| several gray pages of one size, and more than 8 bits or a description by ImageJ, OME or tifffile | one per page |
| the same with slices or time points (axes Z, T) in the description | refused: a stack is not one image |
| several other pages | the first page |

Reduced copies and masks (overviews of GDAL) are not pages. Values that equal GDAL's "no data" value become NaN, except for 8
bits, where it usually is black.
"""

import io
import re
import zipfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, TiffImagePlugin

from coulomb.kinds.image.picture import Header, Picture

ARRAY_SUFFIXES = frozenset({".npy", ".npz"})
SUFFIXES = ARRAY_SUFFIXES | {".tif", ".tiff"}
MOST_BYTES = 2**30  # of one decoded image: 13 bands of 4096×4096 float32 take .8 GiB
MOST_CHANNELS = 16  # of .npy: a longer axis is taken as a side of the image, as for arrays
MOST_PAGES = 10_000
TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
NPY, NPZ = b"\x93NUMPY", b"PK\x03\x04"
DTYPES = {1: "u", 2: "i", 3: "f"}  # SampleFormat
PHOTO = {3, 4, 5, 6, 8, 9}  # PhotometricInterpretation: palette, mask, CMYK, YCbCr, CIELAB, ICCLAB
ALPHA = ((1,), (2,))  # ExtraSamples
SIZES = {  # of axes of a stack, in ImageDescription
    "slices": r"^slices=(\d+)|SizeZ=\"(\d+)\"",
    "time points": r"^frames=(\d+)|SizeT=\"(\d+)\"",
}


class BandFile(NamedTuple):
    """What is known of a file before its pixels are read.

    Attributes:
        height, width, channels: of the array that `read` returns.
        dtype: of the stored values.
        nodata: whether one value stands for missing ones.
        photo: True if Pillow reads the file, of which the first page is used.
        pages: pages of one size.
        array: True for .npy, which has no declaration of colors: 1 or 3 channels are a photo, as in arrays.
    """

    height: int
    width: int
    channels: int
    dtype: np.dtype[Any]
    nodata: bool = False
    photo: bool = False
    pages: int = 1
    array: bool = False

    @property
    def depth(self) -> str:
        """The type of the array that `read` returns: "uint8", "uint16" or "float32"."""
        if self.dtype in (np.uint8, np.bool_):
            return "uint8"
        return "uint16" if self.dtype == np.uint16 and not self.nodata else "float32"

    @property
    def header(self) -> Header:
        """As the header of an image."""
        mode = f"{self.dtype.name}×{self.channels}"
        bands = self.channels not in (1, 3) or not self.array
        return Header(self.width, self.height, mode, self.channels, self.depth, bands=bands)


def describe(data: bytes | Path) -> BandFile | None:
    """Returns what a TIFF or .npy file holds; None for other files. Raises ValueError if it cannot be read."""
    if isinstance(data, Path) and data.suffix.lower() not in SUFFIXES:
        return None
    begin = data[:8] if isinstance(data, bytes) else _begin(data)
    if begin.startswith(TIFF):
        with data.open("rb") if isinstance(data, Path) else io.BytesIO(data) as file:
            return _describe_tiff(file)
    if begin.startswith(NPY):
        with data.open("rb") if isinstance(data, Path) else io.BytesIO(data) as file:
            return _describe_array(*_array_header(file))
    if begin.startswith(NPZ):
        with zipfile.ZipFile(data if isinstance(data, Path) else io.BytesIO(data)) as archive:
            names = archive.namelist()
            if len(names) != 1 or not names[0].endswith(".npy"):
                raise ValueError(f"holds {len(names)} arrays; an .npz file in a folder is one image, and holds one")
            with archive.open(names[0]) as member:
                return _describe_array(*_array_header(member))
    return None


def _begin(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(8)


def read(data: bytes | Path, described: BandFile) -> Picture:
    """Returns the values [H, W, C] of a file as uint8, uint16 or float32. Raises ValueError if it cannot be read."""
    if described.height * described.width > (Image.MAX_IMAGE_PIXELS or float("inf")):
        raise ValueError(
            f"more than {Image.MAX_IMAGE_PIXELS} pixels, which is refused as a decompression bomb; cut it into tiles"
        )
    size = described.height * described.width * described.channels * described.dtype.itemsize
    if size > MOST_BYTES:
        raise ValueError(f"{size / 2**30:.3g} GiB of values, more than {MOST_BYTES >> 30} GiB; cut it into tiles")
    values = as_stored(data.read_bytes() if isinstance(data, Path) else data)
    if values.shape != (described.height, described.width, described.channels):
        raise ValueError(
            f"its header declares {[described.height, described.width, described.channels]} values, and it holds "
            f"{list(values.shape)}"
        )
    return values


def as_stored(raw: bytes) -> Picture:
    """Returns all channels [H, W, C] of a TIFF or .npy file: uint8, uint16, or float32 with NaN for missing values."""
    values = values_of_array(raw) if raw.startswith((b"\x93NUMPY", b"PK")) else values_of_tiff(raw)
    return np.ascontiguousarray(of_pictures(values))


def of_pictures(values: Any) -> Any:
    """Returns numbers of any type as pictures hold them: uint8, of booleans 0 and 255, uint16 or float32."""
    if values.dtype == np.bool_:
        return values.astype(np.uint8) * 255
    if values.dtype in (np.uint8, np.uint16):
        return values
    with np.errstate(over="ignore"):  # becomes infinite, which is missing, too
        return values.astype(np.float32)


def _first_bytes(file: Any) -> bytes:
    """Returns the header of a TIFF file: 8 bytes, or 16 of BigTIFF."""
    begin: bytes = file.read(16)
    return begin if b"+" in begin[2:4] else begin[:8]


def _describe_tiff(file: Any) -> BandFile | None:
    first = TiffImagePlugin.ImageFileDirectory_v2(_first_bytes(file))
    file.seek(first.next)
    first.load(file)
    tag = partial(_tag, first)
    width, height, samples = int(tag(256, 0)), int(tag(257, 0)), int(tag(277, 1))
    if width < 1 or height < 1 or samples < 1:
        return None  # damaged
    bits = {int(each) for each in _entries(first, 258) or (1,)}
    formats = {DTYPES.get(int(each)) for each in _entries(first, 339) or (1,)}
    text = tag(42113, None)
    dtype = None
    if len(bits) == len(formats) == 1 and None not in formats and bits <= {8, 16, 32, 64}:
        code = f"{formats.copy().pop()}{bits.copy().pop() // 8}"
        dtype = np.dtype(code) if code != "f1" else None
    photo = _is_photo(int(tag(262, 1)), samples, tuple(int(each) for each in _entries(first, 338)))
    described = tag(270, "")
    described = described if isinstance(described, str) else ""
    pages = _count_pages(file, first, (width, height))
    several = samples == 1 and pages > 1 and dtype is not None
    if several and (dtype != np.uint8 or described.startswith(("ImageJ=", "<?xml", '{"shape"'))):
        for what, pattern in SIZES.items():
            counts = [int(next(filter(None, each))) for each in re.findall(pattern, described, re.MULTILINE)]
            if max(counts, default=1) > 1:
                raise ValueError(
                    f"a stack of {max(counts)} {what}, which is not one image; save one file for each, with its channels"
                )
        photo, channels = False, pages
    else:
        channels = samples
    if dtype is None:
        if not photo:
            raise ValueError(
                f"its {samples} channels have {first_of(bits)} bits per value of type {first_of(formats)}; supported are "
                "8, 16, 32 and 64 bits, one type for all"
            )
        dtype = np.dtype(np.uint8)
    nodata = isinstance(text, str) and dtype != np.uint8
    return BandFile(height, width, channels, dtype, nodata, photo, pages)


def first_of(values: set[Any]) -> str:
    """Returns the values of a set for messages, unknown ones as "?"."""
    return ", ".join(sorted("?" if each is None else str(each) for each in values)[:4])


def _is_photo(photometric: int, samples: int, extra: tuple[int, ...]) -> bool:
    """Returns True if Pillow reads all that a TIFF page of this kind shows."""
    if photometric in PHOTO:
        return True
    colors = 3 if photometric == 2 else 1
    return samples == colors or (samples == colors + 1 and (extra in ALPHA or not extra))


def _tag(directory: Any, number: int, default: Any) -> Any:
    value = directory.get(number, default)
    return value[0] if isinstance(value, tuple) and value else value


def _entries(directory: Any, number: int) -> tuple[Any, ...]:
    value = directory.get(number, ())
    return value if isinstance(value, tuple) else (value,)


def _count_pages(file: Any, directory: Any, size: tuple[int, int]) -> int:
    """Returns the number of pages as large as the first, without reduced copies and masks; loads the next ``directory``."""
    count = 1
    seen: set[int] = set()
    while directory.next and directory.next not in seen and len(seen) < MOST_PAGES:
        seen.add(directory.next)
        file.seek(directory.next)
        directory.load(file)
        same = (_tag(directory, 256, 0), _tag(directory, 257, 0)) == size
        count += same and int(_tag(directory, 254, 0)) == 0
    return count


def values_of_tiff(raw: bytes) -> Any:
    """Returns the values [H, W, C] of a TIFF file, see the table above; raises ValueError for a stack."""
    try:
        import tifffile
    except ImportError:
        raise ValueError(
            "TIFF files of other than 1 or 3 channels need another library: pip install 'coulomb[bands]'"
        ) from None
    with tifffile.TiffFile(io.BytesIO(raw)) as file:
        series = file.series[0]
        pages = [page for page in series.pages if page is not None]
        for page in pages:
            ends = zip(page.dataoffsets, page.databytecounts, strict=True)
            if any(offset + count > len(raw) for offset, count in ends):
                raise ValueError("the file is truncated")
        try:
            values = series.asarray(maxworkers=1)
        except (KeyError, ValueError) as error:
            if "imagecodecs" not in str(error):
                raise
            codec = file.pages.first.compression
            raise ValueError(
                f"is compressed by {getattr(codec, 'name', codec)}, which needs another library: pip install imagecodecs"
            ) from None
        axes, tag = series.axes, file.pages.first.tags.get(42113)
    if tag is not None and values.dtype != np.uint8:
        try:
            missing = values == float(tag.value.strip("\0 "))
        except (ValueError, AttributeError):  # not a number
            missing = np.zeros(values.shape, bool)
        values = np.where(missing, np.nan, values.astype(np.float32))
    others = [axis for axis, length in zip(axes, values.shape, strict=True) if axis not in "YX" and length > 1]
    if len(others) > 1 or set(others) - set("SCIQ"):
        raise ValueError(
            f"a stack of {list(values.shape)} (axes {axes}), which is not one image; save one file for each"
        )
    keep = [axis for axis in axes if axis in "YX" or axis in others]
    values = values.reshape([values.shape[axes.index(axis)] for axis in keep])
    if not others:
        return values[..., None]
    return np.moveaxis(values, keep.index(others[0]), -1)


def _array_header(file: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"format {version} of the .npy data is not supported")
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(file)
    return shape, dtype


def _describe_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> BandFile:
    if dtype.kind not in "uifb":
        raise ValueError(f"an array of {dtype}; images are whole or real numbers")
    height, width, channels = (*shape, 1) if len(shape) == 2 else in_order(shape)
    if 0 in shape:
        raise ValueError(f"an array of shape {list(shape)} holds no pixels")
    return BandFile(height, width, channels, dtype, array=True)


def in_order(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Returns [H, W, C] for the shape of one image, whose channels are the shorter of the first and the last axis."""
    if len(shape) == 3:
        first, middle, last = shape
        if last <= MOST_CHANNELS and last < min(first, middle):
            return shape[0], shape[1], shape[2]
        if first <= MOST_CHANNELS and first < min(middle, last):
            return middle, last, first
    raise ValueError(
        f"an array of shape {list(shape)}; one image is [H, W], [H, W, C] or [C, H, W] with C up to {MOST_CHANNELS} and below "
        "both sides"
    )


def values_of_array(raw: bytes) -> Any:
    """Returns the values [H, W, C] of a .npy file, or of an .npz file with one array."""
    values = np.load(io.BytesIO(raw), allow_pickle=False)
    if not isinstance(values, np.ndarray):
        values = values[values.files[0]]
    if values.ndim == 2:
        return values[..., None]
    return values if in_order(values.shape) == values.shape else np.moveaxis(values, 0, -1)
