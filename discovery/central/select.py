"""Words that many devices type, by an aggregator that sees bounded contributions and releases noisy sums of them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from scipy import special

from discovery import state
from discovery.central import adaptive_degree, weighted_gaussian
from discovery.central.contributions import Contributions, contribute
from discovery.central.forms import forms_of
from discovery.central.histogram import Shard, shards_of, summed
from discovery.config import CentralConfig
from discovery.device.typed import TypedWords
from discovery.results import CentralResult, FoundWord, by_share
from discovery.selection import OUTSIDE, rounded_down

_DIGITS = 4
# Of rho, by the number of passes. With 0.1, 0.3 and 0.5 in the first, 0.3 found most where two pay at all (LOG).
_SHARES = {1: (1.0,), 2: (0.3, 0.7)}
# Of rho, what asks how the words are written that were found.
FORMS_SHARE = 0.05


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


def passes_of(config: CentralConfig, forms_share: float = FORMS_SHARE) -> tuple[Pass, ...]:
    """The releases of words of a discovery, whose failures add up to the configuration's, and their rho to its rest.

    The first of two costs less: it is there to find what is so frequent that the second need not hear of it again.

    Args:
      forms_share: of rho, what is left for the forms of words; 0 of discoveries before there were any.
    """
    parts = []
    for number, share in enumerate(_SHARES[config.passes], start=1):
        noise, failure = config.noise_multiplier / (share * (1 - forms_share)) ** 0.5, config.failure * share
        least = weighted_gaussian.threshold(noise, config.words_per_device, failure)
        parts.append(Pass(number, noise, failure, least))
    return tuple(parts)


def select(
    shards: Callable[[], Iterable[Shard]], devices: int, known_words: frozenset[str], config: CentralConfig, key: bytes
) -> CentralResult:
    """Words released from shards of a population, each of which is let go once it is added up.

    Guarantee: for one device whose words are all taken away (zero-out), but for an event of probability
    ``config.failure``, zCDP with ``config.rho``, whatever devices typed: in a pass each moves the sums by a vector of
    length at most 1 (``weighted_gaussian.weights``, ``adaptive_degree.later_weights``), words that it alone holds
    hardly ever pass (``threshold``), and all else is computed from noisy weights (``release``) and from the number of
    devices in whole tens. A second pass is chosen in the light of the first, and both add up: rho with rho, failure
    with failure; so does the release of the forms of what was found (``forms.forms_of``). Hence (epsilon, delta) by the
    Gaussian curve at ``delta - failure``.

    Args:
      shards: those of the population, anew at each call: once a pass and for forms; words with the signs of forms.
    """
    found: list[FoundWord] = []
    for one in passes_of(config):
        known = known_words | {word.word for word in found}
        weight_of = _weights(
            shards, partial(_contributed, known_words=known, config=config, key=key, one=one), config, one
        )
        noisy = weighted_gaussian.release(weight_of, one.noise_multiplier, one.threshold, key, one.number - 1)
        found += [_found(word, weight, one, devices, config) for word, weight in noisy.items()]
    forms = forms_of([word.word for word in found], shards(), config.noise_multiplier / FORMS_SHARE**0.5, key)
    words = (word.model_copy(update={"form": forms.get(word.word, word.form)}) for word in found)
    return CentralResult(
        words=tuple(sorted(words, key=by_share)),
        thresholds=tuple(one.threshold for one in passes_of(config)),
        forms_share=FORMS_SHARE,
    )


def _contributed(
    shard: Shard, known_words: frozenset[str], config: CentralConfig, key: bytes, one: Pass
) -> Contributions:
    most = config.words_per_device
    return contribute(shard.typed.parted()[0], known_words, most, key, shard.first_device, stream=one.number)


def _weights(
    shards: Callable[[], Iterable[Shard]],
    contributed_by: Callable[[Shard], Contributions],
    config: CentralConfig,
    one: Pass,
) -> dict[str, int]:
    """Sums of weights of all devices, by either rule; private."""

    def over_shards(weigh: Callable[[Contributions], np.ndarray]) -> dict[str, int]:
        everyone = map(contributed_by, shards())
        return summed((contributed.words, weigh(contributed)) for contributed in everyone)

    if not config.adaptive_weights:
        return over_shards(weighted_gaussian.weights)
    first_of = over_shards(adaptive_degree.first_weights)
    limit = adaptive_degree.limit_of(one.threshold, one.noise_multiplier)
    later = partial(adaptive_degree.later_weights, first_of=first_of, limit=limit, most=config.words_per_device)
    return adaptive_degree.together(first_of, over_shards(later), limit)


def _found(word: str, weight: float, one: Pass, devices: int, config: CentralConfig) -> FoundWord:
    """A word with its share of the places that all devices have, ``words_per_device`` each, and a 95% interval.

    A device that fills its places gives each word ``1 / sqrt(words_per_device)``; one that holds fewer words counts
    for more, so that the share is as the words weigh. The interval is that of the noise, and its lower end allows for
    the word's having been chosen: at it, of weights above the threshold, 2.5% are as large as this one.
    """
    sigma, least, places = one.noise_multiplier, one.threshold, rounded_down(devices) * config.words_per_device**0.5
    as_many = special.log_ndtr

    def chosen(mean: float) -> float:
        return float(as_many((mean - weight) / sigma) - as_many((mean - least) / sigma) - np.log(OUTSIDE))

    low, high = weight - 40 * sigma, weight
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if chosen(middle) < 0 else (low, middle)
    top = weight - sigma * float(special.ndtri(OUTSIDE))
    share, low, high = (float(f"{min(max(value / places, 0.0), 1.0):.{_DIGITS}g}") for value in (weight, low, top))
    return FoundWord(word=word, layer=len(word) + 1, share=share, low=low, high=high, pass_number=one.number)
