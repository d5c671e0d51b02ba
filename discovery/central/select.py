"""Words that many devices type, by an aggregator that sees bounded contributions and releases noisy sums of them."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
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
# Of rho, by the number of passes. With 0.1, 0.3 and 0.5 in the first, 0.3 found most where two pay at all (LOG).
_SHARES = {1: (1.0,), 2: (0.3, 0.7)}
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
class Pass:
    """One release of a discovery: its noise, its part of what may fail, and the threshold that follows."""

    number: int
    noise_multiplier: float
    failure: float
    threshold: float


def passes_of(config: CentralConfig) -> tuple[Pass, ...]:
    """The releases of words of a discovery, whose failures add up to the configuration's, and their rho to its rest.

    The first of two costs less: it is there to find what is so frequent that the second need not hear of it again.
    """
    parts, left = [], 1 - (FORMS_SHARE + FILLED_SHARE)
    for number, share in enumerate(_SHARES[config.passes], start=1):
        noise, failure = config.noise_multiplier / (share * left) ** 0.5, config.failure * share
        least = weighted_gaussian.threshold(noise, config.words_per_device, failure)
        parts.append(Pass(number, noise, failure, least))
    return tuple(parts)


def select(
    shards: Callable[[], Iterable[Shard]], devices: int, known_words: frozenset[str], config: CentralConfig, key: bytes
) -> CentralResult:
    """Words released from shards of a population, each of which is let go once it is added up.

    Guarantee: for one device whose words are all taken away (zero-out), but for an event of probability
    ``config.failure``, zCDP with ``config.rho``, whatever devices typed: in a pass each moves the sums by a vector of
    length at most 1 (``weighted_gaussian.weights``), words that it alone holds hardly ever pass (``threshold``), and
    all else is computed from noisy weights (``release``) and from the number of devices in whole tens. A second pass
    is chosen in the light of the first, and both add up: rho with rho, failure with failure; so does the release of the
    forms of what was found (``forms.forms_of``). Hence (epsilon, delta) by the Gaussian curve at ``delta - failure``.

    Args:
      shards: those of the population, anew at each call: once a pass and for forms; words with the signs of forms.
    """
    passes, chosen = passes_of(config), list[_Chosen]()
    for one in passes:
        left_out = known_words | {word for earlier in chosen for word in earlier.weight_of}
        contributed_by = partial(_contributed, known_words=left_out, config=config, key=key, one=one)
        everyone = map(contributed_by, shards())
        weight_of = summed((contributed.words, weighted_gaussian.weights(contributed)) for contributed in everyone)
        released = weighted_gaussian.release(weight_of, one.noise_multiplier, one.threshold, key, one.number - 1)
        chosen.append(_Chosen(one, released))
    first = partial(_contributed, known_words=known_words, config=config, key=key, one=passes[0])
    everything = filled(
        map(first, shards()),
        config.words_per_device,
        rounded_down(devices),
        config.noise_multiplier / FILLED_SHARE**0.5,
        max(math.fsum(one.weight_of.values()) for one in chosen),
        key,
    )
    words = [word for one in chosen for word in one.words(everything)]
    forms = forms_of([word.word for word in words], shards(), config.noise_multiplier / FORMS_SHARE**0.5, key)
    written = (word.model_copy(update={"form": forms.get(word.word, word.form)}) for word in words)
    return CentralResult(
        words=tuple(sorted(written, key=by_share)),
        thresholds=tuple(one.threshold for one in passes),
        forms_share=FORMS_SHARE,
        filled_share=FILLED_SHARE,
    )


@dataclass(frozen=True)
class _Chosen:
    """The words that a pass released, with their noisy weights."""

    one: Pass
    weight_of: dict[str, float]

    def words(self, everything: Filled) -> list[FoundWord]:
        return [_found(word, weight, self.one, everything) for word, weight in self.weight_of.items()]


def _contributed(
    shard: Shard, known_words: frozenset[str], config: CentralConfig, key: bytes, one: Pass
) -> Contributions:
    most = config.words_per_device
    return contribute(shard.typed.parted()[0], known_words, most, key, shard.first_device, stream=one.number)


def _found(word: str, weight: float, one: Pass, everything: Filled) -> FoundWord:
    """A word with its share of what devices contributed, and a 95% interval.

    The interval is that of the noise of both sums, and its lower end allows for the word's having been chosen: at it,
    of weights above the threshold, 2.5% are as large as this one. What a second pass found is a share of what the
    first one's devices contributed as well.
    """
    sigma, least = one.noise_multiplier, one.threshold
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
    return FoundWord(word=word, layer=len(word) + 1, share=share, low=low, high=high, pass_number=one.number)
