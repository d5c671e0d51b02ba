"""Projected privacy of local and central discovery for a given population size, before any device is asked."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from discovery import participation
from discovery.central.select import cut_of
from discovery.certificates.group import device, honest_messages
from discovery.config import CentralConfig, TrieConfig
from discovery.device.answer import letters_of
from discovery.device.randomizer import SubsetSelection, subset_selection
from discovery.selection import rounded_down, significant_votes

# Devices from which a local discovery has the layers and prefixes of long words.
MANY = 20_000
# Deviations above noise at which a rare word of a large layer is found, where the rate of false words is the usual one.
_FOUND_DEVIATIONS = 4.0
# Words beyond a base vocabulary that a share of people types, and their part of all that is typed: public talk in
# ``benchmarks/results/vocabulary.md``, from which typed chat differs by a third at most.
_TYPED_BY = (0.1, 0.05, 0.03, 0.02, 0.01, 0.005, 0.002, 0.001)
_BEYOND = {
    4_000: ((5, 14, 56, 118, 334, 836, 2_141, 3_959), (0.009, 0.017, 0.030, 0.044, 0.069, 0.098, 0.131, 0.151)),
    8_000: ((3, 8, 28, 63, 188, 536, 1_528, 2_976), (0.005, 0.010, 0.017, 0.024, 0.040, 0.060, 0.085, 0.101)),
    20_000: ((1, 3, 13, 28, 100, 296, 931, 1_894), (0.002, 0.004, 0.008, 0.011, 0.020, 0.032, 0.049, 0.060)),
}
# Text messages have this many times as many, which are at most this part of what is typed; bloggers have so many times
# those of public talk, where public text has typed chat.
_TEXTERS, _MOST_COVERED, _BLOGGERS = 5, 0.25, 0.4
# Distinct words beyond a base vocabulary on a device that holds a frequent one: the fewest and the most of the six
# populations in the same page.
_HELD = {4_000: (13, 61), 8_000: (12, 49), 20_000: (8, 36)}


@dataclass(frozen=True)
class LocalOutlook:
    """Projected privacy and reach of a local discovery.

    Attributes:
      local: epsilon of a whole device against any collector of its messages.
      shuffled: the same at ``delta`` if nobody can link messages, for the devices of the smallest layer and the items
        of a layer with a single surviving prefix. A layer with only finished words has fewer items; the discovery then
        states its actual cost.
    """

    local: float
    shuffled: float
    delta: float


def local(config: TrieConfig, devices: int, alphabet: str, known_words: Collection[str] | None = None) -> LocalOutlook:
    """Privacy and reach of a local discovery over this alphabet, for a given number of training devices.

    Args:
      known_words: of the public vocabulary, which determine the devices of each layer; without them, the largest
        possible number of candidates is assumed.
    """
    most, letters = config.messages_per_device, len(letters_of(alphabet))
    if known_words is None:
        alive_L = np.minimum(float(letters) ** np.arange(1, config.layers + 1), config.max_prefixes)
    else:
        alive_L = participation.alive(config, known_words)
    fewest = rounded_down(participation.fewest(devices, alive_L))
    randomizer = subset_selection(config.epsilon0, letters + 1)
    honest = honest_messages(fewest * most, most, config.honest_share)
    return LocalOutlook(
        local=most * config.epsilon0,
        shuffled=device(randomizer, honest, most, config.delta),
        delta=config.delta,
    )


def _layer(config: TrieConfig, devices: int, alphabet: str) -> tuple[int, SubsetSelection, int]:
    """Messages of a device, their law and their number, in a layer of average size and the largest domain."""
    most, domain = config.messages_per_device, config.max_prefixes * len(letters_of(alphabet)) + 1
    messages = max(devices // config.layers, 1) * most
    return most, subset_selection(config.epsilon0, domain), messages


def local_share(config: TrieConfig, devices: int, alphabet: str) -> float:
    """Share of devices that must hold a word for a local discovery to find it with probability 1/2.

    The last layers ask for words of which few are left, so that a device hardly chooses among its own.
    """
    most, randomizer, messages = _layer(config, devices, alphabet)
    needed = significant_votes(randomizer, messages, float(stats.norm.sf(_FOUND_DEVIATIONS)))
    share = (needed / messages - randomizer.background) / (randomizer.inclusion - randomizer.background)
    return min(share * most, 1.0)


def least_share(config: CentralConfig, devices: int, held: float) -> float:
    """Share of devices that must hold a word for a central discovery to find it with probability 1/2.

    Args:
      held: distinct words beyond the vocabulary on a device. Of more than ``words_per_device`` it contributes so many,
        drawn at random; the more it contributes, the less each of them weighs.
    """
    crowd = held / min(held, config.words_per_device) ** 0.5
    return min(cut_of(config).threshold * crowd / max(devices, 1), 1.0)


def held(base_size: int) -> tuple[int, int]:
    """Distinct words beyond a base vocabulary on a device: where people hold few of them, and where they hold many."""
    return _HELD[_nearest(base_size)]


@dataclass(frozen=True)
class Reach:
    """Forecast of the words that a discovery could add, and of their part of all that people type.

    Attributes:
      shares: of devices that must hold a word for it to be found with probability 1/2: where devices hold few words
        beyond the vocabulary, and where they hold many, among which a central discovery divides their weight.
      least, least_coverage: of bloggers, who hold many.
      most, most_coverage: of public talk on devices that hold few, or of text messages on devices that hold many.
    """

    shares: tuple[float, float]
    least: int
    most: int
    least_coverage: float
    most_coverage: float


def reach(config: TrieConfig | CentralConfig, devices: int, alphabet: str, base_size: int) -> Reach:
    """Forecast what a discovery finds beyond a base vocabulary, from the number of training devices alone."""
    if isinstance(config, CentralConfig):
        few, many = (least_share(config, devices, number) for number in held(base_size))
    else:
        few = many = local_share(config, devices, alphabet)
    (some, covered), (fewer, less) = (typed_by(share, base_size) for share in (few, many))
    return Reach(
        shares=(few, many),
        least=round(_BLOGGERS * fewer),
        most=round(max(some, _TEXTERS * fewer)),
        least_coverage=_BLOGGERS * less,
        most_coverage=max(covered, min(_TEXTERS * less, _MOST_COVERED)),
    )


def typed_by(share: float, base_size: int) -> tuple[float, float]:
    """Words beyond a base vocabulary that at least this share of people of public talk types, and their part of text.

    Below a thousandth of the people, as many as there.
    """
    words, covered = _BEYOND[_nearest(base_size)]
    # Ascending, as ``numpy.interp`` needs it.
    place, at = np.log(np.clip(share, _TYPED_BY[-1], 1.0)), np.log(_TYPED_BY[::-1])
    count = float(np.exp(np.interp(place, at, np.log(words[::-1]))))
    return count, float(np.interp(place, at, covered[::-1]))


def _nearest(base_size: int) -> int:
    return min(_BEYOND, key=lambda size: abs(np.log(size / base_size)))


def one_message(devices: int, epsilon0: float, delta: float) -> TrieConfig:
    """The local discovery of one message a device, of the sizes that ``tacit init`` proposes for so many devices."""
    layers, most = (8, 100) if devices < MANY else (15, 10_000)
    return TrieConfig(
        kind="ldp-triehh",
        epsilon0=epsilon0,
        delta=delta,
        messages_per_device=1,
        honest_share=0.5,
        layers=layers,
        max_prefixes=most,
    )


def solved(value: Callable[[float], float], goal: float, least: float, most: float) -> float:
    """Argument at which a monotone function has a value, or the end of its range that is nearest to it."""
    first, last = (value(end) - goal for end in (least, most))
    if first * last > 0:
        return least if abs(first) < abs(last) else most
    return float(optimize.brentq(lambda at: value(at) - goal, least, most, rtol=1e-5))
