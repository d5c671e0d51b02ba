"""Files written whole or not at all, readable by their owner only unless said otherwise."""

import os
from pathlib import Path

from pyarrow import Buffer


def private_directory(path: Path) -> Path:
    """Make the directory if need be, mode 0700."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def replace_file(path: Path, content: bytes | Buffer, mode: int = 0o600) -> None:
    """Put a file, its owner's alone unless ``mode`` says otherwise, in the place of ``path`` in one step.

    After a crash at any point, ``path`` holds the old content or the new, never a part of it.
    """
    temporary = path.with_name(path.name + ".partial")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
