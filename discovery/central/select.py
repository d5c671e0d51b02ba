"""Central word discovery: threshold noisy sums of bounded contributions (weighted Gaussian)."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import special

from discovery import state
from discovery.central import forms, total, weighted_gaussian
from discovery.central.contributions import Contributions, Shard, contribute, shards_of
from discovery.config import CentralConfig
from discovery.device.typed import TypedWords
from discovery.results import CentralResult, FoundWord, by_share
from discovery.selection import OUTSIDE, rounded_down
from pretrain.files import PRIVATE, write_text

_DIGITS = 4
RELEASED = "released.json"
# Shares of rho for the forms of found words, and for the total contribution of all devices.
FORMS_SHARE, FILLED_SHARE = 0.05, 0.02


@dataclass(frozen=True)
class NoisySums:
    """Released noisy sums of a central discovery; every other output follows from them.

    Attributes:
      weight_of: noisy weight by released word, in alphabetical order.
      total: noisy weight of all words.
      forms_VF: noisy weight of each released word by form, int64 in units of 1 / ``weighted_gaussian.GRID``.
    """

    weight_of: Mapping[str, float]
    total: float
    forms_VF: np.ndarray

    def to_json(self) -> str:
        """JSON for the audit."""
        content = {"weights": dict(self.weight_of), "total": self.total, "forms": self.forms_VF.tolist()}
        return json.dumps(content, indent=1) + "\n"


def discover(
    typed: TypedWords, *, known_words: frozenset[str], config: CentralConfig, key: bytes, directory: Path
) -> CentralResult:
    """Find words that devices type, from one bounded contribution of each.

    Args:
      typed: the words of each device, in its order of typing.
      known_words: public; every device leaves them out.
      key: 32 secret bytes of noise and of the order in which a device contributes.
      directory: private; identifies the discovery, so that a retry is the same release or is refused, and keeps the
        released values (``RELEASED``) for their audit.

    Raises:
      ValueError: more devices than sums hold, a key that is not 32 bytes, or a directory of another discovery.
      ArithmeticError: noise beyond the grid.
    """
    require_devices(len(typed))
    # Another division of rho under the same key would reveal the noise.
    parted = f"{FORMS_SHARE} {FILLED_SHARE}"
    state.claim(directory, state.fingerprint(typed, known_words, parted, config, key))
    released = release(lambda: shards_of(typed), known_words, config, key)
    write_text(directory / RELEASED, released.to_json(), PRIVATE)
    return found(released, len(typed), config)


def require_devices(devices: int) -> None:
    """Raise ValueError if sums over this many devices could overflow."""
    if devices > weighted_gaussian.MOST_DEVICES:
        raise ValueError(
            f"devices: {devices:,} overflow a 64-bit fixed-point sum; discover from {weighted_gaussian.MOST_DEVICES:,} "
            "at most"
        )


@dataclass(frozen=True)
class Cut:
    """The noise of weights, of their sum and of forms, and the least noisy weight at which a word is released."""

    noise_multiplier: float
    filled_noise: float
    forms_noise: float
    threshold: float


def cut_of(config: CentralConfig) -> Cut:
    """Noise and threshold of a discovery, from the share of rho for words and the failure probability."""
    weights, filled_places, of_forms = (
        config.noise_multiplier / share**0.5 for share in (1 - FORMS_SHARE - FILLED_SHARE, FILLED_SHARE, FORMS_SHARE)
    )
    least = weighted_gaussian.threshold(weights, config.words_per_device, config.failure)
    return Cut(weights, filled_places, of_forms, least)


def release(
    shards: Callable[[], Iterable[Shard]], known_words: frozenset[str], config: CentralConfig, key: bytes
) -> NoisySums:
    """Noisy sums from shards of a population; each shard is freed after it is added.

    Guarantee: for the removal of all words of one device (zero-out), except with probability ``config.failure``, zCDP
    with ``config.rho``, for any text: each device moves the sums by a vector of length at most 1
    (``weighted_gaussian.weights``), words of one device alone pass only within that probability (``threshold``), and
    all else is computed from noisy weights (``found``) and from the number of devices in whole tens. The releases of
    forms (``forms.noisy_forms``) and of the total contribution (``total.noisy_total``) add their rho.
    Hence (epsilon, delta) by the Gaussian curve at ``delta - failure``.

    Args:
      shards: returns the shards of the population at each call: twice for weights and once for forms; words carry the
        signs of forms.
    """
    cut, most = cut_of(config), config.words_per_device

    def contributed() -> Iterator[Contributions]:
        for shard in shards():
            yield contribute(shard.typed.parted()[0], known_words, most, key, shard.first_device, stream=1)

    weight_of = weighted_gaussian.release(contributed(), cut.noise_multiplier, cut.threshold, key)
    noisy_weight = total.noisy_total(contributed(), most, cut.filled_noise, key)
    return NoisySums(weight_of, noisy_weight, forms.noisy_forms(list(weight_of), shards(), cut.forms_noise, key))


def found(released: NoisySums, devices: int, config: CentralConfig) -> CentralResult:
    """The words of a release, with shares and forms: a function of noisy sums and of ``devices`` in whole tens."""
    cut, least = cut_of(config), math.fsum(released.weight_of.values())
    everything = total.estimate(released.total, config.words_per_device, rounded_down(devices), cut.filled_noise, least)
    form_of = forms.decided(list(released.weight_of), released.forms_VF, cut.forms_noise)
    words = (
        _found(word, weight, cut, everything, form_of.get(word, "lower")) for word, weight in released.weight_of.items()
    )
    return CentralResult(
        words=tuple(sorted(words, key=by_share)),
        threshold=cut.threshold,
        forms_share=FORMS_SHARE,
        filled_share=FILLED_SHARE,
    )


def select(
    shards: Callable[[], Iterable[Shard]], devices: int, known_words: frozenset[str], config: CentralConfig, key: bytes
) -> CentralResult:
    """Words found in shards of a population (``release``, ``found``)."""
    return found(release(shards, known_words, config, key), devices, config)


def _found(word: str, weight: float, cut: Cut, everything: total.TotalWeight, form: str) -> FoundWord:
    """A word with its share of the total contribution, and a 95% interval.

    The interval covers the noise of both sums, and its lower end corrects for selection: at it, 2.5% of the weights
    above the threshold are at least this large.
    """
    sigma, least = cut.noise_multiplier, cut.threshold
    as_many = special.log_ndtr

    def chosen(mean: float) -> float:
        return float(as_many((mean - weight) / sigma) - as_many((mean - least) / sigma) - np.log(OUTSIDE))

    low, high = weight - 40 * sigma, weight
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if chosen(middle) < 0 else (low, middle)
    top = weight - sigma * float(special.ndtri(OUTSIDE))
    shares = (weight / everything.weight, low / everything.high, top / everything.low)
    share, low, high = (float(f"{min(max(value, 0.0), 1.0):.{_DIGITS}g}") for value in shares)
    return FoundWord(word=word, layer=len(word) + 1, share=share, low=low, high=high, form=form)
