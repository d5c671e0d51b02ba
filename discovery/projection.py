"""Coverage that a discovery may reach at each epsilon, projected from public text alone.

Which epsilon0 a launch should ask for must not be tried out on its devices. Here part of the public
vocabulary plays the new words, pretended typists draw their words from the public text, and the
server's own rules choose from votes drawn by ``tuning``. Real devices type other words, so this is
a projection of the shape of the curve and no promise of its height.

Shape legend: V pretended new words, M candidates of a layer, d domain.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from discovery.config import DiscoveryConfig
from discovery.device.answer import END, Question
from discovery.results import ProjectedCoverage
from discovery.trie import choose, question_of, word_votes
from discovery.tuning import PublicHistogram, votes_for_tuning_only

EPSILONS = (1.0, 2.0, 4.0, 6.0, 8.0, 10.0)
HELD_OUT_OF = 20
_MOST_WORDS = 200_000


@dataclass(frozen=True)
class PretendedTypists:
    """Typists who draw words independently from public text, of which some are taken for unknown.

    Attributes:
      source: where everybody can get the text.
      known: words that a device leaves out.
      words: V words that are not known, most frequent first.
      shares_V: float64, of all running words, known ones included.
      wanted_V: bool, the words that coverage is about; the others only compete for messages and prefixes.
      words_per_device: mean of a Poisson number of running words.

    Raises:
      ValueError: no source, or no wanted word.
    """

    source: str
    known: frozenset[str]
    words: tuple[str, ...]
    shares_V: np.ndarray
    wanted_V: np.ndarray
    devices: int
    words_per_device: int

    def __post_init__(self) -> None:
        if not self.source.strip():
            raise ValueError("source: it is empty; say where this text is published, or do not simulate with it")
        if not self.wanted_V.any():
            raise ValueError(f"words: none is held out; a projection needs a vocabulary of {HELD_OUT_OF} words or more")


def typists(
    source: str, counts: Mapping[str, int], vocabulary: Sequence[str], devices: int, words_per_device: int
) -> PretendedTypists:
    """Every 20th word of a public vocabulary plays a new word that is wanted; words outside of it are new as well.

    Args:
      counts: how often each word occurs in public text.
      vocabulary: known words, most frequent first.
    """
    known = frozenset(word for place, word in enumerate(vocabulary, start=1) if place % HELD_OUT_OF)
    total = sum(counts.values())
    new = sorted(((count, word) for word, count in counts.items() if word not in known), key=lambda w: (-w[0], w[1]))
    held_out, words = set(vocabulary) - known, tuple(word for _, word in new[:_MOST_WORDS])
    return PretendedTypists(
        source=source,
        known=known,
        words=words,
        shares_V=np.array([counts[word] for word in words], dtype=np.float64) / max(total, 1),
        wanted_V=np.array([word in held_out for word in words], dtype=bool),
        devices=devices,
        words_per_device=words_per_device,
    )


def project(
    pretended: PretendedTypists, alphabet: str, config: DiscoveryConfig, epsilons: Sequence[float], seed: int
) -> tuple[ProjectedCoverage, ...]:
    """One simulated discovery at each epsilon, ascending. It reads public text only and has no privacy to lose.

    Args:
      alphabet: letters that words may hold, without ``END``.
    """
    letters = "".join(sorted(set(alphabet) - {END})) + END
    layers = _layers(pretended, letters, config)
    return tuple(
        _discover(pretended, letters, layers, config.model_copy(update={"epsilon0": epsilon0}), seed)
        for epsilon0 in sorted(set(epsilons))
    )


def spoken_chances(rates_M: np.ndarray, config: DiscoveryConfig) -> np.ndarray:
    """Chance that one device sends each candidate, float64 ``[M]``; they sum to at most C.

    Args:
      rates_M: mean number of times that a device types each candidate; the numbers are Poisson.
    """
    slots = config.messages_per_device
    if config.sampler == "random":
        present_M = -np.expm1(-rates_M)
        # Of a candidate's rivals the number is Poisson too: C of them and itself are drawn from.
        most = float(present_M.sum())
        rivals = np.arange(int(most + 12 * np.sqrt(most) + 12))
        taken = float(stats.poisson.pmf(rivals, most) @ np.minimum(1.0, slots / (rivals + 1)))
        return present_M * min(taken, slots / most if most else 1.0)
    # Greedy: all that a device typed more often than some number, and a part of those typed just so often.
    often = 0
    while stats.poisson.sf(often, rates_M).sum() > slots:
        often += 1
    above_M, just_M = stats.poisson.sf(often, rates_M), stats.poisson.pmf(often, rates_M)
    room = slots - above_M.sum()
    return above_M + just_M * min(1.0, room / just_M.sum()) if often else above_M


@dataclass(frozen=True)
class _Layer:
    """Candidates of one layer: strings, the place of each one's prefix among those before, and of each word's own."""

    candidates: tuple[str, ...]
    parent_M: np.ndarray
    candidate_V: np.ndarray  # -1 for a word that says nothing in this layer


def _layers(pretended: PretendedTypists, letters: str, config: DiscoveryConfig) -> list[_Layer]:
    typed = frozenset(letters) - {END}
    sayable_V = np.array([len(word) < config.layers and typed.issuperset(word) for word in pretended.words])
    length_V = np.array([len(word) + 1 for word in pretended.words])
    before: dict[str, int] = {"": 0}
    layers = []
    for layer in range(1, config.layers + 1):
        speaking = np.flatnonzero(sayable_V & (length_V >= layer))
        starts = [(pretended.words[word] + END)[:layer] for word in speaking.tolist()]
        places = {candidate: place for place, candidate in enumerate(dict.fromkeys(starts))}
        candidate_V = np.full(len(length_V), -1)
        candidate_V[speaking] = [places[start] for start in starts]
        parent_M = np.array([before[candidate[:-1]] for candidate in places], dtype=np.int64)
        layers.append(_Layer(tuple(places), parent_M, candidate_V))
        before = places
    return layers


def _discover(
    pretended: PretendedTypists, letters: str, layers: list[_Layer], config: DiscoveryConfig, seed: int
) -> ProjectedCoverage:
    asked = pretended.devices // (config.layers * config.passes)
    answering = int(asked * (1 - config.dropout))
    numbers = {word: number for number, word in enumerate(pretended.words)}
    found: set[str] = set()
    for pass_number in range(1, config.passes + 1):
        silent_V = np.isin(np.arange(len(numbers)), [numbers[word] for word in found if word in numbers])
        rates_V = np.where(silent_V, 0.0, pretended.words_per_device * pretended.shares_V)
        known = pretended.known | found
        prefixes: tuple[str, ...] = ("",)
        alive_M = np.ones(1, dtype=bool)
        for layer, kept in enumerate(layers, start=1):
            question = question_of(pass_number, layer, prefixes, letters, known, config)
            speaking = kept.candidate_V >= 0
            rates_M = np.bincount(kept.candidate_V[speaking], rates_V[speaking], minlength=len(kept.candidates))
            rates_M *= alive_M[kept.parent_M]
            messages = answering * config.messages_per_device
            if not messages:
                break
            place = (seed, pass_number, layer)
            counts_d = _counts(question, kept, rates_M, messages, np.random.default_rng((*place, 0)))
            votes_d = votes_for_tuning_only(
                PublicHistogram(pretended.source, counts_d), question.randomizer, (*place, 1), "marginal"
            )
            prefixes, words = choose(question, votes_d, messages, word_votes(question, messages))
            found |= {word.word for word in words}
            survivors = set(prefixes)
            alive_M = np.array([candidate in survivors for candidate in kept.candidates], dtype=bool)
            if not prefixes:
                break
    real = [numbers[word] for word in found if word in numbers]
    wanted_V = np.where(pretended.wanted_V, pretended.shares_V, 0.0)
    return ProjectedCoverage(
        epsilon0=config.epsilon0,
        coverage=float(wanted_V[real].sum() / wanted_V.sum()),
        words=len(found),
        false_words=len(found) - len(real),
    )


def _counts(
    question: Question, kept: _Layer, rates_M: np.ndarray, messages: int, rng: np.random.Generator
) -> np.ndarray:
    """Messages that hold each item, int64 ``[d]``, None included."""
    speaking = np.flatnonzero(rates_M)
    chances = spoken_chances(rates_M[speaking], question.config) / question.config.messages_per_device
    drawn = rng.multinomial(messages, np.append(chances, max(1 - chances.sum(), 0.0)))
    counts_d = np.zeros(question.broadcast.domain, dtype=np.int64)
    counts_d[[question.broadcast.item(kept.candidates[place]) for place in speaking.tolist()]] = drawn[:-1]
    counts_d[question.broadcast.none] = drawn[-1]
    return counts_d
