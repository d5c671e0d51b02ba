"""Coverage of word lists: measured on held-out devices, and at each epsilon projected from public text alone.

A launch must not tune epsilon0 on its own devices. So part of the public vocabulary stands for new words,
simulated typists draw their words from the public text, and the server's own rules select from votes drawn
from those public counts. This has no privacy, so only a ``PublicHistogram`` is accepted; the cost does not
grow with the number of messages. Real devices type other words, so the projection shows the shape of the
curve, not its level.

Shape legend: V simulated new words, M candidates of a layer, d domain.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from discovery.config import TrieConfig
from discovery.device.answer import END, Question, letters_of, spelling
from discovery.device.randomizer import SubsetSelection
from discovery.participation import group_sizes
from discovery.results import ProjectedCoverage
from discovery.selection import word_votes
from discovery.trie import choose, question_of

EPSILONS = (1.0, 2.0, 4.0, 6.0, 8.0, 10.0)
HELD_OUT_OF = 20
_MOST_WORDS = 200_000
_MOST_MESSAGES = 10**9


@dataclass(frozen=True)
class PretendedTypists:
    """Simulated typists who draw words independently from public text, with some words treated as OOV.

    Attributes:
      source: public source of the text.
      known_words: words that a device leaves out.
      words: V others, most frequent first.
      shares_V: float64, shares of all running words, including the ones left out.
      wanted_V: bool, the words of the coverage figure; the others only compete for messages and prefixes.
      words_per_device: mean of a Poisson number of running words.

    Raises:
      ValueError: no source, or no wanted word.
    """

    source: str
    known_words: frozenset[str]
    words: tuple[str, ...]
    shares_V: np.ndarray
    wanted_V: np.ndarray
    devices: int
    words_per_device: int

    def __post_init__(self) -> None:
        if not self.source.strip():
            raise ValueError("source: it is empty; name the public source of this text, or do not simulate with it")
        if not self.wanted_V.any():
            raise ValueError(f"words: none is held out; a projection needs a vocabulary of {HELD_OUT_OF} words or more")


def typists(
    source: str, counts: Mapping[str, int], vocabulary: Sequence[str], devices: int, words_per_device: int
) -> PretendedTypists:
    """Simulated typists: every 20th word of a public vocabulary is a wanted new word; words outside it are new as well.

    Args:
      counts: number of occurrences of each word in public text.
      vocabulary: known words, most frequent first.
    """
    known_words = frozenset(word for place, word in enumerate(vocabulary, start=1) if place % HELD_OUT_OF)
    total = sum(counts.values())
    new = sorted((-count, word) for word, count in counts.items() if word not in known_words)
    held_out, words = set(vocabulary) - known_words, tuple(word for _, word in new[:_MOST_WORDS])
    return PretendedTypists(
        source=source,
        known_words=known_words,
        words=words,
        shares_V=np.array([counts[word] for word in words], dtype=np.float64) / max(total, 1),
        wanted_V=np.array([word in held_out for word in words], dtype=bool),
        devices=devices,
        words_per_device=words_per_device,
    )


def project(
    pretended: PretendedTypists, alphabet: str, config: TrieConfig, epsilons: Sequence[float], seed: int
) -> tuple[ProjectedCoverage, ...]:
    """One simulated discovery at each epsilon, ascending. It reads public text only, so it costs no privacy.

    Args:
      alphabet: letters that words may hold, without ``END``.
    """
    letters = letters_of(alphabet)
    layers = _layers(pretended, letters, config)
    return tuple(
        _discover(pretended, letters, layers, config.model_copy(update={"epsilon0": epsilon0}), seed)
        for epsilon0 in sorted(set(epsilons))
    )


def spoken_chances(rates_M: np.ndarray, config: TrieConfig) -> np.ndarray:
    """Probability that one device sends each candidate, float64 ``[M]``; they sum to at most C.

    Args:
      rates_M: mean number of times that a device types each candidate; the numbers are Poisson.
    """
    slots = config.messages_per_device
    present_M = -np.expm1(-rates_M)
    # The number of a candidate's rivals is Poisson too; C items are drawn from them and the candidate.
    most = float(present_M.sum())
    rivals = np.arange(int(most + 12 * np.sqrt(most) + 12))
    taken = float(stats.poisson.pmf(rivals, most) @ np.minimum(1.0, slots / (rivals + 1)))
    return present_M * min(taken, slots / most if most else 1.0)


@dataclass(frozen=True)
class PublicHistogram:
    """Public counts of items: of a published word list or corpus, never of devices.

    Attributes:
      source: public source, with the licence.
      counts_d: int64 ``[d]``, messages that hold each item, None last.

    Raises:
      ValueError: no source, or counts that are not whole numbers of at least 0.
    """

    source: str
    counts_d: np.ndarray

    def __post_init__(self) -> None:
        if not self.source.strip():
            raise ValueError(
                "source: it is empty; name the public source of these counts, or do not simulate with them"
            )
        counts = self.counts_d
        if not (isinstance(counts, np.ndarray) and counts.ndim == 1 and np.issubdtype(counts.dtype, np.integer)):
            raise ValueError("counts_d: expected one row of whole numbers; words of devices cannot be simulated with")
        if np.any(counts < 0) or not 0 < counts.sum() < _MOST_MESSAGES:
            raise ValueError(
                f"counts_d: the counts must be at least 0 and add up to between 1 and {_MOST_MESSAGES - 1}"
            )


def votes_for_tuning_only(
    histogram: PublicHistogram, randomizer: SubsetSelection, seed: int | tuple[int, ...]
) -> np.ndarray:
    """Simulated sum of honest messages, int64 ``[d]``, from a public seed. Not a private mechanism.

    Each item's votes are drawn independently, from their true distribution; their sum is not k per message.

    Raises:
      ValueError: anything but a public histogram of the randomiser's domain.
    """
    if not isinstance(histogram, PublicHistogram):
        raise ValueError(f"histogram: got {type(histogram).__name__}; only a PublicHistogram may be simulated with")
    if len(histogram.counts_d) != randomizer.domain:
        raise ValueError(f"histogram: {len(histogram.counts_d)} items, but the domain has {randomizer.domain}")
    rng, counts_d = np.random.default_rng(seed), histogram.counts_d
    messages = int(counts_d.sum())
    return rng.binomial(counts_d, randomizer.inclusion) + rng.binomial(messages - counts_d, randomizer.background)


@dataclass(frozen=True)
class _Layer:
    """Candidates of one layer: strings, the index of each one's prefix, and the candidate index of each word."""

    candidates: tuple[str, ...]
    parent_M: np.ndarray
    candidate_V: np.ndarray  # -1 for a word without a candidate in this layer


def _layers(pretended: PretendedTypists, letters: str, config: TrieConfig) -> list[_Layer]:
    typed = frozenset(letters) - {END}
    paths = [spelling(word) for word in pretended.words]
    sayable_V = np.array(
        [path.index(END) < config.layers and typed.issuperset(path[: path.index(END)]) for path in paths]
    )
    length_V = np.array(list(map(len, paths)))
    before: dict[str, int] = {"": 0}
    layers = []
    for layer in range(1, config.layers + 1):
        speaking = np.flatnonzero(sayable_V & (length_V >= layer))
        starts = [paths[word][:layer] for word in speaking.tolist()]
        places = {candidate: place for place, candidate in enumerate(dict.fromkeys(starts))}
        candidate_V = np.full(len(length_V), -1)
        candidate_V[speaking] = [places[start] for start in starts]
        parent_M = np.array([before[candidate[:-1]] for candidate in places], dtype=np.int64)
        layers.append(_Layer(tuple(places), parent_M, candidate_V))
        before = places
    return layers


def _discover(
    pretended: PretendedTypists, letters: str, layers: list[_Layer], config: TrieConfig, seed: int
) -> ProjectedCoverage:
    sizes = group_sizes(pretended.devices, config, pretended.known_words)
    numbers = {word: number for number, word in enumerate(pretended.words)}
    rates_V = pretended.words_per_device * pretended.shares_V
    discovered: set[str] = set()
    prefixes: tuple[str, ...] = ("",)
    alive_M = np.ones(1, dtype=bool)
    for number, layer in enumerate(layers if pretended.devices >= config.layers else (), start=1):
        question = question_of(number, prefixes, letters, pretended.known_words, config)
        speaking = layer.candidate_V >= 0
        rates_M = np.bincount(layer.candidate_V[speaking], rates_V[speaking], minlength=len(layer.candidates))
        rates_M *= alive_M[layer.parent_M]
        place, messages = (seed, number), sizes[number - 1] * config.messages_per_device
        counts_d = _counts(question, layer, rates_M, messages, np.random.default_rng((*place, 0)))
        votes_d = votes_for_tuning_only(PublicHistogram(pretended.source, counts_d), question.randomizer, (*place, 1))
        chosen = choose(question, votes_d, messages, word_votes(question, votes_d, messages))
        discovered |= {word.word for word in chosen.words}
        prefixes, survivors = chosen.prefixes, set(chosen.prefixes)
        alive_M = np.array([candidate in survivors for candidate in layer.candidates], dtype=bool)
        if not prefixes:
            break
    real = [numbers[word] for word in discovered if word in numbers]
    wanted_V = np.where(pretended.wanted_V, pretended.shares_V, 0.0)
    return ProjectedCoverage(
        epsilon0=config.epsilon0,
        coverage=float(wanted_V[real].sum() / wanted_V.sum()),
        words=len(discovered),
        false_words=len(discovered) - len(real),
    )


def _counts(
    question: Question, layer: _Layer, rates_M: np.ndarray, messages: int, rng: np.random.Generator
) -> np.ndarray:
    """Messages that hold each item, int64 ``[d]``, including None."""
    speaking = np.flatnonzero(rates_M)
    chances = spoken_chances(rates_M[speaking], question.config) / question.config.messages_per_device
    drawn = rng.multinomial(messages, np.append(chances, max(1 - chances.sum(), 0.0)))
    counts_d = np.zeros(question.broadcast.domain, dtype=np.int64)
    for place, count in zip(speaking.tolist(), drawn[:-1].tolist(), strict=True):
        item = question.broadcast.item(layer.candidates[place])
        assert item is not None  # a candidate whose prefix died has rate 0
        counts_d[item] = count
    counts_d[question.broadcast.none] = drawn[-1]
    return counts_d


def coverage(
    listed: Collection[str], unknown_counts_D: Sequence[Mapping[str, int]], confidence: float
) -> tuple[float, float, float]:
    """Share of held-out devices' out-of-vocabulary tokens that the listed words would cover, with its interval.

    The interval is the normal one of a ratio of sums over devices, since words of one device are correlated. It
    carries no noise: held-out devices are not protected. A single device gives no variance, so the interval is
    [0, 1].

    Args:
      unknown_counts_D: for each device, occurrences of each word outside the base vocabulary.

    Returns:
      The share and both ends; zeros where devices typed no such token.

    Raises:
      ValueError: a confidence outside (0, 1).
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: got {confidence}, expected within (0, 1)")
    words = set(listed)
    covered_D = np.array([sum(counts.get(word, 0) for word in words) for counts in unknown_counts_D])
    total_D = np.array([sum(counts.values()) for counts in unknown_counts_D])
    total, devices = int(total_D.sum()), len(total_D)
    share = float(covered_D.sum()) / total if total else 0.0
    if devices < 2:
        return share, 0.0, 1.0
    if not total:
        return 0.0, 0.0, 0.0
    residual_D = covered_D - share * total_D
    deviation = math.sqrt(devices / (devices - 1) * float(residual_D @ residual_D)) / total
    reach = float(stats.norm.ppf((1 + confidence) / 2)) * deviation
    return share, max(share - reach, 0.0), min(share + reach, 1.0)
