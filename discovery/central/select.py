"""Words that many devices type, by an aggregator that sees bounded contributions and releases noisy sums of them."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import special

from discovery import state
from discovery.central import weighted_gaussian
from discovery.central.contributions import Contributions, Shard, contribute, shards_of, summed
from discovery.central.filled import Filled, filled
from discovery.central.forms import forms_of
from discovery.config import CentralConfig
from discovery.device.typed import TypedWords
from discovery.results import CentralResult, FoundWord, by_share
from discovery.selection import OUTSIDE, rounded_down

_DIGITS = 4
# Of rho, what asks how the words are written that were found, and what asks how much all devices contributed.
FORMS_SHARE, FILLED_SHARE = 0.05, 0.02


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
    # Another division of rho under the same key would give the noise away.
    parted = f"{FORMS_SHARE} {FILLED_SHARE}"
    state.claim(directory, state.fingerprint(typed, known_words, parted, config, key))
    return select(lambda: shards_of(typed), len(typed), known_words, config, key)


def require_devices(devices: int) -> None:
    """ValueError where sums of so many devices could overflow."""
    if devices > weighted_gaussian.MOST_DEVICES:
        raise ValueError(
            f"devices: {devices:,} overflow a 64-bit fixed-point sum; discover from {weighted_gaussian.MOST_DEVICES:,} "
            "at most"
        )


@dataclass(frozen=True)
class Cut:
    """The noise of weights, and the least noisy weight at which a word is released."""

    noise_multiplier: float
    threshold: float


def cut_of(config: CentralConfig) -> Cut:
    """Noise and threshold of a discovery: of its rho what is spent on words, of its delta what may fail."""
    noise = config.noise_multiplier / (1 - FORMS_SHARE - FILLED_SHARE) ** 0.5
    return Cut(noise, weighted_gaussian.threshold(noise, config.words_per_device, config.failure))


def select(
    shards: Callable[[], Iterable[Shard]], devices: int, known_words: frozenset[str], config: CentralConfig, key: bytes
) -> CentralResult:
    """Words released from shards of a population, each of which is let go once it is added up.

    Guarantee: for one device whose words are all taken away (zero-out), but for an event of probability
    ``config.failure``, zCDP with ``config.rho``, whatever devices typed: each moves the sums by a vector of length at
    most 1 (``weighted_gaussian.weights``), words that it alone holds hardly ever pass (``threshold``), and all else is
    computed from noisy weights (``release``) and from the number of devices in whole tens. The release of the forms of
    what was found (``forms.forms_of``) and of how much devices contributed (``filled``) add their rho. Hence
    (epsilon, delta) by the Gaussian curve at ``delta - failure``.

    Args:
      shards: those of the population, anew at each call: once for weights and once for forms; words with the signs of
        forms.
    """
    cut, most = cut_of(config), config.words_per_device

    def contributed() -> Iterator[Contributions]:
        for shard in shards():
            yield contribute(shard.typed.parted()[0], known_words, most, key, shard.first_device, stream=1)

    exact_of = summed((some.words, weighted_gaussian.weights(some)) for some in contributed())
    weight_of = weighted_gaussian.release(exact_of, cut.noise_multiplier, cut.threshold, key)
    everything = filled(
        contributed(),
        most,
        rounded_down(devices),
        config.noise_multiplier / FILLED_SHARE**0.5,
        math.fsum(weight_of.values()),
        key,
    )
    words = [_found(word, weight, cut, everything) for word, weight in weight_of.items()]
    forms = forms_of([word.word for word in words], shards(), config.noise_multiplier / FORMS_SHARE**0.5, key)
    written = (word.model_copy(update={"form": forms.get(word.word, word.form)}) for word in words)
    return CentralResult(
        words=tuple(sorted(written, key=by_share)),
        threshold=cut.threshold,
        forms_share=FORMS_SHARE,
        filled_share=FILLED_SHARE,
    )


def _found(word: str, weight: float, cut: Cut, everything: Filled) -> FoundWord:
    """A word with its share of what devices contributed, and a 95% interval.

    The interval is that of the noise of both sums, and its lower end allows for the word's having been chosen: at it,
    of weights above the threshold, 2.5% are as large as this one.
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
    return FoundWord(word=word, layer=len(word) + 1, share=share, low=low, high=high)
