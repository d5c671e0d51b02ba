"""Workers as threads of this process, and a wire that can be read and changed."""

import hashlib
import hmac
import itertools
import queue
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pytest
from scipy import stats

from federated.workers.masked_sum import TAG_BYTES, MaskedSum, streams_of
from pretrain.randomness.noise import seeded_key

SECRET = seeded_key(5)
EXTREMES = np.array([2**63 - 1, -(2**63), -1, 0, 1], dtype=np.int64)
Change = Callable[[int, int, bytes], bytes]  # of sender, number of the message, and its bytes


@dataclass
class Wire:
    """A ring of queues; ``seen`` holds what each worker sent, ``change`` alters it on the way."""

    size: int
    change: Change = lambda sender, number, content: content
    seen: list[list[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.seen = [[] for _ in range(self.size)]
        self._queues: list[queue.Queue[bytes | None]] = [queue.Queue() for _ in range(self.size)]

    def pass_on(self, rank: int) -> Callable[[np.ndarray, int], np.ndarray]:
        def passed(sent: np.ndarray, size: int) -> np.ndarray:
            content = self.change(rank, len(self.seen[rank]), sent.tobytes())
            self.seen[rank].append(content)
            self._queues[(rank + 1) % self.size].put(content)
            received = self._queues[rank].get(timeout=300)
            if received is None:
                raise ConnectionError("a neighbour is gone")
            assert len(received) == size
            return np.frombuffer(received, np.uint8)

        return passed

    def leave(self, rank: int) -> None:
        """Close the connection to the neighbour that waits for more."""
        self._queues[(rank + 1) % self.size].put(None)


def together(
    rounds: Sequence[Sequence[np.ndarray]], wire: Wire | None = None, secret: bytes = SECRET, attempt: str = "l|s|1"
) -> tuple[list[list[np.ndarray]], Wire]:
    """Sums that each worker gets, by round; ``rounds`` holds each worker's vector."""
    size = len(rounds[0])
    wire = wire or Wire(size)

    def work(rank: int) -> list[np.ndarray]:
        masked = MaskedSum(secret, attempt, rank, size, wire.pass_on(rank))
        try:
            return [masked.add_up(vectors[rank]) for vectors in rounds]
        finally:
            masked.close()
            wire.leave(rank)

    with ThreadPoolExecutor(size) as pool:
        works = [pool.submit(work, rank) for rank in range(size)]
    for each in works:
        if (error := each.exception()) and not isinstance(error, ConnectionError):
            raise error
    return [each.result() for each in works], wire


def some(size: int, length: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-(2**63), 2**63 - 1, length, endpoint=True) for _ in range(size)]


def pieces(wire: Wire) -> list[np.ndarray]:
    """Masked words of every message but the fresh bytes of the beginning."""
    sent = [message for each in wire.seen for message in each[wire.size - 1 :]]
    return [np.frombuffer(message[:-TAG_BYTES], "<u8") for message in sent]


@pytest.fixture
def fixed_fresh_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if workers drew the same bytes whenever they begin: only the rest tells streams apart then."""
    monkeypatch.setattr(secrets, "token_bytes", bytes)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_every_worker_learns_the_plain_sum(size: int) -> None:
    rounds = [some(size, length, length) for length in (1, 2, 3, 1000, 1000, 3, 1000)]
    rounds.append([np.roll(EXTREMES, rank) for rank in range(size)])
    for told in together(rounds)[0]:
        for vectors, total in zip(rounds, told, strict=True):
            with np.errstate(over="ignore"):
                np.testing.assert_array_equal(total, np.sum(vectors, axis=0, dtype=np.int64))


@pytest.mark.parametrize(("size", "modulus"), [(2, 5), (3, 4), (4, 3)])
def test_masks_take_every_value_equally_often_and_add_up_to_the_first_stream(size: int, modulus: int) -> None:
    """By enumeration of all streams over a small modulus: no function of the masked vectors tells of an addend."""
    met: Counter[tuple[int, ...]] = Counter()
    for streams in itertools.product(range(modulus), repeat=size):
        masks = [sum(sign * streams[number] for number, sign in streams_of(rank, size)) for rank in range(size)]
        met[tuple(mask % modulus for mask in masks)] += 1
        assert sum(masks) % modulus == streams[0]
    assert set(met.values()) == {1}
    assert len(met) == modulus**size


def test_the_wire_is_uniform_and_holds_no_addend_no_partial_sum_and_no_total() -> None:
    size, length = 3, 20_000
    vectors = [np.full(length, 7 + rank, dtype=np.int64) for rank in range(size)]
    _, wire = together([vectors])
    words = np.concatenate(pieces(wire))
    assert len(words) == 2 * (size - 1) * length
    readable = {sum(some) for some in itertools.chain(*(itertools.combinations((7, 8, 9), k) for k in (1, 2, 3)))}
    assert not np.isin(words, np.array(sorted(readable), dtype=np.uint64)).any()
    # A piece of the total is told to two neighbours in the same words: seen twice, they would look less than uniform.
    different = np.unique(words)
    assert len(different) == (2 * size - 2) * length - length
    counts = np.bincount(different.view(np.uint8), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-12
    # The test sees what is not masked: the same counts of the vectors themselves.
    plain = np.bincount(np.concatenate(vectors).view(np.uint8), minlength=256)
    assert stats.chisquare(plain).pvalue < 1e-12


def test_no_stream_serves_twice_in_an_attempt() -> None:
    """Two sums of the same vectors, of other vectors, and of another length have nothing in common on the wire."""
    size, length = 2, 64
    rounds = [some(size, length), some(size, length), some(size, length, 1), some(size, length + 1)]
    words = np.concatenate(pieces(together(rounds)[1]))
    # Words are seen twice only where a piece of the total is told to a second neighbour, which two workers have not.
    assert len(np.unique(words)) == len(words) == 2 * (3 * length + length + 1)


def test_an_attempt_that_is_run_again_has_other_streams_and_the_same_sum() -> None:
    vectors = some(3, 50)
    (first, wire), (second, again) = together([vectors]), together([vectors])
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(pieces(wire), pieces(again), strict=True):
        assert not (one == other).any()


@pytest.mark.usefixtures("fixed_fresh_bytes")
def test_launch_stage_and_attempt_separate_streams_by_themselves() -> None:
    vectors = some(2, 50)
    seen = [pieces(together([vectors], attempt=name)[1]) for name in ("l|s|1", "l|s|1", "l|s|2", "l|t|1", "m|s|1")]
    assert all((one == other).all() for one, other in zip(seen[0], seen[1], strict=True))
    for one, other in itertools.combinations(seen[1:], 2):
        assert not any((a == b).any() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("flipped", [0, 63, -1])
def test_one_changed_bit_is_refused(place: int, flipped: int) -> None:
    """Of words, also their highest bit, and of digests; while adding up and while telling."""

    def change(sender: int, number: int, content: bytes) -> bytes:
        if sender != 1 or number != 2 + place:
            return content
        altered = bytearray(content)
        altered[flipped] ^= 0x80
        return bytes(altered)

    with pytest.raises(OSError, match="what came from worker 1 is not what it sent"):
        together([some(3, 30)], Wire(3, change))


@pytest.mark.parametrize(
    ("rounds", "first"),
    [
        ([some(2, 8), some(2, 8)], 1),
        # Of the same sum: what worker 0 adds in its first step, in its second one.
        ([some(3, 30)], 2),
    ],
    ids=["another sum", "another place"],
)
def test_a_message_of_elsewhere_is_refused(rounds: list[list[np.ndarray]], first: int) -> None:
    kept: list[bytes] = []

    def change(sender: int, number: int, content: bytes) -> bytes:
        if sender == 0 and number == first:
            kept.append(content)
        return kept[0] if sender == 0 and number == 3 else content

    with pytest.raises(OSError, match="what came from worker 0 is not what it sent"):
        together(rounds, Wire(len(rounds[0]), change))


def test_only_who_has_the_secret_can_make_a_digest() -> None:
    def change(sender: int, number: int, content: bytes) -> bytes:
        if sender == 0 and number == 1:
            place = b"8|0|add 0|0|"
            words = bytes(len(content) - TAG_BYTES)
            return words + hmac.new(bytes(32), place + words, hashlib.sha256).digest()
        return content

    with pytest.raises(OSError, match="not what it sent"):
        together([some(2, 8)], Wire(2, change))


@pytest.mark.usefixtures("fixed_fresh_bytes")
def test_workers_with_different_secrets_refuse_each_other() -> None:
    wire, wanted = Wire(2), some(2, 8)

    def work(rank: int) -> str:
        masked = MaskedSum(seeded_key(rank), "l|s|1", rank, 2, wire.pass_on(rank))
        try:
            masked.add_up(wanted[rank])
        except OSError as error:
            return str(error)
        finally:
            masked.close()
            wire.leave(rank)
        return ""

    with ThreadPoolExecutor(2) as pool:
        assert all("not what it sent" in text for text in pool.map(work, range(2)))


def test_fresh_bytes_that_are_changed_on_the_way_are_noticed() -> None:
    with pytest.raises(OSError, match="not what it sent"):
        together([some(2, 8)], Wire(2, lambda sender, number, content: content if number or sender else bytes(32)))
