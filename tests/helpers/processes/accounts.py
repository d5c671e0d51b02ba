"""Another account of the operating system, for what may not be read or written."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NOBODY = 65_534


@contextmanager
def somebody_else(*paths: Path) -> Iterator[None]:
    """Act as an account that is not root, which owns these paths; without root, as oneself."""
    if os.geteuid():
        yield
        return
    for path in paths:
        os.chown(path, _NOBODY, _NOBODY)
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
