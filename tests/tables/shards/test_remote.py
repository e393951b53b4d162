"""Servers that send something else than the requested bytes, or send them too slowly."""

import contextlib
import gzip
import time

import pytest

from coulomb.ground.errors import DataUnavailableError
from coulomb.tables.shards import remote
from coulomb.tables.shards.remote import Stamp, forget_listings, list_matches, read_range, stamp
from range_server import range_server

CONTENT = bytes(range(256)) * 256
BEFORE = Stamp(len(CONTENT), "v")


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.001)
    (tmp_path / "a.tar").write_bytes(CONTENT)
    with range_server(tmp_path) as started:
        yield started


@pytest.fixture
def url(server):
    return f"{server.address}/a.tar"


def reply(handler, start, end, content, *, length=None, headers=()):
    """Sends the headers of a right reply, apart from what is given."""
    handler.send_response(206)
    handler.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(content)}")
    handler.send_header("ETag", "v")
    if length is not False:
        handler.send_header("Content-Length", str(end - start if length is None else length))
    for name, value in headers:
        handler.send_header(name, value)
    handler.end_headers()
    handler.close_connection = True


def send(handler, pieces):
    """Sends pieces until the client hangs up; returns the number of bytes that went out."""
    sent = 0
    with contextlib.suppress(OSError):
        for piece in pieces:
            handler.wfile.write(piece)
            sent += len(piece)
    return sent


def test_other_bytes_than_the_requested_ones_are_refused(server, url):
    def other_place(handler, start, end, content):
        reply(handler, 0, end - start, content)
        handler.wfile.write(content[: end - start])

    server.answer = other_place
    assert read_range(url, 0, 300, BEFORE) == CONTENT[:300]
    with pytest.raises(DataUnavailableError, match="bytes 0 to 299 arrived instead of 700 to 999"):
        read_range(url, 700, 1000, BEFORE)


@pytest.mark.parametrize("place", ["bytes 0-9", "bytes */65536", "bytes 0-9/*", "0-9/65536", "bytes ٠-٩/٦", ""])
def test_a_reply_that_does_not_say_which_bytes_it_sends_is_refused(server, url, place):
    def without(handler, start, end, content):
        handler.send_response(206)
        handler.send_header("Content-Length", "10")
        handler.wfile.write(b"".join(handler._headers_buffer) + f"Content-Range: {place}\r\n\r\n".encode())
        handler.wfile.write(content[:10])

    server.answer = without
    with pytest.raises(DataUnavailableError, match="does not say which bytes it sends"):
        read_range(url, 0, 10, BEFORE)


@pytest.mark.parametrize("length", [150 * 2**20, False])
def test_of_a_longer_reply_no_more_than_the_range_is_read(server, url, monkeypatch, length):
    monkeypatch.setattr(remote, "ATTEMPTS", 1)
    sent = []

    def endless(handler, start, end, content):
        reply(handler, start, end, content, length=length)
        sent.append(send(handler, (bytes(2**16) for _ in range(150 * 16))))

    server.answer = endless
    with pytest.raises(DataUnavailableError, match=r"more than 16384 bytes arrived|a reply of 157286400 bytes"):
        read_range(url, 0, 2**14, BEFORE)
    deadline = time.monotonic() + 10
    while not sent and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sent[0] < 16 * 2**20  # what fits into the buffers of both sockets


def test_a_compressed_reply_is_refused_and_not_expanded(server, url):
    bomb = gzip.compress(bytes(50 * 2**20))
    sizes = []

    def compressed(handler, start, end, content):
        reply(handler, start, end, content, length=len(bomb), headers=[("Content-Encoding", "gzip")])
        sizes.append(send(handler, [bomb]))

    server.answer = compressed
    with pytest.raises(DataUnavailableError, match=r"encodes byte ranges \(gzip\), unasked; download the shards"):
        read_range(url, 0, len(bomb), BEFORE)
    assert len(server.requests) == 1


@pytest.mark.parametrize("drips", ["headers", "body", "body without a length"])
def test_a_reply_of_a_few_bytes_a_second_is_given_up(server, url, monkeypatch, drips):
    monkeypatch.setattr(remote, "ATTEMPTS", 2)
    monkeypatch.setattr(remote, "SILENCE", 0.3)

    def slow(handler, start, end, content):
        if drips == "headers":
            pieces = [b"HTTP/1.1 206 x\r\n", *([b"x", b":", b"\r\n"] * 1000)]
        else:
            reply(handler, start, end, content, length=None if drips == "body" else False)
            pieces = [b"ab"] * 3000
        for piece in pieces:
            if not send(handler, [piece]):
                return
            handler.wfile.flush()
            time.sleep(0.02)

    server.answer = slow
    begun = time.monotonic()
    with pytest.raises(
        DataUnavailableError, match=r"after 2 attempts \((no reply within|\d+ of 50000 bytes arrived, the last)"
    ):
        read_range(url, 0, 50_000, BEFORE)
    assert time.monotonic() - begun < 10


def test_a_body_that_is_slow_but_moves_is_read(server, url, monkeypatch):
    monkeypatch.setattr(remote, "SILENCE", 0.5)

    def steady(handler, start, end, content):
        reply(handler, start, end, content)
        for place in range(start, end, 2**13):
            time.sleep(0.15)
            handler.wfile.write(content[place : min(place + 2**13, end)])

    server.answer = steady
    begun = time.monotonic()
    assert read_range(url, 0, len(CONTENT), BEFORE) == CONTENT
    assert time.monotonic() - begun > 2 * 0.5


def test_a_file_without_a_version_gets_a_new_one_each_time(server, url):
    server.versions["a.tar"] = None
    first, second = stamp(url), stamp(url)
    assert first.size == second.size == len(CONTENT) and first != second
    assert not first.versioned and first.fits(second) and not first.fits(Stamp(1, second.version))
    assert not first.fits(Stamp(first.size, "v")) and not Stamp(first.size, "v").fits(first)
    assert read_range(url, 5, 9, first) == CONTENT[5:9]
    server.versions["a.tar"] = '"v"'
    with pytest.raises(DataUnavailableError, match="changed while it was being read"):
        read_range(url, 5, 9, first)


def test_listings_that_fsspec_keeps_are_forgotten(monkeypatch):
    from fsspec.implementations.memory import MemoryFileSystem

    class Listing(MemoryFileSystem):
        cachable = False

        def info(self, path, **options):
            return kept.setdefault(path, super().info(path, **options))

        def invalidate_cache(self, path=None):
            kept.clear()

    kept: dict = {}
    files = Listing()
    monkeypatch.setattr(remote, "file_system", lambda url: files)
    files.pipe_file("/listings/x.tar", b"1")
    before = stamp("memory://listings/x.tar")
    files.pipe_file("/listings/x.tar", b"22")
    assert stamp("memory://listings/x.tar") == before
    forget_listings("memory://listings/x.tar")
    assert stamp("memory://listings/x.tar").size == 2 and list_matches("memory://listings/*") == [
        "memory:///listings/x.tar"
    ]
