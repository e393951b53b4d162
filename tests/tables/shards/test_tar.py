import io
import tarfile

import numpy as np
import pytest

from benchmarks.streaming import write_tar
from coulomb.tables.shards.tar import list_tar
from shards_made import png


def listed(content: bytes, requests: list | None = None):
    def read(start, end):
        assert 0 <= start < end <= len(content) and end - start <= 2**20
        if requests is not None:
            requests.append((start, end))
        return content[start:end]

    return list_tar(read, len(content))


def tar_bytes(tmp_path, members) -> bytes:
    return write_tar(tmp_path / "made.tar", members).read_bytes()


def test_samples_are_members_with_a_common_stem(tmp_path):
    content = tar_bytes(
        tmp_path,
        [
            ("a/1.jpg", b"one"),
            ("a/1.cls", b"3\n"),
            ("a/1.json", b'{"breed": "cat", "age": 2, "tags": []}'),
            ("a/2.left.png", b"left"),
            ("a/2.right.png", b"right"),
            ("a/2.txt", "Größe".encode()),
            ("3.cls", b"1"),
        ],
    )
    found = listed(content)
    assert found.names == ["a/1.jpg", "a/2.left.png"] and found.damage is None
    assert [content[o : o + s] for o, s in zip(found.offsets, found.sizes)] == [b"one", b"left"]
    assert found.columns == {"cls": ["3", None], "breed": ["cat", None], "age": [2, None], "txt": [None, "Größe"]}
    assert found.skipped["further images of a sample"] == 1 and found.skipped["samples without an image"] == 1


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_names_of_both_formats_are_read(form):
    buffer, name = io.BytesIO(), "d" * 150 + "/" + "n" * 150 + ".png"
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        member = tarfile.TarInfo(name)
        member.size = 3
        archive.addfile(member, io.BytesIO(b"abc"))
    assert listed(buffer.getvalue()).names == [name]


def test_large_members_are_skipped_by_range_and_small_ones_come_together(tmp_path):
    requests: list = []
    small = tar_bytes(tmp_path, [(f"{i:04d}.{kind}", b"1") for i in range(200) for kind in ("png", "cls")])
    assert len(listed(small, requests).names) == 200 and len(requests) <= 7  # chunks of 16, 32, … KiB
    requests.clear()
    large = tar_bytes(tmp_path, [(f"{i}.png", bytes(2**20)) for i in range(4)])
    assert len(listed(large, requests).names) == 4
    assert sum(end - start for start, end in requests) < len(large) / 50 and len(requests) <= 12
    requests.clear()
    sample = [(f"{i}.{k}", bytes(2**17 if k == "jpg" else 4)) for i in range(20) for k in ("cls", "jpg", "json")]
    assert len(listed(tar_bytes(tmp_path, sample), requests).names) == 20 and len(requests) <= 20 + 4  # one per image


def test_hostile_names_and_links_are_skipped_and_counted(tmp_path):
    path = tmp_path / "hostile.tar"
    with tarfile.open(path, "w") as archive:
        for name in ("../../etc/x.png", "/etc/y.png", "a/../b.png", "fine.png"):
            member = tarfile.TarInfo(name)
            member.size = 1
            archive.addfile(member, io.BytesIO(b"1"))
        for kind, name in ((tarfile.SYMTYPE, "s.png"), (tarfile.LNKTYPE, "h.png"), (tarfile.CHRTYPE, "c.png")):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
        folder = tarfile.TarInfo("folder.png")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    found = listed(path.read_bytes())
    assert found.names == ["fine.png"] and found.damage is None
    assert found.skipped["members with a name that is absolute or contains .."] == 3
    assert found.skipped["links, devices or sparse files"] == 3


def test_a_repeated_name_is_skipped_and_counted(tmp_path):
    found = listed(tar_bytes(tmp_path, [("a.png", b"1"), ("b.png", b"2"), ("a.png", b"3")]))
    assert found.names == ["a.png", "b.png"] and found.skipped["samples with the name of an earlier one"] == 1


def test_labels_that_cannot_be_read_are_counted(tmp_path):
    members = [
        ("a.png", b"1"),
        ("a.json", b"{"),
        ("b.png", b"1"),
        ("b.txt", b"\xff"),
        ("c.png", b"1"),
        ("c.cls", bytes(2**17)),
    ]
    found = listed(tar_bytes(tmp_path, [*members, ("d.png", b"1"), ("d.txt", b"x" * 20_000)]))
    assert found.names == ["a.png", "b.png", "c.png", "d.png"] and not any(map(any, found.columns.values()))
    assert found.skipped[".json members that cannot be read"] == found.skipped[".txt members that cannot be read"] == 1
    assert found.skipped[".cls members above 64 KiB"] == found.skipped["values of more than 16384 characters"] == 1


def test_a_tar_cut_at_any_byte_keeps_what_is_complete_and_says_where_it_ends(tmp_path):
    members = [(f"{i}.png", png(i)) for i in range(3)]
    whole = tar_bytes(tmp_path, members)
    complete = listed(whole)
    used = complete.offsets[-1] + (complete.sizes[-1] + 511) // 512 * 512
    for cut in [*range(0, used, 97), used]:
        found = listed(whole[:cut])
        assert found.damage and found.names == complete.names[: len(found.names)]
        assert all(o + s <= cut for o, s in zip(found.offsets, found.sizes))


def test_a_damaged_header_is_reported_not_taken_for_the_end(tmp_path):
    content = bytearray(tar_bytes(tmp_path, [("a.png", b"1"), ("b.png", b"2"), ("c.png", b"3")]))
    content[1024 + 5] ^= 0xFF  # in the header of b
    found = listed(bytes(content))
    assert found.names == ["a.png"] and "no valid header at byte 1024" in found.damage


@pytest.mark.parametrize("size", [b"77777777777\0", b"\x80" + b"\0" * 3 + b"\xff" * 8, b"\xff" * 12, b"-1\0", b"zz\0"])
def test_absurd_sizes_in_headers_end_the_listing(tmp_path, size):
    content = bytearray(tar_bytes(tmp_path, [("a.png", b"1"), ("b.png", b"2")]))
    head = content[1024:1536]
    head[124 : 124 + len(size)] = size
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    content[1024:1536] = head
    found = listed(bytes(content))
    assert found.names == ["a.png"] and found.damage


def test_a_header_that_declares_gigabytes_is_refused():
    buffer = io.BytesIO()
    member = tarfile.TarInfo("././@LongLink")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 2**30
    buffer.write(member.tobuf() + bytes(4096))
    assert "header of" in listed(buffer.getvalue()).damage


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b" + bytes(600), b"not a tar" * 200, bytes(300)])
def test_other_files_are_damaged(content):
    found = listed(content) if content else list_tar(lambda a, b: b"", 0)
    assert not found.names and found.damage


def test_noise_never_raises(tmp_path):
    whole = tar_bytes(tmp_path, [(f"{i}.{kind}", png(i)[:40]) for i in range(6) for kind in ("png", "json", "cls")])
    for seed in range(300):
        draw = np.random.default_rng(seed)
        content = bytearray(whole)
        for place in draw.integers(0, len(whole), 8):
            content[place] = draw.integers(256)
        found = listed(bytes(content))
        assert all(0 <= o <= o + s <= len(whole) for o, s in zip(found.offsets, found.sizes))
