"""A build that is killed resumes; readers see a complete index at all times; several processes share the work."""

import os
import pickle
import signal
import threading

import pytest

import coulomb
from coulomb.ground.errors import InputError
from coulomb.index import embed, folder, stored, update, work
from forked import context
from index_cases import folder as make_folder
from index_cases import picture, tiny

COUNT = 40


def build(data, out, **options):
    return coulomb.Index.build(
        data, out, **{"encoder": tiny(), "workers": 0, "progress": False, "batch_size": 4} | options
    )


def content(index):
    return index.table.to_pydict(), [index.thumbnail(row) for row in range(len(index))], index.rows(0, len(index))


def same(first, second):
    one, two = content(first), content(second)
    return one[:2] == two[:2] and bool((one[2] - two[2]).abs().max() < 1e-3)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def after(calls, function):
    """``function``, after which the process is killed when it was called so often."""
    left = [calls]

    def call(*arguments, **options):
        result = function(*arguments, **options)
        left[0] -= 1
        if not left[0]:
            die()
        return result

    return call


def kill_after_the_first_rows():
    work.PartWriter.write = after(1, work.PartWriter.write)


def kill_after_some_rows():
    work.PartWriter.write = after(3, work.PartWriter.write)


def kill_between_features_and_journal():
    work.sync = after(5, work.sync)  # features and thumbnails of the second block are written, its lines are not


def kill_while_the_generation_is_written():
    stored.sync = after(2, stored.sync)


def kill_before_the_index_is_published():
    folder.IndexFolder.publish = lambda *_: die()


def kill_before_the_old_generation_is_removed():
    folder.write_json = after(1, folder.write_json)


KILLS = [
    kill_after_the_first_rows,
    kill_after_some_rows,
    kill_between_features_and_journal,
    kill_while_the_generation_is_written,
    kill_before_the_index_is_published,
    kill_before_the_old_generation_is_removed,
]


def killed(patch, data, out):
    work.ROWS = 8
    patch()
    build(data, out)


def run_and_kill(patch, data, out):
    process = context.Process(target=killed, args=(patch, data, out))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("kill", KILLS, ids=lambda kill: kill.__name__)
def test_a_killed_build_resumes(kill, tmp_path, monkeypatch):
    photos = make_folder(tmp_path / "photos", COUNT)
    run_and_kill(kill, photos, tmp_path / "i")
    if kill is kill_before_the_old_generation_is_removed:
        assert len(coulomb.Index.open(tmp_path / "i")) == COUNT
    else:
        with pytest.raises(InputError, match="is half-written: its build was interrupted"):
            coulomb.Index.open(tmp_path / "i")
    embedded = []
    inner = embed.Embedder.embed

    def watched(self, indices, outcome):
        embedded.extend(indices)
        return inner(self, indices, outcome)

    monkeypatch.setattr(embed.Embedder, "embed", watched)
    resumed = build(photos, tmp_path / "i")
    assert same(resumed, build(photos, tmp_path / "fresh"))
    expected = {KILLS[0]: COUNT - 8, KILLS[1]: COUNT - 24, KILLS[2]: COUNT - 8}.get(kill, 0)
    assert len(embedded) == expected + COUNT  # those of the fresh index, too
    assert sorted(path.name for path in (tmp_path / "i").iterdir()) == ["generation-000001", "index.json"]


@pytest.mark.parametrize("kill", KILLS, ids=lambda kill: kill.__name__)
def test_a_killed_update_leaves_a_complete_index(kill, tmp_path):
    photos = make_folder(tmp_path / "photos", 4)
    before = build(photos, tmp_path / "i")
    make_folder(photos, COUNT)
    for path in sorted((photos / "a").iterdir())[:2]:
        path.unlink()
    run_and_kill(kill, photos, tmp_path / "i")
    found = coulomb.Index.open(tmp_path / "i")
    complete = COUNT - 2 if kill is kill_before_the_old_generation_is_removed else 4
    assert len(found) == complete
    if complete == 4:
        assert same(found, before)
    updated = build(photos, tmp_path / "i")
    assert same(updated, build(photos, tmp_path / "fresh"))
    assert sorted(path.name for path in (tmp_path / "i").iterdir()) == ["generation-000002", "index.json"]


def test_unfinished_work_of_another_encoder_is_refused(tmp_path):
    photos = make_folder(tmp_path / "photos", COUNT)
    run_and_kill(kill_after_some_rows, photos, tmp_path / "i")
    with pytest.raises(InputError, match="holds an unfinished index of another encoder or precision; finish it by"):
        build(photos, tmp_path / "i", encoder=tiny(seed=1))


def test_images_that_changed_after_the_interruption_are_read_again(tmp_path):
    photos = make_folder(tmp_path / "photos", COUNT)
    run_and_kill(kill_after_some_rows, photos, tmp_path / "i")
    os.utime(photos / "a" / "00.png", ns=(0, 0))
    picture(99).save(photos / "a" / "02.png")
    (photos / "a" / "04.png").unlink()
    assert same(build(photos, tmp_path / "i"), build(photos, tmp_path / "fresh"))


def test_an_open_index_stays_readable_while_it_is_updated(tmp_path):
    photos = make_folder(tmp_path / "photos", 6)
    index = build(photos, tmp_path / "i")
    make_folder(photos, 8)
    build(photos, tmp_path / "i")
    assert len(index) == 6 and len(index.ids) == 6 and index.thumbnail(5)[:2] == b"\xff\xd8"
    assert len(index.search(ids=index.ids[0])) == 5
    assert len(coulomb.Index.open(tmp_path / "i")) == 8


def test_readers_find_a_complete_index_during_updates(tmp_path):
    photos = make_folder(tmp_path / "photos", 6)
    build(photos, tmp_path / "i")
    stop, problems, opened = threading.Event(), [], []

    def read():
        while not stop.is_set():
            try:
                index = coulomb.Index.open(tmp_path / "i")
                rows = len(index.ids), len(index.features), len(index.search(ids=index.ids[0], top=100)) + 1
                if len({len(index), *rows}) > 1:
                    problems.append(rows)
                opened.append(len(index))
            except Exception as error:
                problems.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for count in range(7, 13):
        make_folder(photos, count)
        build(photos, tmp_path / "i")
    stop.set()
    reader.join()
    assert problems == [] and len(opened) > 5


def test_a_pickled_index_opens_the_same_generation(tmp_path):
    photos = make_folder(tmp_path / "photos", 6)
    index = build(photos, tmp_path / "i")
    copy = pickle.loads(pickle.dumps(index))
    assert copy.ids == index.ids
    saved = pickle.dumps(index)
    make_folder(photos, 8)
    build(photos, tmp_path / "i")
    with pytest.raises(InputError, match="was updated in the meantime; open it again"):
        pickle.loads(saved)


def build_together(data, out):
    index = build(data, out)
    return len(index), index.info["last_update"]


def test_two_processes_embed_a_share_each(processes, tmp_path):
    photos = make_folder(tmp_path / "photos", COUNT)
    (photos / "a" / "02.png").write_bytes(b"no image")
    results = processes.run(2, build_together, photos, tmp_path / "i")
    assert results[0] == results[1] and results[0][0] == COUNT - 1
    assert same(coulomb.Index.open(tmp_path / "i"), build(photos, tmp_path / "fresh"))
    picture(99).save(photos / "a" / "02.png")
    results = processes.run(2, build_together, photos, tmp_path / "i")
    assert results[1][1] == {"new": 1, "changed": 0, "kept": COUNT - 1, "dropped": 0}


def parts_of_each(data, out):
    update.Update.finish = lambda *_: None  # keeps the unfinished work
    with pytest.raises(InputError, match="half-written"):
        build(data, out)


def test_each_process_does_half_of_the_work(processes, tmp_path):
    photos = make_folder(tmp_path / "photos", COUNT)
    processes.run(2, parts_of_each, photos, tmp_path / "i")
    parts = work.read_parts(tmp_path / "i" / "unfinished", tiny().encoder.feature_dim, "float16")
    assert [len(part.ids) for part in parts] == [COUNT // 2, COUNT // 2]
    assert len({name for part in parts for name in part.ids}) == COUNT


def wrong_in_the_first_process(data, out):
    with pytest.raises(InputError, match="was built with tiny"):
        build(data, out, encoder=tiny(seed=1))


def test_an_error_of_one_process_ends_all(processes, tmp_path):
    photos = make_folder(tmp_path / "photos", 6)
    build(photos, tmp_path / "i")
    processes.run(2, wrong_in_the_first_process, photos, tmp_path / "i")
    (tmp_path / "empty").mkdir()
    processes.run(2, unreadable, tmp_path / "empty", tmp_path / "j")


def unreadable(data, out):
    with pytest.raises(InputError):
        build(data, out)
