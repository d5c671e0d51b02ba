"""Projected privacy of local and central discovery for a given population size, before any device is asked."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from discovery import participation
from discovery.central.select import cut_of
from discovery.certificates.group import device, honest_messages
from discovery.config import MOST_NOISE, SIGNIFICANCE_Z, CentralConfig, TrieConfig
from discovery.device.answer import letters_of
from discovery.device.randomizer import SubsetSelection, subset_selection
from discovery.selection import rounded_down, significant_votes

# Sizes of the packaged demo, with which a central discovery is compared.
LOCAL = TrieConfig(
    kind="ldp-triehh", epsilon0=8.0, delta=1e-6, messages_per_device=10, honest_share=0.5, layers=8, max_prefixes=100
)
_LEAST_NOISE = 1e-3
# Words beyond a base vocabulary that a share of people types, and their part of all that is typed: public talk in
# ``benchmarks/results/vocabulary.md``, from which typed chat differs by a third at most.
_TYPED_BY = (0.1, 0.05, 0.03, 0.02, 0.01, 0.005, 0.002, 0.001)
_BEYOND = {
    4_000: ((5, 14, 56, 118, 334, 836, 2_141, 3_959), (0.009, 0.017, 0.030, 0.044, 0.069, 0.098, 0.131, 0.151)),
    8_000: ((3, 8, 28, 63, 188, 536, 1_528, 2_976), (0.005, 0.010, 0.017, 0.024, 0.040, 0.060, 0.085, 0.101)),
    20_000: ((1, 3, 13, 28, 100, 296, 931, 1_894), (0.002, 0.004, 0.008, 0.011, 0.020, 0.032, 0.049, 0.060)),
}
# Text messages have this many times as many, which are at most this part of what is typed.
_TEXTERS, _MOST_COVERED = 5, 0.25


@dataclass(frozen=True)
class LocalOutlook:
    """Projected privacy and reach of a local discovery.

    Attributes:
      local: epsilon of a whole device against any collector of its messages.
      shuffled: the same at ``delta`` if nobody can link messages, for the devices of the smallest layer and the items
        of a layer with a single surviving prefix. A layer with only finished words has fewer items; the discovery then
        states its actual cost.
      least_share: share of devices that must hold a word for it to be found with probability 1/2.
    """

    local: float
    shuffled: float
    delta: float
    least_share: float


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
        least_share=local_share(config, devices, alphabet),
    )


def _layer(config: TrieConfig, devices: int, alphabet: str) -> tuple[int, SubsetSelection, int]:
    """Messages of a device, their law and their number, in a layer of average size and the largest domain."""
    most, domain = config.messages_per_device, config.max_prefixes * len(letters_of(alphabet)) + 1
    messages = max(devices // config.layers, 1) * most
    return most, subset_selection(config.epsilon0, domain), messages


def local_share(config: TrieConfig, devices: int, alphabet: str) -> float:
    """Share of devices that must hold a word for a local discovery to find it with probability 1/2."""
    most, randomizer, messages = _layer(config, devices, alphabet)
    needed = significant_votes(randomizer, messages, float(stats.norm.sf(SIGNIFICANCE_Z)))
    share = (needed / messages - randomizer.background) / (randomizer.inclusion - randomizer.background)
    return min(share * most, 1.0)


def least_share(config: CentralConfig, devices: int) -> float:
    """Share of devices that must hold a word for a central discovery to find it with probability 1/2.

    This assumes devices with the largest number of words; words of other devices weigh more.
    """
    least = cut_of(config).threshold
    return min(least * config.words_per_device**0.5 / max(devices, 1), 1.0)


@dataclass(frozen=True)
class NewWords:
    """Forecast of the words that a discovery could add, and of their part of all that people type.

    ``least`` is what public talk and typed chat have, ``most`` what text messages have.
    """

    least: int
    most: int
    least_coverage: float
    most_coverage: float


def new_words(share: float, base_size: int) -> NewWords:
    """Words beyond a base vocabulary that at least this share of people types; below a thousandth, as many as there."""
    words, covered = _BEYOND[min(_BEYOND, key=lambda size: abs(np.log(size / base_size)))]
    # Ascending, as ``numpy.interp`` needs it.
    place, at = np.log(np.clip(share, _TYPED_BY[-1], 1.0)), np.log(_TYPED_BY[::-1])
    count = float(np.exp(np.interp(place, at, np.log(words[::-1]))))
    part = float(np.interp(place, at, covered[::-1]))
    return NewWords(round(count), round(_TEXTERS * count), part, min(_TEXTERS * part, _MOST_COVERED))


def as_far_reaching(config: TrieConfig, devices: int, alphabet: str) -> CentralConfig:
    """The central discovery with the most noise that finds words as rare as a local one does."""

    def central(noise: float) -> CentralConfig:
        return CentralConfig(
            kind="central",
            noise_multiplier=noise,
            words_per_device=config.messages_per_device,
            delta=config.delta,
        )

    least = local_share(config, devices, alphabet) * devices / config.messages_per_device**0.5

    def too_far(noise: float) -> float:
        return cut_of(central(noise)).threshold - least

    if too_far(_LEAST_NOISE) >= 0:
        return central(_LEAST_NOISE)
    if too_far(MOST_NOISE) <= 0:
        return central(MOST_NOISE)
    return central(float(optimize.brentq(too_far, _LEAST_NOISE, MOST_NOISE, rtol=1e-6)))
