"""Atomic and durable writes of files, with private modes on request.

A writer fills a hidden temporary neighbour, which is flushed to the disk and renamed; then the folder
is flushed, so that the rename itself survives a power cut. After a crash at any point the path holds
the old content or the new, never a part of it. What a killed process leaves has its number in the name, and
``remove_leavings`` takes it away.
"""

import errno
import hashlib
import io
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

PUBLIC = 0o644
PRIVATE = 0o600
_LEFT = re.compile(r"\..+\.([0-9]+)\.(in-[a-z0-9_]+\.)?tmp(-journal|-wal|-shm)?")


def widened(path: Path) -> str:
    """Mode of a file that other accounts may read or write, in octal digits; empty if they may not."""
    mode = stat.S_IMODE(path.stat().st_mode)
    return f"{mode:o}" if mode & 0o077 else ""


@contextmanager
def atomic(path: Path, mode: int = PUBLIC) -> Iterator[Path]:
    """A temporary path in the same folder, for writers that stream; it replaces ``path`` unless the block raises.

    The temporary file exists with ``mode`` before anything is written to it, and ends in ``.tmp``:
    writers that choose a format by the ending must be told theirs.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
        yield temporary
        temporary.chmod(mode)
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def scratch(folder: Path, name: str) -> Iterator[Path]:
    """A hidden folder in ``folder``, for this user alone, that is gone after the block."""
    prefix = f".{name}.{os.getpid()}.in-"
    with tempfile.TemporaryDirectory(prefix=prefix, suffix=".tmp", dir=folder, ignore_cleanup_errors=True) as made:
        yield Path(made)


def remove_folder(folder: Path) -> None:
    """Remove a folder, if it exists: after a crash it is whole, or among what ``remove_leavings`` takes away."""
    gone = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(gone, ignore_errors=True)
    with suppress(FileNotFoundError):
        folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def remove_leavings(folder: Path, *, below: bool = True) -> list[str]:
    """Take away the temporary files and folders of processes that are gone; their names.

    Args:
      below: look into the folder's folders too.
    """
    removed = []
    for path in sorted(folder.rglob("*") if below else folder.glob("*")):
        left = _LEFT.fullmatch(path.name)
        if left and not _runs(int(left[1])):
            removed.append(path.name)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
    return removed


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def write_bytes(path: Path, content: bytes | memoryview, mode: int = PUBLIC) -> None:
    """Write a file whole or not at all; folders above it are made."""
    with atomic(path, mode) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, content: str, mode: int = PUBLIC) -> None:
    """Write UTF-8 text whole or not at all; folders above it are made."""
    write_bytes(path, content.encode(), mode)


def write_array(path: Path, array: "NDArray[Any]", mode: int = PUBLIC) -> None:
    """Write an array as ``.npy``, whole or not at all.

    NumPy's ``tofile``, and ``save`` to an open file, lose what a full disk does not take without an error: they write
    through a buffer of C's, and do not look at how its last part was written.
    """
    import numpy as np  # slow to import

    buffer = io.BytesIO()
    np.save(buffer, array)
    write_bytes(path, buffer.getbuffer(), mode)


def private_directory(path: Path) -> Path:
    """Create the directory if needed, mode 0700; restrict an existing one with a wider mode."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


@contextmanager
def undamaged(path: Path, fix: str) -> Iterator[None]:
    """Context for reading a file of ours: errors of libraries on a damaged one become a line with a fix.

    Raises:
      ValueError: the file is damaged or missing.
    """
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, EOFError, OSError) as error:
        # Of a disk that does not answer the caller hears as it is; what Arrow cannot decode has no number.
        if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):
            raise
        raise ValueError(f"{path}: damaged or gone; {fix}") from error


def sha256(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def text_sha256(content: str) -> str:
    """Hex SHA-256 of UTF-8 text."""
    return hashlib.sha256(content.encode()).hexdigest()


def _sync(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
