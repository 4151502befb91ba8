"""Files are written whole or not at all, whoever else writes, and whatever is in their place."""

import multiprocessing
import os
import stat
import threading
from pathlib import Path

import pytest

from maxmargin.io.files import atomic_write


def write(path, text):
    with atomic_write(path) as file:
        file.write(text)


def test_what_was_there_stays_until_the_end(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with atomic_write(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


def test_what_fails_leaves_nothing(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def interrupted():
        with atomic_write(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_it_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    order = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda number: (order.append("flushed"), fsync(number)))
    monkeypatch.setattr(
        Path, "replace", lambda self, to: (order.append("renamed"), replace(self, to))[1]
    )
    write(tmp_path / "file", b"text")
    assert order[:2] == ["flushed", "renamed"]


@pytest.mark.parametrize("place", ["/dev/null", "/dev/full", "pipe", "folder", "link to a pipe"])
def test_devices_pipes_and_folders_are_refused(place, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link to a pipe").symlink_to(tmp_path / "pipe")
    path = tmp_path / place
    before = path.stat().st_mode
    with pytest.raises(OSError, match=r"(a device or a pipe, not a file|is a folder): give"):
        write(path, b"text")
    assert path.stat().st_mode == before
    assert len(os.listdir(tmp_path)) == 3


def test_a_link_is_followed(tmp_path):
    (tmp_path / "far").mkdir()
    target = tmp_path / "far" / "target"
    target.write_bytes(b"old")
    for name, to in (("link", target), ("relative", "far/target"), ("new", "far/not yet")):
        (tmp_path / name).symlink_to(to)
        write(tmp_path / name, name.encode())
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / name).read_bytes() == name.encode()
    assert sorted(os.listdir(tmp_path / "far")) == ["not yet", "target"]


def test_a_link_to_no_folder_is_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "file")
    with pytest.raises(FileNotFoundError, match="There is no folder"):
        write(tmp_path / "link", b"text")


def test_mode_and_owner_are_kept(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o640)
    if os.getuid() == 0:
        os.chown(path, 12, 34)
    before = path.stat()
    write(path, b"new")
    after = path.stat()
    assert stat.S_IMODE(after.st_mode) == 0o640
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)


def test_a_new_file_has_the_usual_mode(tmp_path):
    write(tmp_path / "ours", b"")
    (tmp_path / "usual").write_bytes(b"")
    modes = [(tmp_path / name).stat().st_mode for name in ("ours", "usual")]
    assert modes[0] == modes[1]


def test_names_as_long_as_they_may_be(tmp_path):
    path = tmp_path / ("ä" * 127)
    write(path, b"text")
    assert path.read_bytes() == b"text"


def _killed_while_writing(path):
    with atomic_write(path) as file:
        file.write(b"half")
        file.flush()
        os._exit(1)


def test_what_killed_processes_leave_is_removed(tmp_path):
    path = tmp_path / "file"
    for _ in range(3):
        child = multiprocessing.get_context("fork").Process(
            target=_killed_while_writing, args=(path,)
        )
        child.start()
        child.join()
    assert len(os.listdir(tmp_path)) >= 1
    write(path, b"whole")
    assert os.listdir(tmp_path) == ["file"]


def test_what_others_are_writing_is_not_removed(tmp_path):
    path = tmp_path / "file"
    with atomic_write(path) as first:
        first.write(b"first")
        write(path, b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["file"]


def test_many_threads_and_processes_write_whole_files(tmp_path):
    path = tmp_path / "file"
    texts = [bytes([number]) * 100_000 for number in range(6)]
    write(path, texts[0])

    errors = []

    def work(text):
        try:
            for _ in range(20):
                write(path, text)
        except OSError as error:
            errors.append(error)
            raise

    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work, args=(text,)) for text in texts[:3]]
    workers += [threading.Thread(target=work, args=(text,)) for text in texts[3:]]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        assert path.read_bytes() in texts
    for worker in workers:
        worker.join()
    assert not errors
    assert [worker.exitcode for worker in workers[:3]] == [0] * 3
    assert os.listdir(tmp_path) == ["file"]
