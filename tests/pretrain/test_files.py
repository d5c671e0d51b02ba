"""Files appear whole or not at all, in the mode that was asked for, and are on the disk."""

import errno
import os
import re
import resource
import stat
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from pretrain.files import (
    PRIVATE,
    PUBLIC,
    atomic,
    private_directory,
    remove_folder,
    remove_leavings,
    scratch,
    sha256,
    text_sha256,
    write_array,
    write_bytes,
    write_text,
)


class PowerCut(Exception):
    pass


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_an_error_in_the_middle_leaves_the_old_file_alone(tmp_path: Path):
    path = tmp_path / "file"
    write_bytes(path, b"old", PRIVATE)

    def interrupted() -> None:
        with atomic(path) as temporary:
            temporary.write_bytes(b"half of the n")
            raise PowerCut

    with pytest.raises(PowerCut):
        interrupted()
    assert path.read_bytes() == b"old"
    assert mode(path) == PRIVATE
    assert list(tmp_path.iterdir()) == [path]
    write_bytes(path, b"new")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("before", [None, b"old"])
def test_a_kill_in_the_middle_leaves_the_old_file_or_none(tmp_path: Path, before: bytes | None):
    path = tmp_path / "file"
    if before is not None:
        path.write_bytes(before)
    program = (
        "import os, sys, pathlib; from pretrain.files import atomic\n"
        "with atomic(pathlib.Path(sys.argv[1])) as temporary:\n"
        "    temporary.write_bytes(b'half'); os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program, path], check=False)
    assert killed.returncode == -9
    assert (path.read_bytes() if path.exists() else None) == before
    # What is left over is hidden, and nobody's way.
    assert all(left.name.startswith(".") for left in tmp_path.iterdir() if left != path)
    write_bytes(path, b"new")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_the_mode_is_the_one_asked_for_before_anything_is_written(tmp_path: Path, umask: int):
    old = os.umask(umask)
    try:
        with atomic(tmp_path / "secret", PRIVATE) as temporary:
            assert mode(temporary) & 0o077 == 0
            temporary.write_bytes(b"key")
        write_text(tmp_path / "deep" / "shown", "text")
        folder = private_directory(tmp_path / "private" / "stage")
    finally:
        os.umask(old)
    assert mode(tmp_path / "secret") == PRIVATE
    assert mode(tmp_path / "deep" / "shown") == PUBLIC
    assert mode(folder) == 0o700
    folder.chmod(0o755)
    assert mode(private_directory(folder)) == 0o700


def test_the_file_is_on_the_disk_before_the_rename_and_the_folder_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, synced = tmp_path / "file", []

    def fsync(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, path.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    write_bytes(path, b"content")
    assert synced == [(path.stat().st_ino, False), (tmp_path.stat().st_ino, True)]


def test_digests(tmp_path: Path):
    write_text(tmp_path / "a", "ü")
    assert sha256(tmp_path / "a") == text_sha256("ü")


OTHER_WAYS = re.compile(
    r"\.(?:write_text|write_bytes)\(|\bos\.(?:fsync|replace|rename)\(|(?<!temporary)\.open\(\"[wx]b?\""
    r"|\.tofile\(|\bnp\.save\("
)


@pytest.mark.parametrize(
    "package", ["pretrain", "discovery", "federated", "evaluation", "reports", "pipeline", "tacit"]
)
def test_nobody_writes_in_another_way(package: str):
    root = Path(__file__).parents[2]
    elsewhere = [
        f"{path.relative_to(root)}: {line.strip()}"
        for path in sorted((root / package).rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if OTHER_WAYS.search(line) and path != root / "pretrain" / "files.py" and ".lock" not in line
    ]
    assert not elsewhere


KILLED = """
import os, sys
from pathlib import Path
from unittest import mock
from pretrain.files import atomic, scratch
folder = Path(sys.argv[1])
with scratch(folder, "bundle") as made, atomic(folder / "inner" / "result.json") as temporary:
    (made / "part").write_text("x")
    temporary.with_name(temporary.name + "-journal").write_text("x")
    os._exit(9)
"""


def test_what_a_killed_process_left_is_taken_away_and_nothing_else(tmp_path: Path):
    root = Path(__file__).resolve().parents[2]
    environment = os.environ | {"PYTHONPATH": str(root)}
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], env=environment, check=False)
    assert ended.returncode == 9
    kept = [".lock", ".manifest.json", "result.json", ".outcome.json", "notes.tmp", ".name.tmp"]
    for name in kept:
        (tmp_path / name).touch()
    with scratch(tmp_path, "bundle") as working, atomic(tmp_path / "other") as temporary:
        assert mode(working) == 0o700
        assert len(remove_leavings(tmp_path, below=False)) == 1
        assert len(remove_leavings(tmp_path)) == 2
        assert working.is_dir()
        assert temporary.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*kept, "inner", "other"])
    assert list((tmp_path / "inner").iterdir()) == []


@pytest.mark.parametrize("size", [7, 1000, 100_000])
def test_an_array_that_the_disk_does_not_take_is_an_error(tmp_path: Path, size: int):
    """All but its header: what a disk with one free block does."""
    write_array(tmp_path / "array.npy", np.arange(3))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (130, 130))
            write_array(tmp_path / "array.npy", np.arange(size))
        except OSError as error:
            code = error.errno or 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == errno.EFBIG
    assert np.load(tmp_path / "array.npy").tolist() == [0, 1, 2]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_was_being_removed_is_whole_or_a_leaving(tmp_path: Path):
    folder = tmp_path / "work"
    (folder / "checkpoint").mkdir(parents=True)
    (folder / "weights").touch()
    child = os.fork()
    if child == 0:
        with mock.patch("os.unlink", side_effect=lambda *_, **__: os._exit(9)):
            remove_folder(folder)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert not folder.exists()
    assert len(remove_leavings(tmp_path)) == 1
    assert list(tmp_path.iterdir()) == []
    remove_folder(folder)
