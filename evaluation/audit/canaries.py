"""Canaries of the federated Secret Sharer (Ramaswamy et al. 2020, section IV).

A canary is five words drawn uniformly and independently from the model's vocabulary, specials
excluded: a prefix of two and a secret of three. It is on ``n_u`` synthetic devices, ``n_e``
times on each, among sentences of public text. Canaries and synthetic devices hold nobody's data, so they
may be published.

There are two populations, each with a whole grid of its own; no figure mixes them. *Compliant* devices obey the
timer like any other, so the formal guarantee holds for them. *Stress* devices are always available, as in the
paper, and take part one or two orders of magnitude more often than a real device could. ``AuditConfig.in_launch``
names the populations whose canaries the launched model holds; a twin of public text holds the others.

The audit's ceiling (``exposure.ceiling_bits``) is a theorem because secrets are uniform and independent of
everything else; do not choose canaries by hand.
"""

import base64
import json
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from evaluation.config import AuditConfig
from evaluation.inference import NUM_SPECIALS
from pretrain.files import write_text
from pretrain.text.vocabulary import EOS, TokenStream, Vocabulary, join_owners

PREFIX_WORDS = 2
SECRET_WORDS = 3
_FORMAT = "tacit-canaries-2"
Population = Literal["compliant", "stress"]


@dataclass(frozen=True)
class Canary:
    """One canary: five words and their ids, on ``n_u`` devices with ``n_e`` copies each."""

    words: tuple[str, ...]
    ids: tuple[int, ...]
    n_u: int
    n_e: int
    population: Population = "compliant"

    @property
    def prefix(self) -> tuple[int, ...]:
        """Ids of the two words an attacker knows."""
        return self.ids[:PREFIX_WORDS]

    @property
    def secret(self) -> tuple[int, ...]:
        """Ids of the three words an attacker wants."""
        return self.ids[PREFIX_WORDS:]


@dataclass(frozen=True)
class CanarySet:
    """Canaries and the synthetic devices that type them.

    Attributes:
      canaries: in the order of the grid: population, then n_u, then n_e, then repeat.
      devices: one owner per synthetic device, ``sentences_per_device`` sentences each.
      canary_of_device_D: int64, index of each device's canary.
      vocabulary_digest: vocabulary snapshot of canaries, devices and references.
    """

    canaries: tuple[Canary, ...]
    devices: TokenStream
    canary_of_device_D: np.ndarray
    vocabulary_digest: str

    @property
    def stress_D(self) -> np.ndarray:
        """Bool: devices that are always available, outside the timer and the cap on participations."""
        stress_N = np.array([canary.population == "stress" for canary in self.canaries], dtype=bool)
        return stress_N[self.canary_of_device_D]

    def of(self, populations: Collection[str]) -> "CanarySet":
        """The canaries of some populations, with their devices, in the same order."""
        return self._where([canary.population in populations for canary in self.canaries])

    def on_fewest(self) -> "CanarySet":
        """The canaries with the fewest devices: those on a single device, if there are any."""
        fewest = min((canary.n_u for canary in self.canaries), default=0)
        return self._where([canary.n_u == fewest for canary in self.canaries])

    def _where(self, chosen: Sequence[bool]) -> "CanarySet":
        chosen_N = np.array(chosen, dtype=bool)
        devices_K = np.flatnonzero(chosen_N[self.canary_of_device_D])
        return CanarySet(
            tuple(self.canaries[number] for number in np.flatnonzero(chosen_N)),
            self.devices.select(devices_K),
            (np.cumsum(chosen_N) - 1)[self.canary_of_device_D[devices_K]],
            self.vocabulary_digest,
        )


def make(config: AuditConfig, vocabulary: Vocabulary, filler: TokenStream, seed: int) -> CanarySet:
    """Draw canaries and write their devices; a function of the arguments alone.

    Args:
      filler: public text in the same vocabulary; its sentences are drawn with replacement.

    Raises:
      ValueError: the vocabulary has no words, or there is no public sentence as filler.
    """
    if len(vocabulary) <= NUM_SPECIALS:
        raise ValueError("vocabulary: it holds no word besides the specials; build it from more public text")
    # Separate streams: canaries do not change with the filler, and share no draw with other uses of
    # the launch's seed.
    word_rng, device_rng = (np.random.default_rng([seed, *name]) for name in (b"canary words", b"canary devices"))
    canaries = tuple(
        _draw(word_rng, vocabulary, n_u, n_e, population)
        for population in config.populations
        for n_u in config.users
        for n_e in config.examples
        for _ in range(config.repeats)
    )
    ends = np.flatnonzero(filler.tokens_N == EOS) + 1
    starts = np.concatenate([[0], ends[:-1]])[: len(ends)]
    owners = np.repeat(np.arange(len(canaries)), [canary.n_u for canary in canaries])
    devices = [
        _device(device_rng, canaries[number], filler.tokens_N, starts, ends, config.sentences_per_device)
        for number in owners
    ]
    return CanarySet(canaries, join_owners(devices), owners, vocabulary.digest)


def save(canaries: CanarySet, path: Path) -> None:
    """Write everything as one JSON file; token ids and offsets deflated, base64, little-endian."""
    content = {
        "format": _FORMAT,
        "vocabulary_digest": canaries.vocabulary_digest,
        "canaries": [vars(canary) for canary in canaries.canaries],
        "canary_of_device": canaries.canary_of_device_D.tolist(),
        "offsets": canaries.devices.offsets_D1.tolist(),
        "tokens": base64.b64encode(zlib.compress(canaries.devices.tokens_N.astype("<i4").tobytes())).decode(),
    }
    write_text(path, json.dumps(content, ensure_ascii=False))


def load(path: Path) -> CanarySet:
    """Read what ``save`` wrote.

    Raises:
      ValueError: the file is of another format.
    """
    content = json.loads(path.read_text(encoding="utf-8"))
    if content.get("format") != _FORMAT:
        raise ValueError(
            f"{path.name}: format {content.get('format')!r}, expected {_FORMAT!r}; make the canaries again"
        )
    tokens_N = np.frombuffer(zlib.decompress(base64.b64decode(content["tokens"])), dtype="<i4").astype(np.int32)
    return CanarySet(
        tuple(
            Canary(tuple(entry["words"]), tuple(entry["ids"]), entry["n_u"], entry["n_e"], entry["population"])
            for entry in content["canaries"]
        ),
        TokenStream(tokens_N, np.asarray(content["offsets"], dtype=np.int64)),
        np.asarray(content["canary_of_device"], dtype=np.int64),
        content["vocabulary_digest"],
    )


def _draw(rng: np.random.Generator, vocabulary: Vocabulary, n_u: int, n_e: int, population: Population) -> Canary:
    ids = rng.integers(NUM_SPECIALS, len(vocabulary), size=PREFIX_WORDS + SECRET_WORDS).tolist()
    return Canary(tuple(vocabulary.words[number] for number in ids), tuple(ids), n_u, n_e, population)


def _device(
    rng: np.random.Generator,
    canary: Canary,
    filler_N: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    sentences: int,
) -> np.ndarray:
    """``n_e`` copies of the canary among public sentences, in random order."""
    missing = sentences - canary.n_e
    if missing and not len(ends):
        raise ValueError("filler: it holds no sentence, and synthetic devices need public text; give a longer corpus")
    drawn = rng.integers(0, len(ends), size=missing) if missing else ()
    texts = [filler_N[starts[number] : ends[number]] for number in drawn]
    texts += [np.array([*canary.ids, EOS])] * canary.n_e
    return np.concatenate([texts[number] for number in rng.permutation(len(texts))])
