import io
import tarfile
import time

import numpy as np
import pytest

from coulomb.tables.shards.headers import BLOCK, MOST_CHAINED, Chunks, Damage, members
from coulomb.tables.shards.tar import list_tar


def parsed(content: bytes):
    """Members and the damage, if any."""
    found = []
    try:
        for member in members(Chunks(lambda start, end: content[start:end], len(content))):
            found.append(member)
    except Damage as damage:
        return found, str(damage)
    return found, None


def header(kind: bytes, content: bytes = b"", name: str = "x") -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, len(content)
    return member.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % BLOCK)


def record(key: str, value: str) -> bytes:
    text = f" {key}={value}\n".encode()
    length = len(text) + 1
    while len(str(length)) + len(text) != length:
        length = len(str(length)) + len(text)
    return str(length).encode() + text


FILE = header(b"0", b"abc", "a.png") + bytes(2 * BLOCK)


def written(draw, form) -> bytes:
    """A tar file of random members, by tarfile."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form, encoding="utf-8") as archive:
        if form == tarfile.PAX_FORMAT:
            archive.pax_headers = {"comment": "made by a test"}
        for number in range(6):
            folder = "d" * int(draw.choice([0, 1, 60, 120])) or "."
            member = tarfile.TarInfo(f"{folder}/{'ü' * int(draw.choice([0, 1, 70]))}{number}.png")
            member.type = draw.choice(
                [tarfile.REGTYPE, tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE]
            )
            member.linkname = (
                "t" * int(draw.choice([1, 150])) if member.type in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
            )
            member.size = int(draw.integers(0, 1500)) if member.type == tarfile.REGTYPE else 0
            try:
                archive.addfile(member, io.BytesIO(bytes(member.size)))
            except ValueError:  # a name that ustar cannot hold
                continue
    return buffer.getvalue()


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_equal_those_of_tarfile(form):
    for seed in range(60):
        content = written(np.random.default_rng(seed), form)
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            expected = [(each.name, each.type, each.offset_data, each.size) for each in archive]
        found, damage = parsed(content)
        assert damage is None and [(each.name, each.kind, each.offset, each.size) for each in found] == expected


def test_noise_gives_a_member_inside_the_file_or_damage():
    whole = written(np.random.default_rng(0), tarfile.PAX_FORMAT)
    for seed in range(400):
        draw = np.random.default_rng(seed)
        content = bytearray(whole)
        start = int(draw.integers(0, len(whole) // BLOCK)) * BLOCK
        for place in draw.integers(start, start + BLOCK, 3):
            content[place] = draw.integers(256)
        if seed % 2:  # with a right checksum
            content[start + 148 : start + 156] = b" " * 8
            content[start + 148 : start + 156] = b"%06o\0 " % sum(content[start : start + BLOCK])
        found, _ = parsed(bytes(content))
        assert all(BLOCK <= each.offset <= each.offset + each.size <= len(content) for each in found)


@pytest.mark.parametrize("kind", [b"L", b"K", b"x", b"g", b"X"])
def test_chained_headers_have_a_limit(kind):
    content = header(kind, b"name\0" if kind in b"LK" else record("comment", "c"))
    assert parsed(content * 8 + FILE)[1] is None
    for count in (MOST_CHAINED + 1, 5000):
        found, damage = parsed(content * count + FILE)
        assert not found and "more than 64 headers before one member at byte 0" in damage
    mixed = header(b"L", b"l\0") + header(b"x", record("path", "p")) + header(b"g", b"")
    assert "more than 64" in parsed(mixed * 2000 + FILE)[1]


def test_the_headers_of_one_member_have_a_limit_in_bytes():
    content = header(b"g", bytes(2**18))
    assert parsed(content * 3 + FILE)[1] is None and "a header of" in parsed(content * 5 + FILE)[1]
    extended = bytearray(header(b"S", b"abc", "s.png"))
    extended[482] = 1
    extended[148:156] = b" " * 8
    extended[148:156] = b"%06o\0 " % sum(extended[:BLOCK])
    more = bytearray(BLOCK)
    more[504] = 1
    assert "a header of more than" in parsed(bytes(extended[:BLOCK]) + bytes(more) * 2100)[1]
    assert "unexpected end" in parsed(bytes(extended[:BLOCK]) + bytes(more) * 10)[1]


@pytest.mark.parametrize(
    "content", [b"1" * 2**20, b"1 a=" * 2**18, b"9" * 19 + b" a=b\n", b"3 =\n" * 2**17, b"-5 a=b\n"]
)
def test_a_hostile_pax_header_is_read_in_linear_time(content):
    begun = time.perf_counter()
    parsed(header(b"x", content[: 2**20 - 2 * BLOCK]) + FILE)
    assert time.perf_counter() - begun < 2


@pytest.mark.parametrize("size", ["-1", "1e3", "9" * 19, "", "٣"])
def test_a_wrong_size_in_a_pax_header_is_damage(size):
    assert "the size" in parsed(header(b"x", record("size", size)) + FILE)[1]


def sparse(version: str) -> bytes:
    """A sparse file of 1 MiB with 3 + 4 bytes stored, as GNU tar writes it, and a plain file after it."""
    end = 2**20
    if version == "old":
        block = bytearray(header(b"S", bytes(2 * BLOCK), "s.png"))
        block[386 : 386 + 48] = b"%011o\0%011o\0%011o\0%011o\0" % (0, BLOCK, end - BLOCK, BLOCK)
        block[483:495] = b"%011o\0" % end
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block[:BLOCK])
        return bytes(block) + FILE
    pax = {
        "0.0": record("GNU.sparse.size", str(end)) + record("GNU.sparse.numblocks", "1") + record("GNU.sparse.offset", "0")
        + record("GNU.sparse.numbytes", "3"),
        "0.1": record("GNU.sparse.name", "s.png") + record("GNU.sparse.size", str(end)) + record("GNU.sparse.map", "0,3"),
        "1.0": record("GNU.sparse.major", "1") + record("GNU.sparse.minor", "0") + record("GNU.sparse.name", "s.png")
        + record("GNU.sparse.realsize", str(end)),
    }[version]  # fmt: skip
    stored = b"1\n0\n3\n".ljust(BLOCK, b"\0") + b"abc" if version == "1.0" else b"abc"
    return header(b"x", pax) + header(b"0", stored, "GNUSparseFile.0/s.png") + FILE


@pytest.mark.parametrize("version", ["old", "0.0", "0.1", "1.0"])
def test_after_a_sparse_file_the_listing_goes_on(version):
    content = sparse(version)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert [each.size for each in archive] == [2**20, 3]  # it is a valid archive
    listing = list_tar(lambda start, end: content[start:end], len(content))
    assert listing.names == ["a.png"] and listing.damage is None
    assert content[listing.offsets[0] :][:3] == b"abc" and listing.skipped["links, devices or sparse files"] == 1
