"""Made-up typists, for a locale without data: good for rehearsing a launch, not for judging a model.

Word frequencies are real (``wordfreq``, so Zipf-like), each topic tilts them, each typist mixes topics,
and the amount typed is lognormal, as in real populations. There is no grammar: within a sentence,
words are independent given its topic.
"""

from collections.abc import Iterator
from functools import cache

import numpy as np

from federated.config.population import MEAN_WORDS, TOPICS, SyntheticPopulation
from federated.devices.readers import DeviceTexts, SourceCounts
from pretrain.text.tokenise import sentences
from pretrain.text.word_lists import word_frequencies

_WORDS = 20_000
_MIN_WORDS = 100
_TILT = 1.5  # Standard deviation of a topic's log factor on a word.
_TOPIC_CONCENTRATION = 0.3  # Below 1, so that a typist keeps to a few topics.
_VOLUME_SIGMA = 1.0  # Of log volume; median to mean as 1 to 1.65.
_MEAN_SENTENCE = 8
_TOPIC_STREAM, _DEVICE_STREAM = 0x746F706963, 0x646576696365  # apart from other uses of the launch's seed


def typists(config: SyntheticPopulation, locale: str, seed: int) -> DeviceTexts:
    """Typists whose text is a function of (config, locale, seed) alone.

    Raises:
      ValueError: no word frequencies for the locale's language.
    """
    words, shares = frequencies(locale)
    rng = np.random.default_rng([_TOPIC_STREAM, seed])
    tilted_KV = shares * np.exp(_TILT * rng.standard_normal((TOPICS, len(words))))
    cumulative_KV = np.cumsum(tilted_KV / tilted_KV.sum(axis=1, keepdims=True), axis=1)
    return DeviceTexts(
        SourceCounts({"client_id": "string", "text": "string"}), _devices(config, np.array(words), cumulative_KV, seed)
    )


def _devices(
    config: SyntheticPopulation, words: np.ndarray, cumulative_KV: np.ndarray, seed: int
) -> Iterator[tuple[str, list[str]]]:
    digits = len(str(config.devices))
    for device in range(config.devices):
        rng = np.random.default_rng([_DEVICE_STREAM, seed, device])
        topics_K = rng.dirichlet(np.full(TOPICS, _TOPIC_CONCENTRATION))
        volume = rng.lognormal(np.log(MEAN_WORDS) - _VOLUME_SIGMA**2 / 2, _VOLUME_SIGMA)
        lengths = 1 + rng.poisson(_MEAN_SENTENCE - 1, size=max(1, round(volume / _MEAN_SENTENCE)))
        texts = []
        for length, topic in zip(lengths, rng.choice(TOPICS, size=len(lengths), p=topics_K), strict=True):
            chosen = np.searchsorted(cumulative_KV[topic], rng.random(length))
            texts.append(" ".join(words[np.minimum(chosen, len(words) - 1)]) + ".")
        yield f"synthetic-{device:0{digits}d}", texts


@cache
def frequencies(locale: str) -> tuple[tuple[str, ...], np.ndarray]:
    """Words that survive the locale's word rules unchanged, most common first, and their shares.

    Raises:
      ValueError: there are none for the locale's language.
    """
    listed = word_frequencies(locale)
    if not listed:
        raise ValueError(f"private_text.source: 'synthetic' has no word frequencies for locale {locale!r}; bring files")
    ranked = sorted(listed.items(), key=lambda item: (-item[1], item[0]))[:_WORDS]
    usable = {word: share for word, share in ranked if sentences(word, locale) == [[word]]}
    if len(usable) < _MIN_WORDS:
        raise ValueError(f"private_text.source: 'synthetic' knows only {len(usable)} words of {locale!r}; bring files")
    shares = np.array(list(usable.values()))
    return tuple(usable), shares / shares.sum()
