"""Masked sum of integers over workers: a listener reads nothing, and every change is detected.

Of W workers number r adds the mask s_r - s_(r+1) to its vector, modulo 2^64. s_0 to s_(W-1) are keystreams that every
worker can draw, s_W is zero. So all masks add up to s_0, which each worker takes off the sum in the end: whatever W is,
it draws at most three streams. Masked vectors go around a ring twice, in W pieces: once to be added up, once to be
known to all. A worker sends to its right neighbour alone.

Shape legend: N elements of a vector.
"""

import hmac
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from federated.workers.streams import add_mask
from pretrain.randomness.entropy import fresh_bytes
from pretrain.randomness.noise import KEY_BYTES, subkey

WORD = np.dtype("<u8")
TAG_BYTES = 32

# Bytes for the right neighbour and the number expected from the left one -> bytes from the left one.
PassOn = Callable[[np.ndarray, int], np.ndarray]


@dataclass(frozen=True)
class Mask:
    """Masks of one sum: this worker's own mask, and the sum of all workers' masks; uint64 ``[N]``. Secret."""

    own_N: np.ndarray
    total_N: np.ndarray


class MaskedSum:
    """Sums over the workers of one attempt at a stage, one after another; all of them ask for the same ones.

    Guarantee: what passes between workers is a function of their masked vectors, lengths and time. As (s_0, ...,
    s_(W-1)) -> masks is a bijection, the masked vectors of a sum are jointly uniform whatever was added: the wire tells
    nothing of an addend, of a sum over some workers, or of the whole, as far as AES-256 is a pseudo-random function. No
    stream serves twice: its key follows from the secret, (launch, stage, attempt), 32 fresh bytes of each worker, the
    length of the vector, how many of that length came before, and its number; who runs an attempt again, with the same
    data or other data, does so under other streams. Every piece carries an HMAC-SHA256 over itself and its place
    (sum, step, sender): one that was changed, replayed, swapped or made by somebody else raises, and nothing of it is
    used. Workers trust each other: the memory of one reveals all.
    """

    def __init__(self, secret: bytes, attempt: str, rank: int, size: int, pass_on: PassOn) -> None:
        """Exchange fresh bytes with the other workers and derive this attempt's key from them.

        Args:
          secret: 32 bytes that only the workers know.
          attempt: names launch, stage and attempt.
          pass_on: may raise OSError where a neighbour is gone.
        """
        self._rank, self._size, self._pass_on = rank, size, pass_on
        passed = np.frombuffer(fresh_bytes(KEY_BYTES), np.uint8)
        fresh = {rank: passed.tobytes()}
        for step in range(1, size):
            passed = pass_on(passed, KEY_BYTES)
            fresh[(rank - step) % size] = passed.tobytes()
        # Who changes these on the way makes workers derive different keys, and the first digest tells.
        together = b"".join(fresh[number] for number in range(size)).hex()
        self._key = subkey(secret, f"tacit wire 1|{attempt}|{together}")
        self._tag_key = subkey(self._key, "tags")
        self._sums: Counter[int] = Counter()
        self._ahead: dict[int, Future[Mask]] = {}
        self._drawing = ThreadPoolExecutor(1, "masks")

    def add_up(self, vector_N: np.ndarray) -> np.ndarray:
        """Sum modulo 2^64 of every worker's int64 ``[N]``: the same bits for any number of workers.

        Raises:
          OSError: a piece is not what the neighbour sent, or a neighbour is gone.
        """
        rank, size, length = self._rank, self._size, len(vector_N)
        number = self._sums[length]
        self._sums[length] += 1
        ahead = self._ahead.pop(length, None)
        mask = ahead.result() if ahead else self._draw(length, number)
        # While devices train: the next sum of this length finds its mask drawn.
        self._ahead[length] = self._drawing.submit(self._draw, length, number + 1)
        total_N = vector_N.view(WORD) + mask.own_N
        pieces = np.array_split(total_N, size)  # views
        for step in range(size - 1):
            piece = pieces[(rank - step - 1) % size]
            piece += self._exchange(pieces[(rank - step) % size], len(piece), f"{length}|{number}|add {step}")
        for step in range(size - 1):
            piece = pieces[(rank - step) % size]
            piece[:] = self._exchange(pieces[(rank + 1 - step) % size], len(piece), f"{length}|{number}|tell {step}")
        total_N -= mask.total_N
        return total_N.view(np.int64)

    def close(self) -> None:
        """Draw no more masks."""
        self._drawing.shutdown(cancel_futures=True)

    def _draw(self, length: int, number: int) -> Mask:
        own_N, total_N = np.zeros(length, WORD), np.zeros(length, WORD)
        for stream, sign in streams_of(self._rank, self._size):
            add_mask(own_N, self._stream_key(length, number, stream), sign)
        add_mask(total_N, self._stream_key(length, number, 0), 1)
        return Mask(own_N, total_N)

    def _stream_key(self, length: int, number: int, stream: int) -> bytes:
        return subkey(self._key, f"mask|{length}|{number}|{stream}")

    def _exchange(self, sent_N: np.ndarray, size: int, place: str) -> np.ndarray:
        """Send a piece to the right and take one of ``size`` words from the left, each with its digest."""
        content, left = sent_N.tobytes(), (self._rank - 1) % self._size
        message = np.frombuffer(content + self._tag(content, place, self._rank), np.uint8)
        answer = self._pass_on(message, WORD.itemsize * size + TAG_BYTES).tobytes()
        content, tag = answer[:-TAG_BYTES], answer[-TAG_BYTES:]
        if not hmac.compare_digest(tag, self._tag(content, place, left)):
            raise OSError(
                f"worker {self._rank} of {self._size}: what came from worker {left} is not what it sent; look at the "
                "network between them, then run the stage again"
            )
        return np.frombuffer(content, WORD)

    def _tag(self, content: bytes, place: str, sender: int) -> bytes:
        digest = hmac.new(self._tag_key, f"{place}|{sender}|".encode(), "sha256")
        digest.update(content)
        return digest.digest()


def streams_of(rank: int, size: int) -> list[tuple[int, int]]:
    """Streams that make up a worker's mask: number and sign of each."""
    return [(number, sign) for number, sign in ((rank, 1), (rank + 1, -1)) if number < size]
