import os
import shutil
import signal
import threading
import time

import pytest

from coulomb.ground.errors import DataUnavailableError, InputError
from coulomb.tables.shards.cache import Cache, cache_limit


def total(cache):
    return sum(path.stat().st_size for path in (cache.folder / "ranges").rglob("*") if path.is_file())


def test_a_range_is_fetched_once_and_read_in_parts(tmp_path):
    cache = Cache(tmp_path, 10**6)
    path = cache.path("u", "v", 0, 10)
    assert cache.read(path, 10, 0, 10) is None
    assert cache.fill(path, 10, lambda: b"0123456789") == b"0123456789"
    assert cache.fill(path, 10, lambda: 1 / 0) is None and cache.has(path, 10)
    assert cache.read(path, 10, 3, 5) == b"34"
    assert (
        len({cache.path(*key) for key in (("u", "v", 0, 10), ("u", "w", 0, 10), ("u", "v", 0, 11), ("t", "v", 0, 10))})
        == 4
    )


def test_the_limit_holds_and_the_least_recently_used_goes_first(tmp_path):
    cache = Cache(tmp_path, 1000)
    paths = [cache.path("u", "v", number, 0) for number in range(40)]
    for number, path in enumerate(paths):
        cache.fill(path, 100, lambda: bytes(100))
        os.utime(path, ns=(number * 10**9, number * 10**9))
        os.utime(paths[0], ns=(10**15, 10**15))  # in use all the time
        assert total(cache) <= 1000
    assert cache.has(paths[0], 100) and cache.has(paths[-1], 100) and not cache.has(paths[1], 100)


def test_a_failed_fetch_leaves_nothing(tmp_path):
    cache = Cache(tmp_path, 1000)
    path = cache.path("u", "v", 0, 4)
    with pytest.raises(ZeroDivisionError):
        cache.fill(path, 4, lambda: 1 / 0)
    assert not cache.has(path, 4) and not list((tmp_path / "unfinished").iterdir())
    assert cache.fill(path, 4, lambda: b"next") == b"next"


def test_a_file_of_the_wrong_size_is_replaced(tmp_path):
    cache = Cache(tmp_path, 1000)
    path = cache.path("u", "v", 0, 4)
    cache.fill(path, 4, lambda: b"good")
    path.write_bytes(b"go")
    assert cache.read(path, 4, 0, 4) is None
    cache.fill(path, 4, lambda: b"good")
    assert cache.read(path, 4, 0, 4) == b"good"


def test_threads_and_processes_fetch_a_range_once(tmp_path):
    count = tmp_path / "count"
    count.touch()

    def fetch():
        with count.open("a") as file:
            file.write("x")
        time.sleep(0.1)
        return b"abcd"

    def work():
        cache = Cache(tmp_path / "cache", 1000)
        for number in range(3):
            path = cache.path("u", "v", number, 4)
            cache.fill(path, 4, fetch)
            assert cache.read(path, 4, 0, 4) == b"abcd"

    children = []
    for _ in range(2):
        if (child := os.fork()) == 0:
            try:
                work()
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    threads = [threading.Thread(target=work) for _ in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    assert count.read_text() == "xxx"


def test_a_process_killed_while_it_fetches_leaves_no_lock_and_no_half_file(tmp_path):
    cache = Cache(tmp_path, 10**6)
    path = cache.path("u", "v", 0, 4)
    if (child := os.fork()) == 0:
        cache.fill(path, 4, lambda: (tmp_path / "begun").touch() or time.sleep(60) or b"late")
        os._exit(0)
    while not (tmp_path / "begun").exists():
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    begun = time.monotonic()
    assert cache.fill(path, 4, lambda: b"next") == b"next" and time.monotonic() - begun < 5


def test_unfinished_files_of_killed_processes_are_deleted_later(tmp_path):
    cache = Cache(tmp_path, 10**6)
    old, new = tmp_path / "unfinished" / "old", tmp_path / "unfinished" / "new"
    old.touch(), new.touch()
    os.utime(old, (0, 0))
    cache.make_room(10)
    assert not old.exists() and new.exists()


@pytest.mark.parametrize("limit", ["no", "0.5", "-3", "nan"])
def test_a_wrong_limit_is_an_error(monkeypatch, limit):
    monkeypatch.setenv("COULOMB_CACHE_GB", limit)
    with pytest.raises(InputError, match="COULOMB_CACHE_GB"):
        cache_limit()


@pytest.mark.parametrize("name", ["ranges", "locks", "unfinished"])
def test_a_cache_that_fails_while_it_is_used_is_named(tmp_path, name):
    cache = Cache(tmp_path, 1000)
    path = cache.path("u", "v", 0, 4)
    shutil.rmtree(tmp_path / name)
    (tmp_path / name).write_text("a file stands for a disk that fails")
    with pytest.raises(DataUnavailableError, match="COULOMB_CACHE=.*: cannot be used"):
        assert cache.fill(path, 4, lambda: b"data") and cache.read(path, 4, 0, 4) and False


def test_a_cache_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="COULOMB_CACHE"):
        Cache(tmp_path / "file", 1000)
