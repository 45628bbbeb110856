import errno
import json
import os
import time

import numpy as np
import pytest

from fedjax_sel.data import cache


def writes(value, calls=None):
    def write(folder):
        if calls is not None:
            calls.append(folder)
        array = cache.create(folder, "x", np.dtype(np.uint8), (100, 3))
        array[:] = value
        array.flush()

    return write


def forbidden(folder):
    raise AssertionError("a complete cache was written again")


def test_arrays_are_memory_mapped_read_only_and_written_once(tmp_path):
    for write in (writes(7), forbidden):
        found = cache.load_arrays(tmp_path / "deep" / "set", write)
        assert isinstance(found["x"], np.memmap)
        assert not found["x"].flags.writeable
        assert (found["x"] == 7).all()


def test_a_full_disk_is_an_error_and_not_the_end_of_the_process(tmp_path, monkeypatch):
    """A page of a sparse file that finds no room kills the process with SIGBUS."""

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match=r"no room for the decoded arrays \(300 bytes of x\)") as raised:
        cache.load_arrays(tmp_path / "set", writes(1))
    assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_where_nobody_can_tell_whether_there_is_room_it_is_written(tmp_path, monkeypatch):
    def unable(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "posix_fallocate", unable)
    assert (cache.load_arrays(tmp_path / "set", writes(5))["x"] == 5).all()


def test_a_writer_that_fails_leaves_nothing_behind(tmp_path):
    def write(folder):
        writes(1)(folder)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.load_arrays(tmp_path / "set", write)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_writer_left_is_removed_after_a_day(tmp_path):
    old, new, other = (tmp_path / name for name in (".writing-set-old", ".writing-set-new", ".writing-sets-old"))
    for left in (old, new, other):
        left.mkdir()
        (left / "x.npy").touch()
    yesterday = time.time() - cache.A_DAY - 60
    for left in (old, other):
        os.utime(left, (yesterday, yesterday))
    cache.load_arrays(tmp_path / "set", writes(1))
    assert sorted(path.name for path in tmp_path.iterdir()) == [".writing-set-new", ".writing-sets-old", "set"]


def test_what_a_killed_writer_left_is_never_read(tmp_path):
    left = tmp_path / ".writing-set-abc"
    left.mkdir()
    writes(1)(left)
    assert (cache.load_arrays(tmp_path / "set", writes(2))["x"] == 2).all()


def truncate(folder):
    path = folder / "x.npy"
    path.write_bytes(path.read_bytes()[:-50])


def without_manifest(folder):
    (folder / cache.MANIFEST).unlink()


def half_a_manifest(folder):
    (folder / cache.MANIFEST).write_text('{"x": ["|u1", [100')


def another_shape(folder):
    (folder / cache.MANIFEST).write_text(json.dumps({"x": ["|u1", [100, 4]]}))


def without_array(folder):
    (folder / "x.npy").unlink()


@pytest.mark.parametrize("damage", [truncate, without_manifest, half_a_manifest, another_shape, without_array])
def test_a_damaged_cache_is_written_again(tmp_path, damage):
    cache.load_arrays(tmp_path / "set", writes(1))
    damage(tmp_path / "set")
    assert (cache.load_arrays(tmp_path / "set", writes(2))["x"] == 2).all()
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_of_two_writers_at_once_the_first_to_finish_wins(tmp_path):
    def write(folder):
        cache.load_arrays(tmp_path / "set", writes(1))  # the other one, meanwhile
        writes(2)(folder)

    assert (cache.load_arrays(tmp_path / "set", write)["x"] == 1).all()
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_the_place_is_the_argument_else_the_environment_else_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("FEDJAX_SEL_CACHE", raising=False)
    assert cache.find_folder() == tmp_path / ".cache" / "fedjax_sel" / "datasets"
    monkeypatch.setenv("FEDJAX_SEL_CACHE", str(tmp_path / "other"))
    assert cache.find_folder() == tmp_path / "other" / "datasets"
    assert cache.find_folder(tmp_path / "third") == tmp_path / "third"
