"""A discovery that several processes make together: the same to the bit, written by one, gone on with by others."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from discovery import discover as trie
from discovery import state
from discovery.config import TrieConfig
from discovery.device.votes import Share
from discovery.results import DiscoveryResult

KEY, LETTERS = bytes(range(32)), "abcdefghijklmnopqrstuvwxyz"
CONFIG = TrieConfig(
    kind="ldp-triehh",
    epsilon0=8.0,
    delta=1e-6,
    messages_per_device=3,
    honest_share=1.0,
    layers=5,
    max_prefixes=20,
)


def devices() -> list[list[str]]:
    rng = np.random.default_rng(0)
    return [["the", f"w{'abcdefghij'[device % 10]}", *rng.choice(["haha", "lol"], 2).tolist()] for device in range(401)]


class Sums:
    """Sums of integers over threads, which wait for each other."""

    def __init__(self, size: int) -> None:
        self.seen: list[list[np.ndarray]] = []
        self._parts: list[np.ndarray] = [np.empty(0)] * size
        self.barrier = threading.Barrier(size, timeout=300)

    def add_up(self, rank: int, vector_N: np.ndarray) -> np.ndarray:
        self._parts[rank] = vector_N
        if self.barrier.wait() == 0:
            self.seen.append(list(self._parts))
        self.barrier.wait()
        total_N = np.sum(self._parts, axis=0, dtype=np.int64)
        self.barrier.wait()
        return total_N


def run(folder: Path, processes: int | Share) -> DiscoveryResult:
    people = devices()
    return trie.discover(
        people,
        known_words=frozenset({"the"}),
        alphabet=LETTERS,
        config=CONFIG,
        key=KEY,
        directory=folder,
        processes=processes,
    )


def together(folder: Path, size: int, writing: Callable[[], Iterator[None]] | None = None) -> tuple[list, Sums]:
    """Results of all shares, or what each raised."""
    sums, written = Sums(size), {"writing": contextmanager(writing)} if writing else {}

    def one(rank: int) -> DiscoveryResult | Exception:
        try:
            return run(folder, Share(rank, size, partial(sums.add_up, rank), **written))
        except (OSError, threading.BrokenBarrierError) as error:
            sums.barrier.abort()
            return error

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(one, range(size))), sums


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[DiscoveryResult, dict[str, bytes]]:
    folder = tmp_path_factory.mktemp("alone")
    return run(folder, 1), files(folder)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
def test_any_number_of_shares_finds_the_same_and_leaves_the_same(tmp_path: Path, alone, size: int) -> None:
    results, sums = together(tmp_path, size)
    assert all(result == alone[0] for result in results)
    assert {word.word for word in alone[0].words} >= {"haha", "lol"}
    assert files(tmp_path) == alone[1]
    # Nobody asked all devices of a layer, and everybody some.
    assert all(part.sum() > 0 for parts in sums.seen for part in parts)
    assert len(sums.seen) == len(alone[0].rows)


@pytest.mark.slow
def test_a_share_that_is_lost_or_shut_out_leaves_layers_to_go_on_from(tmp_path: Path, alone) -> None:
    """The first process may not write the third layer; the next attempt is of another size."""
    written = []

    def shut_out() -> Iterator[None]:
        if len(written) == 2:
            raise PermissionError("a newer attempt has begun")
        written.append(1)
        yield

    results, _ = together(tmp_path, 3, shut_out)
    assert isinstance(results[0], PermissionError)
    assert all(isinstance(result, threading.BrokenBarrierError) for result in results[1:])
    assert [state.load(tmp_path, layer) is not None for layer in (1, 2, 3)] == [True, True, False]
    results, sums = together(tmp_path, 2)
    assert all(result == alone[0] for result in results)
    assert files(tmp_path) == alone[1]
    assert len(sums.seen) == len(alone[0].rows) - 2
    assert run(tmp_path, 1) == alone[0]  # the stage itself, which finds all layers finished
