"""Reads byte ranges of remote files through fsspec, with retries and limits; `store` reads local files."""

import asyncio
import importlib
import logging
import os
import re
import time
import uuid
from typing import Any, NamedTuple

from coulomb.ground.errors import DataUnavailableError, InputError
from coulomb.ground.text import visible

log = logging.getLogger("coulomb")

ATTEMPTS = 8  # with pauses of 0.25, 0.5, 1, … 16 seconds between them: half a minute in total
FIRST_PAUSE = 0.25  # seconds
SILENCE = 30.0  # seconds in which a reply must begin, and then progress by `PROGRESS` or end
PROGRESS = 2**14  # bytes
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://(?!.*::)", re.IGNORECASE)
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")
_LIBRARIES = {  # module and pip name by scheme
    "http": ("aiohttp", "aiohttp"),
    "https": ("aiohttp", "aiohttp"),
    "s3": ("s3fs", "s3fs"),
    "gs": ("gcsfs", "gcsfs"),
    "az": ("adlfs", "adlfs"),
    "hf": ("huggingface_hub", "huggingface_hub"),
    "memory": ("fsspec", "fsspec"),  # within one process, for tests
}


def scheme(text: str) -> str | None:
    """Returns the scheme of a URL in lower case (``https``, ``s3``, ``hf``); None for a path."""
    match = _SCHEME.match(text)
    return match[1].lower() if match else None


UNVERSIONED = "unversioned-"


class Stamp(NamedTuple):
    """Size of a file in bytes and its version: ETag, time of the last change, or what else its server has.

    If the server has nothing, the version is a new name, so that what is saved under it is not used when the file is opened
    again: it may have changed.
    """

    size: int
    version: str

    @property
    def versioned(self) -> bool:
        """Whether a change of the file that keeps its size would be noticed."""
        return not self.version.startswith(UNVERSIONED)

    def fits(self, now: "Stamp") -> bool:
        """Returns True unless ``now`` shows that the file has changed."""
        known = self.versioned or now.versioned
        return self.size == now.size and (self.version == now.version or not known)


def _stamp(size: int, version: str | None) -> Stamp:
    return Stamp(size, version or UNVERSIONED + uuid.uuid4().hex)


class _Permanent(Exception):
    """A failure that another attempt does not change; the text is the end of the message."""


_file_systems: dict[tuple[int, str], Any] = {}  # by process: connections do not survive a fork


def file_system(url: str) -> Any:
    """Returns the fsspec file system of a URL. Raises `InputError` if the scheme is unknown or its library is missing."""
    kind = scheme(url) or ""
    if kind not in _LIBRARIES:
        known = ", ".join(f"{name}://" for name in _LIBRARIES if name != "memory")
        raise InputError(f"data={visible(url)!r}: {kind}:// cannot be read; supported are {known} and local paths")
    key = (os.getpid(), "http" if kind == "https" else kind)
    if key not in _file_systems:
        module, package = _LIBRARIES[kind]
        try:
            import fsspec

            importlib.import_module(module)
        except ImportError:
            raise InputError(
                f"data={visible(url)!r}: {kind}:// needs the package {package}; install it with: pip install fsspec {package}"
            ) from None
        _file_systems[key] = fsspec.filesystem(kind)
    return _file_systems[key]


def list_matches(pattern: str) -> list[str]:
    """Returns the URLs that match a pattern with ``*``."""
    files = file_system(pattern)
    return [files.unstrip_protocol(match) for match in attempt(pattern, lambda: files.glob(pattern))]


def stamp(url: str) -> Stamp:
    """Returns size and version of a remote file.

    Raises:
        DataUnavailableError: the file does not exist, is not accessible, or its server does not serve ranges.
    """
    files = file_system(url)

    def ask() -> Stamp:
        if scheme(url) in ("http", "https"):
            return _http_range(files, url, 0, 1, None)[1]
        info = files.info(url)
        keys = ("ETag", "etag", "LastModified", "last_modified", "mtime", "blob_id", "created")
        version = next((str(info[key]) for key in keys if info.get(key) is not None), None)
        if info.get("type") == "directory" or info.get("size") is None:
            raise _Permanent("is not a file")
        return _stamp(int(info["size"]), version)

    return attempt(url, ask)


def forget_listings(url: str, *, everything: bool = False) -> None:
    """Makes `stamp` ask the server again: fsspec keeps listings, with the versions of that time.

    ``everything``: also `list_matches`, and for all files of this kind of server.
    """
    file_system(url).invalidate_cache(None if everything else url)


def read_range(url: str, start: int, end: int, expected: Stamp) -> bytes:
    """Returns the bytes ``start`` … ``end`` − 1 of a remote file.

    Raises:
        DataUnavailableError: they cannot be read after all attempts, or the file is no longer the ``expected`` one.
    """
    files = file_system(url)

    def ask() -> bytes:
        if scheme(url) in ("http", "https"):
            return _http_range(files, url, start, end, expected)[0]
        data: bytes = files.cat_file(url, start=start, end=end)
        if len(data) != end - start:
            raise OSError(f"{len(data)} of {end - start} bytes arrived")
        return data

    return attempt(url, ask)


def attempt(url: str, ask: Any) -> Any:
    """Calls ``ask`` until it succeeds, at most `ATTEMPTS` times with growing pauses, then raises `DataUnavailableError`."""
    pause = FIRST_PAUSE
    for number in range(1, ATTEMPTS + 1):
        try:
            return ask()
        except InputError:
            raise
        except _Permanent as error:
            raise DataUnavailableError(f"{visible(url)}: {error}") from None
        except FileNotFoundError:
            raise DataUnavailableError(f"{visible(url)}: no such file; check the address") from None
        except PermissionError:
            raise DataUnavailableError(
                f"{visible(url)}: permission denied; check the address and your credentials"
            ) from None
        except Exception as error:  # every file system has its own errors of the network
            reason = visible(str(error) or type(error).__name__, 160)
            if number == ATTEMPTS:
                raise DataUnavailableError(
                    f"{visible(url)}: cannot be read after {ATTEMPTS} attempts ({reason}); check the network, then "
                    "run the command again, or resume the run"
                ) from None
            log.warning("%s: attempt %d of %d failed (%s)", visible(url), number, ATTEMPTS, reason)
        time.sleep(pause * (1 + (os.getpid() % 16) / 64))  # processes that failed together do not all return together
        pause *= 2
    raise AssertionError


CHANGED = "changed while it was being read; start again with the new file"
_DOWNLOAD = "download the shards and give their paths"


def _http_range(files: Any, url: str, start: int, end: int, expected: Stamp | None) -> tuple[bytes, Stamp]:
    """Reads a range by HTTP. Another reply than the requested bytes is refused before its body is read."""
    import aiohttp
    from fsspec.asyn import sync

    async def ask() -> tuple[bytes, Stamp]:
        session = await files.set_session()
        limit = aiohttp.ClientTimeout(total=None, sock_connect=SILENCE, sock_read=SILENCE)
        headers = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        try:
            async with asyncio.timeout(2 * SILENCE):  # to connect, and for the headers
                reply = await session.get(files.encode_url(url), headers=headers, timeout=limit, auto_decompress=False)
        except TimeoutError:
            raise OSError(f"no reply within {2 * SILENCE:g} seconds") from None
        try:
            now = _checked(reply, url, start, end, expected)
            return await _body(reply.content, end - start), now
        except BaseException:
            reply.close()  # what else it sends is not read
            raise
        finally:
            reply.release()

    return sync(files.loop, ask)


def _checked(reply: Any, url: str, start: int, end: int, expected: Stamp | None) -> Stamp:
    """Returns the stamp in the headers of a reply; raises an error unless its body is the requested range."""
    if reply.status in (404, 410):
        raise FileNotFoundError(url)
    if reply.status in (401, 403):
        raise PermissionError(url)
    if reply.status == 416:
        raise _Permanent("is empty" if expected is None else CHANGED)
    if reply.status == 200:
        raise _Permanent(f"its server does not serve byte ranges; {_DOWNLOAD}")
    if reply.status != 206:
        raise OSError(f"HTTP status {reply.status}")
    if (encoding := reply.headers.get("Content-Encoding", "identity")) != "identity":
        raise _Permanent(f"its server encodes byte ranges ({visible(encoding, 20)}), unasked; {_DOWNLOAD}")
    sent = _CONTENT_RANGE.fullmatch(reply.headers.get("Content-Range", ""))
    if sent is None:
        raise _Permanent(f"its server does not say which bytes it sends, and how large the file is; {_DOWNLOAD}")
    first, last, size = map(int, sent.groups())
    now = _stamp(size, reply.headers.get("ETag") or reply.headers.get("Last-Modified"))
    if expected is not None and not expected.fits(now):
        raise _Permanent(CHANGED)
    if (first, last) != (start, end - 1):
        raise OSError(f"bytes {first} to {last} arrived instead of {start} to {end - 1}")
    if reply.content_length not in (None, end - start):
        raise OSError(f"a reply of {reply.content_length} bytes instead of {end - start}")
    return now


async def _body(content: Any, size: int) -> bytes:
    """Returns a body of ``size`` bytes. Raises OSError if it is shorter, longer, or too slow."""
    parts: list[bytes] = []
    arrived, ended = 0, False
    while not ended:
        goal = min(arrived + PROGRESS, size + 1)
        try:
            async with asyncio.timeout(SILENCE):
                while arrived < goal and not ended:
                    parts.append(await content.readany())
                    arrived, ended = arrived + len(parts[-1]), not parts[-1]
        except TimeoutError:
            raise OSError(f"{arrived} of {size} bytes arrived, the last of them too slowly") from None
        if arrived > size:
            raise OSError(f"more than {size} bytes arrived")
    if arrived < size:
        raise OSError(f"{arrived} of {size} bytes arrived")
    return b"".join(parts)
