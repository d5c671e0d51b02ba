"""What devices typed, in a vocabulary's ids, as a file that every process of a launch maps and none loads."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from pretrain.files import PRIVATE, atomic

_TYPE = np.dtype("<i4")
_DIGEST_TOKENS = hashlib.sha256().digest_size // _TYPE.itemsize
_READ_BYTES = 1 << 24


def mapped(path: Path, pieces: Iterable[np.ndarray]) -> np.ndarray:
    """int32 ``[N]``: the pieces end to end, from the file if it holds them whole, which otherwise is written.

    The SHA-256 of the tokens stands behind them. Processes that write at once write the same.

    Args:
      path: names everything that decides the tokens; private.
    """
    if not _whole(path):
        total = hashlib.sha256()
        with atomic(path, PRIVATE) as temporary, temporary.open("wb") as file:
            for piece in pieces:
                content = np.ascontiguousarray(piece, dtype=_TYPE).tobytes()
                total.update(content)
                file.write(content)
            file.write(total.digest())
    return np.memmap(path, dtype=_TYPE, mode="r")[:-_DIGEST_TOKENS]


def _whole(path: Path) -> bool:
    if not path.is_file():
        return False
    left, total = path.stat().st_size - _DIGEST_TOKENS * _TYPE.itemsize, hashlib.sha256()
    if left < 0:
        return False
    with path.open("rb") as file:
        while left:
            content = file.read(min(left, _READ_BYTES))
            total.update(content)
            left -= len(content)
        return file.read() == total.digest()
