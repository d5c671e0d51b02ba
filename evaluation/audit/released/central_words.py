"""The audit of words found by a trusted aggregator: recomputed contributions, sums, noise, threshold and shares.

A device adds to three sums: the weight of each word that it contributes, the weight of all words, and the form of each
released word. All are whole numbers, so they are compared exactly.

Shape legend: D devices, V distinct words, N occurrences, P pairs of a device and a word, R released words, F forms.
"""

import hashlib
import hmac
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from evaluation.audit import keyed_noise
from evaluation.audit.verdict import Verdict
from pretrain.writing.case import FORMS, parted

UNITS = 2**32
_LONGEST = 40
_WEIGHTS, _TOTAL, _FORMS = ("central discovery, noise", "central discovery, filled places", "central discovery, forms")
_ORDER = "tacit discovery 3|central discovery, order 1"
# Devices per batch: their sum is exact in float64.
_DEVICES = 200_000
_OUTSIDE, _REACH, _MARGIN = 0.025, 1.96, 1.645 * 2**0.5
# Tolerances of a threshold, which two programs compute, and of ends of an interval, which are shown with four digits.
_ROUNDING, _SHOWN, _NOTHING = 1e-9, 6e-4, 1e-12


@dataclass(frozen=True)
class WordOccurrences:
    """Typed words, in order: those of device d are ``distinct[numbers[starts[d] : starts[d + 1]]]``. Private.

    Words carry the signs of their forms.
    """

    distinct: Sequence[str]
    starts_D: np.ndarray
    numbers_N: np.ndarray


@dataclass(frozen=True)
class Rule:
    """Parameters of a discovery, from the launch file.

    Attributes:
      known_words: public; no device contributes one.
      most: C, largest number of words of a device.
      weights_noise, total_noise, forms_noise: noise multipliers of the three sums.
      failure: probability with which a word of one device alone may pass.
    """

    known_words: Collection[str]
    most: int
    weights_noise: float
    total_noise: float
    forms_noise: float
    failure: float

    @staticmethod
    def of(
        known_words: Collection[str],
        most: int,
        noise_multiplier: float,
        forms_share: float,
        total_share: float,
        failure: float,
    ) -> "Rule":
        """The rule of a launch file: two sums have stated shares of rho, and the words' weights have the rest."""
        shares = (1 - forms_share - total_share, total_share, forms_share)
        weights, total, forms = (noise_multiplier / math.sqrt(share) for share in shares)
        return Rule(known_words, most, weights, total, forms, failure)


@dataclass(frozen=True)
class DiscoveryRelease:
    """A discovery's release: the kept noisy sums, and the statements made from them.

    Attributes:
      weight_of: noisy weight of each released word.
      total: noisy weight of all words, in full devices.
      forms_RF: noisy weight of each form, of released words in alphabetical order, in units of 1 / ``UNITS``.
      threshold: as stated.
      words: share, lower and upper end of its interval, and form of each word, as later stages read them.
    """

    weight_of: Mapping[str, float]
    total: float
    forms_RF: np.ndarray
    threshold: float
    words: Mapping[str, tuple[float, float, float, str]]


def central_words_audit(found: DiscoveryRelease, typed: WordOccurrences, rule: Rule, key: bytes) -> tuple[Verdict, ...]:
    """Verdicts ``threshold``, ``weights``, ``total``, ``forms`` and ``words``.

    Guarantee: each fails unless the release equals, to the last digit, the result of this program for the same text and
    key: every device's bounded contribution once, all the noise, and no word below the threshold. Exact: an honest
    release passes all.
    """
    words = _Words.of(typed.distinct)
    unit_T = np.array([0, *(math.isqrt(UNITS**2 // t) for t in range(1, rule.most + 1))])
    root_T = np.array([math.floor(math.sqrt(t / rule.most) * UNITS) for t in range(rule.most + 1)])
    weight_V, total = np.zeros(len(words.plain), dtype=np.int64), 0
    for device_P, word_P, size_D in _contributed(typed, words, rule, key):
        weight_V += np.bincount(word_P, unit_T[size_D][device_P], minlength=len(weight_V)).astype(np.int64)
        total += sum(int(times) * int(root_T[size]) for size, times in enumerate(np.bincount(size_D)))
    threshold = _threshold(rule)
    passed = _passed(
        {words.plain[word]: int(weight_V[word]) for word in np.flatnonzero(weight_V).tolist()}, rule, found, key
    )
    noisy_total = float(
        keyed_noise.lattice(_noised(np.array([total]), _TOTAL, rule.total_noise, key), _unit(rule.total_noise))[0]
    )
    released = sorted(found.weight_of)
    forms_RF = _noised(_forms(typed, words, released, len(typed.starts_D) - 1), _FORMS, rule.forms_noise, key)
    return (
        _verdict(
            "threshold",
            "the stated threshold lets a word of one device alone pass no more often than the launch file says",
            "one part in 10^9",
            abs(found.threshold - threshold) <= _ROUNDING * abs(threshold),
            "the stated threshold is not the one of the launch file",
        ),
        _verdict(
            "weights",
            "released words are those whose weight, with every device's contribution once and all the noise of the "
            "key, is above the threshold, and no others",
            "none: whole numbers",
            dict(found.weight_of) == passed,
            "released words and weights are not those of the bounded contributions and the noise, made again",
        ),
        _verdict(
            "total",
            "the released weight of all words is that of every device's contribution and all the noise of the key",
            "none: whole numbers",
            found.total == noisy_total / UNITS,
            "the weight of all words is not that of the bounded contributions and the noise, made again",
        ),
        _verdict(
            "forms",
            "the released weights of forms are those of every device and all the noise of the key",
            "none: whole numbers",
            np.array_equal(found.forms_RF.reshape(-1, len(FORMS)), forms_RF),
            "weights of forms are not those of the devices and the noise, made again",
        ),
        _verdict(
            "words",
            "words, shares, intervals and forms that later stages read follow from the released sums",
            "one in the fourth digit of an interval's end",
            _follow(found, rule, len(typed.starts_D) - 1),
            "words that later stages read do not follow from the released sums",
        ),
    )


@dataclass(frozen=True)
class _Words:
    """Lower-cased words, and for each typed word its index among them and the index of its form."""

    plain: Sequence[str]
    word_V: np.ndarray
    form_V: np.ndarray

    @staticmethod
    def of(distinct: Sequence[str]) -> "_Words":
        number_of: dict[str, int] = {}
        pairs = [parted(word) for word in distinct]
        word_V = np.array([number_of.setdefault(word, len(number_of)) for word, _ in pairs], dtype=np.int64)
        return _Words(tuple(number_of), word_V, np.array([form for _, form in pairs], dtype=np.int64))


def _shards(typed: WordOccurrences) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
    """First device, number of devices, the device of each occurrence relative to the first, and typed words."""
    devices = len(typed.starts_D) - 1
    for first in range(0, devices, _DEVICES):
        starts_D = typed.starts_D[first : min(first + _DEVICES, devices) + 1]
        device_N = np.repeat(np.arange(len(starts_D) - 1), np.diff(starts_D))
        yield first, len(starts_D) - 1, device_N, typed.numbers_N[starts_D[0] : starts_D[-1]].astype(np.int64)


def _contributed(
    typed: WordOccurrences, words: _Words, rule: Rule, key: bytes
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Pairs of a device and a word that it contributes, by shards, and the number of words of each device.

    A device's distinct OOV words are ordered by 40 bits that follow from the key, the device and the word's index among
    them, and the first ``rule.most`` count.
    """
    spoken_V = np.array(
        [0 < len(word) <= _LONGEST and word not in rule.known_words for word in words.plain], dtype=bool
    )
    order = Cipher(algorithms.AES256(hmac.digest(key, _ORDER.encode(), hashlib.sha256)), modes.ECB())
    for first, devices, device_N, number_N in _shards(typed):
        word_N = words.word_V[number_N] if len(number_N) else number_N
        said_N = spoken_V[word_N] if len(word_N) else word_N.astype(bool)
        device_N, word_N = device_N[said_N], word_N[said_N]
        _, typed_first_P = np.unique(device_N * len(words.plain) + word_N, return_index=True)
        typed_first_P.sort()
        device_P, word_P = device_N[typed_first_P], word_N[typed_first_P]
        counters_P2 = np.stack([device_P + first, _ranks(device_P)], axis=1).astype(">u8")
        drawn_P2 = np.frombuffer(order.encryptor().update(counters_P2.tobytes()), dtype="<u8").reshape(-1, 2)
        sorted_P = np.lexsort((drawn_P2[:, 0] >> np.uint64(24), device_P))
        kept_P = sorted_P[_ranks(device_P[sorted_P]) < rule.most]
        yield device_P[kept_P], word_P[kept_P], np.bincount(device_P[kept_P], minlength=devices)


def _ranks(device_P: np.ndarray) -> np.ndarray:
    """Index of each pair among its device's pairs, from 0; devices ascend."""
    return np.arange(len(device_P)) - np.searchsorted(device_P, device_P)


def _forms(typed: WordOccurrences, words: _Words, released: Sequence[str], devices: int) -> np.ndarray:
    """Sums by form of each released word, int64 ``[R, F]``; private."""
    place_of = {word: place for place, word in enumerate(released)}
    place_V = np.array([place_of.get(word, -1) for word in words.plain], dtype=np.int64)
    total_RF = np.zeros((len(released), len(FORMS)), dtype=np.int64)
    for _, _, device_N, number_N in _shards(typed):
        place_N = place_V[words.word_V[number_N]] if len(number_N) else number_N
        said_N = place_N >= 0
        device_N, place_N = device_N[said_N], place_N[said_N]
        form_N = words.form_V[number_N[said_N]] if len(number_N) else number_N[said_N]
        cell_U, times_U = np.unique((device_N * len(released) + place_N) * len(FORMS) + form_N, return_counts=True)
        device_U, (place_U, form_U) = cell_U // (len(released) * len(FORMS) or 1), divmod(cell_U, len(FORMS))
        place_U %= len(released) or 1
        # For each device and word the most frequent form; of equals the first.
        best_U = np.lexsort((form_U, -times_U, place_U, device_U))
        opens_U = np.ones(len(best_U), dtype=bool)
        opens_U[1:] = (np.diff(device_U[best_U]) != 0) | (np.diff(place_U[best_U]) != 0)
        chosen = best_U[opens_U]
        size_of = np.bincount(device_U[chosen], minlength=1)
        unit_U = np.array([math.isqrt(UNITS**2 // int(size)) for size in size_of[device_U[chosen]]], dtype=np.int64)
        np.add.at(total_RF, (place_U[chosen], form_U[chosen]), unit_U)
    return total_RF


def _unit(noise_multiplier: float) -> float:
    return noise_multiplier * UNITS


def _noised(unnoised: np.ndarray, stream: str, noise_multiplier: float, key: bytes) -> np.ndarray:
    """The same numbers with their noise, int64."""
    noise = noise_multiplier * keyed_noise.gaussian(key, stream, 0, unnoised.size) * UNITS
    return unnoised + np.rint(noise).astype(np.int64).reshape(unnoised.shape)


def _passed(unnoised_of: Mapping[str, int], rule: Rule, found: DiscoveryRelease, key: bytes) -> dict[str, float]:
    """Words above the stated threshold, with their noisy weights."""
    words = sorted(unnoised_of)
    noisy_V = _noised(
        np.array([unnoised_of[word] for word in words], dtype=np.int64), _WEIGHTS, rule.weights_noise, key
    )
    shown_V = keyed_noise.lattice(noisy_V, _unit(rule.weights_noise)) / UNITS
    least = math.ceil(found.threshold * UNITS) + 1
    return {word: float(shown) for word, noisy, shown in zip(words, noisy_V, shown_V, strict=True) if noisy >= least}


def _threshold(rule: Rule) -> float:
    """Least noisy weight, at which words of one device alone, for any number t, pass with probability ``failure``."""
    return max(
        1 / math.sqrt(t) - rule.weights_noise * NormalDist().inv_cdf(-math.expm1(math.log1p(-rule.failure) / t))
        for t in range(1, rule.most + 1)
    )


def _follow(found: DiscoveryRelease, rule: Rule, devices: int) -> bool:
    """Return whether every stated word was released, with the share, interval and form of its sums."""
    if found.words.keys() != found.weight_of.keys():
        return False
    least = math.fsum(found.weight_of.values())
    most = max(devices // 10 * 10, 1)

    def possible(noisy: float) -> float:
        return max(min(noisy, most) * rule.most**0.5, least)

    reach = _REACH * rule.total_noise
    everything = possible(found.total), possible(found.total - reach), possible(found.total + reach)
    above_RF = found.forms_RF.reshape(-1, len(FORMS)) + np.array([round(_MARGIN * _unit(rule.forms_noise)), 0, 0])
    for word, best in zip(sorted(found.weight_of), np.argmax(above_RF, axis=1).tolist(), strict=True):
        share, low, high, form = found.words[word]
        weight = found.weight_of[word]
        top = weight + rule.weights_noise * NormalDist().inv_cdf(1 - _OUTSIDE)
        bottom = _lower_end(weight, found.threshold, rule.weights_noise)
        exact = (weight / everything[0], bottom / everything[2], top / everything[1])
        if form != FORMS[best] or not all(
            abs(stated - min(max(value, 0.0), 1.0)) <= _SHOWN * stated + _NOTHING
            for stated, value in zip((share, low, high), exact, strict=True)
        ):
            return False
    return True


def _lower_end(weight: float, least: float, sigma: float) -> float:
    """Mean at which 2.5% of the noisy weights above the threshold are at least this large."""
    from scipy import special

    low, high = weight - 40 * sigma, weight
    while high - low > 1e-9 * sigma:
        mean = (low + high) / 2
        above = special.log_ndtr((mean - weight) / sigma) - special.log_ndtr((mean - least) / sigma)
        low, high = (mean, high) if above < math.log(_OUTSIDE) else (low, mean)
    return low


def _verdict(name: str, tested: str, slack: str, passed: bool, reason: str) -> Verdict:
    return Verdict(name, tested, slack, passed, "" if passed else reason)
