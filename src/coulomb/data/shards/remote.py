"""Reads byte ranges of remote files through fsspec, with retries; local files have the same interface in `local`."""

import importlib
import logging
import os
import re
import time
from typing import Any, NamedTuple

from coulomb.data.source import visible
from coulomb.errors import InputError

log = logging.getLogger("coulomb")

ATTEMPTS = 8  # with pauses of 0.25, 0.5, 1, … 16 seconds between them: half a minute in total
FIRST_PAUSE = 0.25  # seconds
SILENCE = 30.0  # seconds without a byte after which a request has failed
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://(?!.*::)", re.IGNORECASE)
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


class Stamp(NamedTuple):
    """Size of a file in bytes and its version: ETag, time of the last change, or what else its server has."""

    size: int
    version: str


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
        InputError: the file does not exist, is not accessible, or its server does not serve ranges.
    """
    files = file_system(url)

    def ask() -> Stamp:
        if scheme(url) in ("http", "https"):
            return _http_range(files, url, 0, 1, None)[1]
        info = files.info(url)
        keys = ("ETag", "etag", "LastModified", "last_modified", "mtime", "blob_id", "created")
        version = next((str(info[key]) for key in keys if info.get(key) is not None), "")
        if info.get("type") == "directory" or info.get("size") is None:
            raise _Permanent("is not a file")
        return Stamp(int(info["size"]), version)

    return attempt(url, ask)


def read_range(url: str, start: int, end: int, expected: Stamp) -> bytes:
    """Returns the bytes ``start`` … ``end`` − 1 of a remote file.

    Raises:
        InputError: they cannot be read after all attempts, or the file is no longer the ``expected`` one.
    """
    files = file_system(url)

    def ask() -> bytes:
        if scheme(url) in ("http", "https"):
            data, now = _http_range(files, url, start, end, expected)
            if now != expected:
                raise _Permanent("changed while it was being read; start again with the new file")
        else:
            data = files.cat_file(url, start=start, end=end)
        if len(data) != end - start:
            raise OSError(f"{len(data)} of {end - start} bytes arrived")
        return data

    return attempt(url, ask)


def attempt(url: str, ask: Any) -> Any:
    """Calls ``ask`` until it succeeds, at most `ATTEMPTS` times with growing pauses, then raises `InputError`."""
    pause = FIRST_PAUSE
    for number in range(1, ATTEMPTS + 1):
        try:
            return ask()
        except InputError:
            raise
        except _Permanent as error:
            raise InputError(f"{visible(url)}: {error}") from None
        except FileNotFoundError:
            raise InputError(f"{visible(url)}: no such file; check the address") from None
        except PermissionError:
            raise InputError(f"{visible(url)}: permission denied; check the address and your credentials") from None
        except Exception as error:  # every file system has its own errors of the network
            reason = visible(str(error) or type(error).__name__, 160)
            if number == ATTEMPTS:
                raise InputError(
                    f"{visible(url)}: cannot be read after {ATTEMPTS} attempts ({reason}); check the network, then "
                    "run the command again, or resume the run"
                ) from None
            log.warning("%s: attempt %d of %d failed (%s)", visible(url), number, ATTEMPTS, reason)
        time.sleep(pause * (1 + (os.getpid() % 16) / 64))  # processes that failed together do not all return together
        pause *= 2
    raise AssertionError


def _http_range(files: Any, url: str, start: int, end: int, expected: Stamp | None) -> tuple[bytes, Stamp]:
    """Reads a range by HTTP; refuses a server that sends the whole file, before its body is read."""
    import aiohttp
    from fsspec.asyn import sync

    async def ask() -> tuple[bytes, Stamp]:
        session = await files.set_session()
        limit = aiohttp.ClientTimeout(total=None, sock_connect=SILENCE, sock_read=SILENCE)
        headers = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        async with session.get(files.encode_url(url), headers=headers, timeout=limit) as reply:
            if reply.status in (404, 410):
                raise FileNotFoundError(url)
            if reply.status in (401, 403):
                raise PermissionError(url)
            if reply.status == 416:
                raise _Permanent("is empty" if expected is None else "changed while it was being read; start again")
            if reply.status == 200:
                reply.close()
                raise _Permanent("its server does not serve byte ranges; download the shards and give their paths")
            if reply.status != 206:
                raise OSError(f"HTTP status {reply.status}")
            total = reply.headers.get("Content-Range", "").rpartition("/")[2]
            if not total.isdigit():
                raise _Permanent("its server does not say how large it is; download the shards and give their paths")
            version = reply.headers.get("ETag") or reply.headers.get("Last-Modified") or ""
            return await reply.read(), Stamp(int(total), version)

    return sync(files.loop, ask)
