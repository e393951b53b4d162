import errno
import io
import json
import os
import pickle
import tarfile
import time

import numpy as np
import pytest
from PIL import Image

from benchmarks.streaming import write_tar
from coulomb.ground.errors import DataUnavailableError, InputError
from coulomb.tables import image_samples, open_source
from coulomb.tables.columns import open_columns
from coulomb.tables.shards import ahead, blocks, remote, table
from coulomb.tables.shards.ahead import reading_ahead
from coulomb.tables.shards.store import find_stamp
from coulomb.tables.shards.tar import Listing, list_tar
from coulomb.tables.sources import tar
from coulomb.training.order import RunLoader, RunOrder
from range_server import range_server
from shards_made import make_shards, png

pytestmark = pytest.mark.usefixtures("cache")

NAMES = "train-{0000..0003}.tar"


@pytest.fixture
def shards(tmp_path):
    return make_shards(tmp_path / "shards")


@pytest.fixture
def server(shards):
    with range_server(shards) as started:
        yield started


def small_blocks(source, block=1500, window=6000):
    """Gives a source of few images many blocks."""
    shard = source.blocks.shard[source.blocks.of]
    cut = blocks.cut_blocks(shard, source.offsets, source.sizes, block)
    source.blocks = blocks.Blocks(cut.of, cut.shard, cut.start, cut.end, window)
    return source


def contents(source):
    return [source.content(index) for index in range(len(source))]


def test_local_shards_have_the_images_ids_and_labels_of_their_members(shards):
    source = open_source(f"{shards}/{NAMES}")
    assert len(source) == 100 and source.kind == "tar" and source.name == "train" and not source.remote
    assert contents(source) == [png(number) for number in range(100)]
    assert source.item_id(0) == "train-0000.tar/00000.png" and source.item_id(99) == "train-0003.tar/00099.png"
    assert source.labels.tolist() == [number * 5 // 100 for number in range(100)]
    assert contents(pickle.loads(pickle.dumps(source))) == contents(source)
    for same in (f"{shards}/train-*.tar", str(shards)):
        assert (open_source(same).labels == source.labels).all()
    assert len(open_source(f"{shards}/train-0001.tar")) == 25


def test_remote_shards_equal_local_ones(shards, server):
    local, far = open_source(f"{shards}/{NAMES}"), open_source(f"{server.address}/{NAMES}")
    assert far.remote and contents(far) == contents(local)
    assert (far.labels == local.labels).all() and [far.item_id(i) for i in range(100)] == [
        local.item_id(i) for i in range(100)
    ]
    before = len(server.requests)
    assert contents(far) == contents(local) and len(server.requests) == before  # from the cache
    again = open_source(f"{server.address}/{NAMES}")
    assert len(server.requests) - before == 4 and contents(again) == contents(local)  # one stamp per shard


def test_other_file_systems_are_read_through_fsspec(shards):
    fsspec = pytest.importorskip("fsspec")
    files = fsspec.filesystem("memory")
    for path in shards.glob("*.tar"):
        files.pipe_file(f"/bucket/{path.name}", path.read_bytes())
    far = open_source("memory://bucket/train-*.tar")
    assert contents(far) == contents(open_source(f"{shards}/{NAMES}")) and far.remote
    with pytest.raises(InputError, match="none.tar: no such file"):
        open_source("memory://bucket/none.tar")
    with pytest.raises(InputError, match="no file matches"):
        open_source("memory://bucket/none*.tar")


@pytest.fixture
def large(tmp_path):
    """A shard whose table takes several requests, and its server."""
    make_shards(tmp_path / "large", shards=1, images=40, side=64)
    with range_server(tmp_path / "large") as started:
        yield started, tmp_path / "large" / "train-0000.tar"


def tables(*folders):
    return [each.name for folder in folders for each in folder.rglob("*.npz")]


def fail_from(server, request, how):
    """Lets the server fail from this request on."""

    class Fails(dict):
        def get(self, name, default=None):
            return how if len(server.requests) >= request else default

    server.broken = Fails()


@pytest.mark.parametrize("how", [500, "cut", 403, 404, 416, "changed", "shorter"])
def test_a_table_that_an_error_of_reading_made_short_is_not_saved(large, cache, monkeypatch, how):
    server, path = large
    monkeypatch.setattr(remote, "ATTEMPTS", 2)
    ordinary = server.versions
    if isinstance(how, int) or how == "cut":
        fail_from(server, 3, how)
    else:

        class Versions(dict):
            def get(self, name, default=None):
                if len(server.requests) >= 3 and how == "shorter":
                    path.write_bytes(path.read_bytes()[:-1024])
                return '"other"' if len(server.requests) >= 3 else default

        server.versions = Versions()
    with pytest.raises(DataUnavailableError, match="train-0000.tar: "):
        open_source(f"{server.address}/train-0000.tar")
    assert not tables(cache)
    server.broken, server.versions = {}, ordinary
    far = open_source(f"{server.address}/train-0000.tar")
    assert len(far) == 40 and not far.notes and far.content(39) == png(39, 64)


@pytest.mark.parametrize("how", ["fails", "short", "changed"])
def test_a_table_of_a_local_shard_on_a_failing_disk_is_not_saved(large, cache, monkeypatch, how):
    _, path = large
    calls, right = [], os.pread

    def pread(file, count, offset):
        calls.append(offset)
        if len(calls) > 2 and how == "fails":
            raise OSError(errno.EIO, "Input/output error")
        if len(calls) == 2 and how == "changed":
            os.utime(path, ns=(1, 1))
        return right(file, count, offset)[: 100 if len(calls) > 2 and how == "short" else None]

    monkeypatch.setattr(os, "pread", pread)
    with pytest.raises(DataUnavailableError, match=r"train-0000.tar: (cannot be read \(Input/output error\)|changed)"):
        open_source(str(path))
    monkeypatch.undo()
    assert not tables(cache, path.parent)
    assert len(open_source(str(path))) == 40 and tables(path.parent) == ["train-0000.tar.npz"]


def test_a_table_of_an_earlier_version_may_be_short_and_is_made_again(large, monkeypatch):
    _, path = large
    listing = Listing(["00000.png"], [512], [9], damage="train-0000.tar: cannot be read after 8 attempts")
    with monkeypatch.context() as earlier:
        earlier.setattr(table, "FORMAT", 1)
        table.find_table(str(path), find_stamp(str(path)), lambda: table.make_table(listing))
        assert len(open_source(str(path))) == 1
    assert len(open_source(str(path))) == 40


def test_a_shard_that_changes_on_another_server_while_its_table_is_made_is_refused(shards, cache, monkeypatch):
    files = pytest.importorskip("fsspec").filesystem("memory")
    files.pipe_file("/changing/x.tar", (shards / "train-0000.tar").read_bytes())

    def other_file(read, size):
        listing = list_tar(read, size)
        files.pipe_file("/changing/x.tar", (shards / "train-0001.tar").read_bytes())
        return listing

    monkeypatch.setattr(tar, "list_tar", other_file)
    with pytest.raises(DataUnavailableError, match=r"x.tar: changed while it was being read"):
        open_source("memory://changing/x.tar")
    assert not tables(cache)


def test_without_a_version_nothing_of_an_earlier_opening_is_used(shards, server):
    server.versions = dict.fromkeys((f"train-{number:04d}.tar" for number in range(4)), None)
    far = open_source(f"{server.address}/{NAMES}")
    assert "4 of 4 shards have neither an ETag nor a time of the last change" in far.notes[-1]
    assert contents(pickle.loads(pickle.dumps(far))) == contents(far) == [png(number) for number in range(100)]
    count = len(server.requests)
    assert contents(far) == contents(pickle.loads(pickle.dumps(far))) and len(server.requests) == count
    path = shards / "train-0001.tar"
    size, other = path.stat().st_size, [("other.png", png(25)[:-1] + b"?"), ("other.cls", b"1")]
    rest = [(f"{n:05d}.{kind}", png(n) if kind == "png" else b"1") for n in range(26, 50) for kind in ("png", "cls")]
    assert write_tar(path, [*other, *rest]).stat().st_size == size
    again = open_source(f"{server.address}/{NAMES}")
    assert again.item_id(25) == "train-0001.tar/other.png" and again.content(25) == png(25)[:-1] + b"?"
    assert set(again.stamps()).isdisjoint(far.stamps())  # an index reads them again


def test_wrong_bytes_are_neither_listed_nor_saved(large, cache, monkeypatch):
    server, _ = large
    monkeypatch.setattr(remote, "ATTEMPTS", 2)

    def first_bytes(handler, start, end, content):
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes 0-{end - start - 1}/{len(content)}")
        handler.send_header("Content-Length", str(end - start))
        handler.end_headers()
        handler.wfile.write(content[: end - start])

    server.answer = first_bytes
    with pytest.raises(DataUnavailableError, match=r"train-0000.tar: .*bytes 0 to \d+ arrived instead of"):
        open_source(f"{server.address}/train-0000.tar")
    assert not tables(cache)


def test_a_changed_local_shard_stays_refused(shards):
    source = open_source(f"{shards}/{NAMES}")
    os.utime(shards / "train-0001.tar", ns=(1, 1))
    for _ in range(2):
        with pytest.raises(DataUnavailableError, match="train-0001.tar: changed"):
            source.content(30)


def test_columns_of_json_are_labels_or_groups(tmp_path):
    members = []
    for number in range(6):
        row = f'{{"breed": "b{number % 2}", "house": {number // 2}}}'.encode()
        members += [
            (f"{number}.png", png(number)),
            (f"{number}.json", row),
            (f"{number}.txt", f"caption {number}".encode()),
        ]
    path = str(write_tar(tmp_path / "x.tar", members))
    source = open_source(path, labels="breed")
    assert source.class_names == ["b0", "b1"] and source.labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert source.other_columns() == {"house": [0, 0, 1, 1, 2, 2], "txt": [f"caption {n}" for n in range(6)]}
    plain = open_source(path)
    assert plain.labels is None and "captions" in plain.notes[-1]
    with pytest.raises(InputError, match="no label column 'color'; there are breed, house, txt"):
        open_source(path, labels="color")


def test_texts_that_repeat_are_labels(tmp_path):
    members = [(f"{n}.{k}", v) for n in range(6) for k, v in (("jpg", b"x"), ("txt", b"cat" if n % 2 else b"dog"))]
    source = open_source(str(write_tar(tmp_path / "x.tar", members)))
    assert source.class_names == ["cat", "dog"] and source.labels.tolist() == [1, 0] * 3


def test_damaged_shards_are_named_and_counted(shards):
    path = shards / "train-0002.tar"
    path.write_bytes(path.read_bytes()[:20000])
    source = open_source(f"{shards}/{NAMES}")
    assert 75 < len(source) < 100
    assert any(
        "1 of 4 shards are damaged" in note and "train-0002.tar: unexpected end of data after 10 images" in note
        for note in source.notes
    )
    path.write_bytes(b"nothing")
    with pytest.raises(InputError, match="train-0002.tar: not a readable tar file"):
        open_source(f"{shards}/{NAMES}")


def test_missing_shards_are_named(shards, server):
    with pytest.raises(InputError, match=r"2 of 6 shards do not exist: .*train-0004.tar"):
        open_source(f"{shards}/train-{{0000..0005}}.tar")
    with pytest.raises(InputError, match=r"train-0004.tar: no such file"):
        open_source(f"{server.address}/train-{{0000..0004}}.tar")


@pytest.mark.parametrize(
    "text, message",
    [
        ("ftp://host/a.tar", "ftp:// cannot be read"),
        ("s3://bucket/a.tar", "pip install"),
        ("https://host/a.zip", "unpack compressed archives"),
        ("https://host/a*.tar", "cannot be listed"),
        ("a-{0..2}.zip", "do not exist"),
    ],
)
def test_addresses_that_cannot_be_opened_are_errors(text, message):
    with pytest.raises(InputError, match=message):
        open_source(text)


def test_a_server_without_ranges_is_refused_before_it_sends_the_file(server):
    server.ranges = False
    with pytest.raises(InputError, match="does not serve byte ranges; download the shards"):
        open_source(f"{server.address}/{NAMES}")


def test_errors_and_cut_connections_are_retried_and_change_nothing(shards, server, caplog):
    server.fails = [500, "cut", 503] * 3
    far = open_source(f"{server.address}/{NAMES}")
    server.fails += [500, "cut", 429] * 2
    assert contents(far) == contents(open_source(f"{shards}/{NAMES}"))
    assert "attempt 1 of 8 failed" in caplog.text and "train-000" in caplog.text


def test_a_shard_that_fails_for_good_stops_with_its_name(shards, server):
    far = open_source(f"{server.address}/{NAMES}")
    server.broken["train-0001.tar"] = 500
    with pytest.raises(
        InputError, match=r"train-0001.tar: cannot be read after 8 attempts \(HTTP status 500\); check the network"
    ):
        list(image_samples(far, 8).batches(range(100), 10))
    server.broken["train-0001.tar"] = 403
    with pytest.raises(InputError, match="train-0001.tar: permission denied"):
        far.content(30)


def test_a_shard_that_changes_is_refused_and_opened_anew(shards, server):
    far, local = open_source(f"{server.address}/{NAMES}"), open_source(f"{shards}/{NAMES}")
    write_tar(shards / "train-0001.tar", [("new.png", png(1000)), ("new.cls", b"0")])
    for source in (far, local):
        with pytest.raises(InputError, match="train-0001.tar: .*changed"):
            source.content(30)
    assert len(open_source(f"{server.address}/{NAMES}")) == len(open_source(f"{shards}/{NAMES}")) == 76


def test_another_version_of_the_same_size_is_refused(server):
    far = open_source(f"{server.address}/{NAMES}")
    server.versions["train-0001.tar"] = '"another"'
    with pytest.raises(InputError, match="train-0001.tar: changed while it was being read"):
        far.content(30)
    assert far.content(3) == png(3) and open_source(f"{server.address}/{NAMES}").content(30) == png(30)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_batches_are_the_same_for_any_number_of_workers_and_processes(shards, server, workers):
    local = small_blocks(open_source(f"{shards}/{NAMES}"))
    far = small_blocks(open_source(f"{server.address}/{NAMES}"))

    def batches(source, workers, rank=0, world=1):
        order = RunOrder(np.arange(100), 8, 2, 0, rank=rank, world_size=world, start=3, blocks=source.blocks)
        return [(b.sample.tolist(), b.stack.canvas) for b in RunLoader(image_samples(source, 8), order, workers)]

    expected = batches(local, 0)
    for got in (batches(far, workers), batches(local, workers)):
        assert [index for index, _ in got] == [index for index, _ in expected] and len(got) == 21
        assert all((a == b).all() for (_, a), (_, b) in zip(got, expected))
    halves = [batches(far, workers, rank, 2) for rank in range(2)]
    assert [a + b for (a, _), (b, _) in zip(*halves)] == [index for index, _ in expected]


def test_training_fetches_every_block_once_and_never_more_than_a_window_ahead(shards, server):
    far = small_blocks(open_source(f"{server.address}/{NAMES}"))
    images, order = image_samples(far, 8, dtype="uint8"), RunOrder(np.arange(100), 5, 1, 0, blocks=far.blocks)
    server.requests.clear()
    used = 0
    for batch in reading_ahead(images, order):
        far_reads = len(server.requests)
        images.__getitems__(batch)
        assert len(server.requests) >= far_reads
        used += 1
        fetched = set(server.requests)
        needed = np.unique(far.blocks.of[np.concatenate(list(order)[:used])])
        assert sum(end - start for _, start, end in fetched) <= far.blocks.sizes[needed].sum() + 2 * 6000
    blocks_read = [(name, start) for name, start, _ in server.requests]
    assert used == 20 and len(blocks_read) == len(set(blocks_read)) == len(far.blocks.shard)


def test_a_sample_of_few_images_does_not_fetch_whole_blocks(shards, server):
    far = open_source(f"{server.address}/{NAMES}")
    server.requests.clear()
    list(image_samples(far, 8, dtype="uint8").batches([3, 40, 77], 2))
    assert sum(end - start for _, start, end in server.requests) == sum(far.sizes[[3, 40, 77]])


def test_latency_is_hidden_by_reading_ahead(shards, server):
    far = small_blocks(open_source(f"{server.address}/{NAMES}"), window=12000)
    order = RunOrder(np.arange(100), 5, 1, 0, blocks=far.blocks)
    server.delay = 0.05
    server.requests.clear()
    begun = time.monotonic()
    list(reading_ahead(image_samples(far, 8, dtype="uint8"), order))
    one_by_one = len(server.requests) * server.delay
    assert time.monotonic() - begun < one_by_one / 2


def test_a_loader_that_is_left_early_stops_its_threads(server):
    far = small_blocks(open_source(f"{server.address}/{NAMES}"))
    reader = iter(ahead.ReadAhead(RunOrder(np.arange(100), 5, 50, 0, blocks=far.blocks), far))
    next(reader)
    reader.close()
    count = len(server.requests)
    assert count <= len(far.blocks.shard)


def test_empty_and_imageless_tars_are_errors(tmp_path):
    with pytest.raises(InputError, match="no images in 1 tar files. Skipped in the shards: 1 samples without an image"):
        open_source(str(write_tar(tmp_path / "x.tar", [("a.cls", b"1")])))
    (tmp_path / "y.tar").touch()
    with pytest.raises(InputError, match="y.tar: not a readable tar file"):
        open_source(str(tmp_path / "y.tar"))


def test_the_labels_option_and_stamps(shards):
    source = open_source(f"{shards}/{NAMES}", labels="none")
    assert source.labels is None
    sizes, versions = zip(*source.stamps())
    assert list(sizes) == source.sizes.tolist() and len(set(versions)) == 4 and source.stored_bytes() > sum(sizes)


def write(path, samples):
    with tarfile.open(path, "w") as shard:
        for stem, members in samples.items():
            for extension, content in members.items():
                info = tarfile.TarInfo(f"{stem}.{extension}")
                info.size = len(content)
                shard.addfile(info, io.BytesIO(content))
    return path


def square(value):
    out = io.BytesIO()
    Image.new("L", (4, 4), value).save(out, "PNG")
    return out.getvalue()


def test_texts_and_keys_are_columns(tmp_path):
    long = "long " * 500
    first = {
        "0": {"png": square(1), "txt": b"a cat", "json": json.dumps({"alt": "cat", "width": 4}).encode()},
        "1": {"png": square(2), "txt": long.encode(), "json": json.dumps({"alt": "dog", "width": 5}).encode()},
    }
    write(tmp_path / "train-0.tar", first)
    write(tmp_path / "train-1.tar", {"2": {"png": square(1), "json": json.dumps({"alt": "cat"}).encode()}})
    table = open_columns(tmp_path, "image,alt")
    assert list(table.columns["alt"]) == ["cat", "dog", "cat"] and table.cell_ids("image").tolist() == [0, 1, 0]
    assert table.item_id(2) == "train-1.tar/2.png" and table.other_columns()["width"] == [4, 5, None]
    assert table.blocks is not None
    table = open_columns(tmp_path / "train-{0..1}.tar", "image,txt")
    assert list(table.columns["txt"]) == ["a cat", long.strip()] and "txt: missing or empty in 1 row" in " ".join(
        table.notes
    )
    with pytest.raises(InputError, match="there are image, txt, alt, width"):
        open_columns(tmp_path, "image,caption")
