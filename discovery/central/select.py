"""Words that many devices type, by an aggregator that sees bounded contributions and releases noisy sums of them."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from scipy import special

from discovery import state
from discovery.central import weighted_gaussian
from discovery.central.contributions import contribute
from discovery.central.histogram import Shard, shards_of, summed
from discovery.config import CentralConfig
from discovery.device.typed import TypedWords
from discovery.results import CentralResult, FoundWord, by_share
from discovery.selection import OUTSIDE, rounded_down

_DIGITS = 4


def discover(
    typed: TypedWords, *, known_words: frozenset[str], config: CentralConfig, key: bytes, directory: Path
) -> CentralResult:
    """Find words that devices type, from one bounded contribution of each.

    Args:
      typed: the words of each device, in its order of typing.
      known_words: public; every device leaves them out.
      key: 32 secret bytes of noise and of the order in which a device contributes.
      directory: private; says whose words these are, so that a retry is the same release or is refused.

    Raises:
      ValueError: more devices than sums hold, a key that is not 32 bytes, or a directory of another discovery.
      ArithmeticError: noise beyond the grid.
    """
    require_devices(len(typed))
    state.claim(directory, state.fingerprint(typed, known_words, "", config, key))
    return select(shards_of(typed), len(typed), known_words, config, key)


def require_devices(devices: int) -> None:
    """ValueError where sums of so many devices could overflow."""
    if devices > weighted_gaussian.MOST_DEVICES:
        raise ValueError(
            f"devices: {devices:,} overflow a 64-bit fixed-point sum; discover from {weighted_gaussian.MOST_DEVICES:,} "
            "at most"
        )


def select(
    shards: Iterable[Shard], devices: int, known_words: frozenset[str], config: CentralConfig, key: bytes
) -> CentralResult:
    """Words released from shards of a population, each of which is let go once it is added up.

    Guarantee: for one device whose words are all taken away (zero-out), but for an event of probability
    ``config.failure``, zCDP with ``config.rho``, whatever devices typed: each adds a vector of length at most 1
    (``weighted_gaussian.weights``), words that it alone holds hardly ever pass (``threshold``), and all else is
    computed from noisy weights (``release``) and from the number of devices in whole tens. Hence (epsilon, delta) by
    the Gaussian curve at ``delta - failure``.
    """
    most = config.words_per_device

    def weights_of(shard: Shard) -> tuple[tuple[str, ...], np.ndarray]:
        contributed = contribute(shard.typed, known_words, most, key, shard.first_device)
        return contributed.words, weighted_gaussian.weights(contributed)

    least = weighted_gaussian.threshold(config.noise_multiplier, most, config.failure)
    noisy = weighted_gaussian.release(summed(shards, weights_of), config.noise_multiplier, least, key)
    words = (_found(word, weight, least, devices, config) for word, weight in noisy.items())
    return CentralResult(words=tuple(sorted(words, key=by_share)), threshold=least)


def _found(word: str, weight: float, least: float, devices: int, config: CentralConfig) -> FoundWord:
    """A word with its share of the places that all devices have, ``words_per_device`` each, and a 95% interval.

    A device that fills its places gives each word ``1 / sqrt(words_per_device)``; one that holds fewer words counts
    for more, so that the share is as the words weigh. The interval is that of the noise, and its lower end allows for
    the word's having been chosen: at it, of weights above the threshold, 2.5% are as large as this one.
    """
    sigma, places = config.noise_multiplier, rounded_down(devices) * config.words_per_device**0.5
    as_many = special.log_ndtr

    def chosen(mean: float) -> float:
        return float(as_many((mean - weight) / sigma) - as_many((mean - least) / sigma) - np.log(OUTSIDE))

    low, high = weight - 40 * sigma, weight
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if chosen(middle) < 0 else (low, middle)
    top = weight - sigma * float(special.ndtri(OUTSIDE))
    share, low, high = (float(f"{min(max(value / places, 0.0), 1.0):.{_DIGITS}g}") for value in (weight, low, top))
    return FoundWord(word=word, layer=len(word) + 1, share=share, low=low, high=high)
