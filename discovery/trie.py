"""One layer of LDP TrieHH: ask, add up, choose (Sun & Sun 2024, algorithm 2).

The server sees summed votes only; raw messages are never stored.
"""

from collections.abc import Sequence

import numpy as np

from discovery.amplification import clones
from discovery.anonymity import significant_votes
from discovery.attack import attack
from discovery.blanket import blanket
from discovery.config import DiscoveryConfig
from discovery.device import END, Broadcast, report, spoken_item
from discovery.encoding import message_bytes
from discovery.keystream import Keystream
from discovery.randomizer import SubsetSelection, estimate, estimate_deviation, subset_selection
from discovery.results import Bounds, FoundWord, Layer, LayerState

# Fewer devices have answered one by one before the batched route is compiled.
_WORTH_COMPILING = 5_000
_CHUNK_DEVICES = 50_000


def run_layer(
    broadcast: Broadcast,
    group: np.ndarray,
    device_words: Sequence[Sequence[str]],
    known: frozenset[str],
    config: DiscoveryConfig,
    key: bytes,
) -> LayerState:
    """Ask the devices of a group, int64 numbers; choose prefixes for the next layer and finished words."""
    randomizer = subset_selection(config.epsilon0, broadcast.domain)
    ask = ask_together if len(group) >= _WORTH_COMPILING else ask_one_by_one
    votes_d = ask(group, device_words, known, broadcast, randomizer, config, key)
    messages = len(group) * config.messages_per_device
    if votes_d.sum() != messages * randomizer.size:
        raise ArithmeticError(f"layer {broadcast.layer}: {votes_d.sum()} votes, expected {messages * randomizer.size}")
    survivors, words = choose(votes_d, randomizer, messages, broadcast, config)
    bounds = certify(randomizer, messages, config.delta)
    row = Layer(
        layer=broadcast.layer,
        messages=messages,
        domain=broadcast.domain,
        kept=len(survivors),
        finished=len(words),
        epsilon_central=bounds.clones,
    )
    return LayerState(row=row, prefixes=survivors, words=words, bounds=bounds)


def choose(
    votes_d: np.ndarray, randomizer: SubsetSelection, messages: int, broadcast: Broadcast, config: DiscoveryConfig
) -> tuple[tuple[str, ...], tuple[FoundWord, ...]]:
    """Survivors, sorted, and words among the ``max_prefixes`` candidates with most votes.

    Post-processing of votes. Only words must stand out from noise: asking it of prefixes would cost more
    words than it saves, since a false prefix rarely ends in a false word.
    """
    needed = significant_votes(randomizer, messages, config.significance_z)
    estimates_d = estimate(randomizer, votes_d, messages)
    deviations_d = estimate_deviation(randomizer, estimates_d, messages)
    survivors, words = [], []
    # Most votes first; equals in the order of the domain, which no device can influence.
    for item in np.argsort(-votes_d[:-1], kind="stable")[: config.max_prefixes].tolist():
        if estimates_d[item] <= 0:
            break
        candidate = broadcast.candidate(item)
        if not candidate.endswith(END):
            survivors.append(candidate)
        elif votes_d[item] >= needed:
            share, spread = estimates_d[item] / messages, 1.96 * deviations_d[item] / messages
            words.append(
                FoundWord(
                    word=candidate[:-1],
                    layer=broadcast.layer,
                    share=share,
                    low=max(share - spread, 0.0),
                    high=min(share + spread, 1.0),
                )
            )
    return tuple(sorted(survivors)), tuple(words)


def certify(randomizer: SubsetSelection, messages: int, delta: float) -> Bounds:
    """Central epsilon of a layer's messages by both certificates, and what an attack reaches.

    Raises:
      ArithmeticError: the attack beats a certificate, which is then wrong.
    """
    bounds = Bounds(
        clones=clones(randomizer.epsilon0, messages, delta),
        blanket=blanket(randomizer, messages, delta),
        attack=attack(randomizer, messages, delta),
        message_bytes=message_bytes(randomizer),
    )
    if bounds.attack > min(bounds.clones, bounds.blanket) * (1 + 1e-9):
        raise ArithmeticError(f"certificates {bounds.clones}, {bounds.blanket} are below the attack's {bounds.attack}")
    return bounds


def ask_one_by_one(
    group: np.ndarray,
    device_words: Sequence[Sequence[str]],
    known: frozenset[str],
    broadcast: Broadcast,
    randomizer: SubsetSelection,
    config: DiscoveryConfig,
    key: bytes,
) -> np.ndarray:
    """Votes of a group, int64 ``[d]``: every device reports by itself."""
    votes_d = np.zeros(broadcast.domain, dtype=np.int64)
    for device in group.tolist():
        bits = Keystream(key, broadcast.stream, device)
        messages_Ck = report(device_words[device], known, broadcast, randomizer, config, bits)
        np.add.at(votes_d, messages_Ck.ravel(), 1)
    return votes_d


def ask_together(
    group: np.ndarray,
    device_words: Sequence[Sequence[str]],
    known: frozenset[str],
    broadcast: Broadcast,
    randomizer: SubsetSelection,
    config: DiscoveryConfig,
    key: bytes,
) -> np.ndarray:
    """The same votes to the bit, with the devices' work done in batches."""
    # Imported here: numba takes a second that small discoveries do not need.
    from discovery.votes import add_votes

    votes_d = np.zeros(broadcast.domain, dtype=np.int64)
    items_of = _Items(known, broadcast, config)
    for first in range(0, len(group), _CHUNK_DEVICES):
        devices = group[first : first + _CHUNK_DEVICES]
        starts, items, counts = _candidates([device_words[device] for device in devices.tolist()], items_of)
        unanswered = add_votes(
            votes_d,
            randomizer,
            devices,
            starts,
            items,
            counts,
            config.messages_per_device,
            config.sampler == "greedy",
            key,
            broadcast.stream,
        )
        votes_d += ask_one_by_one(unanswered, device_words, known, broadcast, randomizer, config, key)
    return votes_d


class _Items(dict[str, int]):
    """Word -> its item, -1 for silence; each distinct word is looked at once."""

    def __init__(self, known: frozenset[str], broadcast: Broadcast, config: DiscoveryConfig) -> None:
        self._question = known, broadcast, config

    def __missing__(self, word: str) -> int:
        item = spoken_item(word, *self._question)
        self[word] = -1 if item is None else item
        return self[word]


def _candidates(words_N: list[Sequence[str]], items_of: _Items) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each device's distinct items, ascending, with counts; device i has ``starts[i]:starts[i + 1]``."""
    sizes_N = [len(words) for words in words_N]
    spoken = np.fromiter((items_of[word] for words in words_N for word in words), dtype=np.int64, count=sum(sizes_N))
    owners = np.repeat(np.arange(len(words_N)), sizes_N)
    width = int(spoken.max(initial=0)) + 1
    pairs, counts = np.unique(owners[spoken >= 0] * width + spoken[spoken >= 0], return_counts=True)
    starts = np.searchsorted(pairs, np.arange(len(words_N) + 1) * width)
    return starts, pairs % width, counts
