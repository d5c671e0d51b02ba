"""The audit of words found locally: honest discoveries pass it, and every planted fault fails it."""

import functools
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from discovery import discover as trie
from discovery.certificates.group import device, honest_messages
from discovery.config import TrieConfig
from discovery.device.answer import letters_of
from discovery.device.randomizer import subset_selection
from discovery.device.typed import TypedWords
from evaluation.audit.released.local_words import Layer, local_words_audit
from pipeline.releases.local_words import layers_of, on_certificate, rule_of
from pretrain.randomness.noise import seeded_key
from pretrain.writing.case import SIGNS

KNOWN, ALPHABET = frozenset({"the", "and"}), "abhlow"
BASE = {
    "kind": "ldp-triehh",
    "epsilon0": 4.0,
    "delta": 1e-6,
    "messages_per_device": 2,
    "layers": 5,
    "max_prefixes": 12,
    "honest_share": 1.0,
}
CONFIGS = {
    "usual": {},
    "anonymity": {"anonymity": 5},
    "greedy": {"sampler": "greedy", "messages_per_device": 1},
    "much noise": {"epsilon0": 0.8},
    "next to none": {"epsilon0": 9.0, "layers": 6},
    "capitals": {"epsilon0": 9.0, "layers": 7},
}


def typists(devices: int, name: str) -> list[list[str]]:
    """Devices of a few words that many type, in several forms, with digits, and of some that nobody else types."""
    if name == "capitals":
        return [["haha" + SIGNS[2]]] * devices
    rng = np.random.default_rng(0)
    pool = ["lol", "haha", "lol" + SIGNS[1], "haha" + SIGNS[2], "wow8", "the", "wallah", "é", "", "a" * 40]
    return [
        [pool[place] for place in rng.integers(len(pool), size=rng.integers(0, 9))] + ["haha", "wow8"] * (device % 3)
        for device in range(devices)
    ]


@dataclass(frozen=True)
class Discovery:
    """What a discovery left, and what it was made of."""

    config: TrieConfig
    key: bytes
    typed: TypedWords
    layers: tuple[Layer, ...]
    published: Mapping[str, str]

    def failed(self) -> list[str]:
        """Names of the verdicts that speak against it."""
        rule = rule_of(self.config, letters_of(ALPHABET), KNOWN)
        verdicts = local_words_audit(self.key, self.layers, self.published, self.typed.of, rule)
        assert [verdict.name for verdict in verdicts] == ["messages", "votes", "choice"]
        return [verdict.name for verdict in verdicts if not verdict.passed]


@functools.cache
def discovered(name: str = "usual", seed: int = 1, devices: int = 150) -> Discovery:
    config, key = TrieConfig.model_validate(BASE | CONFIGS[name]), seeded_key(seed)
    typed = TypedWords.gather(typists(devices, name))
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory) / "layers"
        result = trie.discover(typed, known_words=KNOWN, alphabet=ALPHABET, config=config, key=key, directory=folder)
        layers = tuple(layers_of(folder))
    return Discovery(config, key, typed, layers, {word.word: word.form for word in result.words})


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "much noise" else name for name in CONFIGS]
)
def test_an_honest_discovery_passes(name: str) -> None:
    found = discovered(name)
    assert found.failed() == []
    assert sum(len(layer.prefixes) for layer in found.layers) > 4


@pytest.mark.slow
def test_honest_discoveries_find_words_with_digits_and_in_forms() -> None:
    published = discovered("next to none", devices=1500).published
    assert {"haha", "wow8"} <= set(published), published
    assert discovered("next to none", devices=1500).failed() == []


def test_a_form_that_most_type_is_published() -> None:
    found = discovered("capitals", devices=300)
    assert dict(found.published).get("haha") == "upper", found.published
    assert found.failed() == []


def test_a_layer_of_a_whole_ten_of_devices_passes() -> None:
    """Its threshold is that of ten devices more, so that it does not tell a whole ten from other numbers."""
    found = discovered(devices=50)
    assert sum(len(layer.asked) % 10 == 0 for layer in found.layers) == 3
    assert found.failed() == []


def votes(found: Discovery, change: Callable[[np.ndarray], np.ndarray], layer: int = 1) -> Discovery:
    """The same with other votes in a layer, of the same number."""
    layers = list(found.layers)
    layers[layer] = replace(layers[layer], votes_d=change(layers[layer].votes_d.copy()))
    return replace(found, layers=tuple(layers))


def moved(votes_d: np.ndarray) -> np.ndarray:
    """One vote for another item."""
    votes_d[int(np.argmax(votes_d))] -= 1
    votes_d[0] += 1
    return votes_d


def of_others(found: Discovery, devices: Callable[[np.ndarray], np.ndarray]) -> Discovery:
    """The same, on record with other devices."""
    first, *rest = found.layers
    return replace(found, layers=(replace(first, asked=devices(first.asked)), *rest))


def lower_threshold(found: Discovery) -> Discovery:
    """One more word than the threshold lets pass, in the layers and among those that leave."""
    *rest, last = found.layers
    more = replace(last, words=last.words | {"wall"})
    return replace(found, layers=(*rest, more), published={**found.published, "wall": "lower"})


TAMPERED: dict[str, tuple[Callable[[Discovery], Discovery], str]] = {
    "other noise": (lambda found: votes(found, moved), "votes"),
    "a message more": (
        lambda found: votes(found, lambda votes_d: votes_d + (np.arange(len(votes_d)) == 0)),
        "messages",
    ),
    "another key": (lambda found: replace(found, key=seeded_key(99)), "votes"),
    "a device that answered another layer": (
        lambda found: of_others(found, lambda asked: np.append(asked[:-1], found.layers[1].asked[0])),
        "messages",
    ),
    "another device's words": (lambda found: replace(found, typed=shifted(found.typed)), "votes"),
    "twice epsilon": (lambda found: replace(found, config=changed(found.config, epsilon0=8.0)), "votes"),
    "a word below the threshold": (lower_threshold, "choice"),
    "a word that nothing found": (
        lambda found: replace(found, published={**found.published, "mama": "lower"}),
        "choice",
    ),
    "a prefix dropped": (
        lambda found: replace(
            found, layers=(*found.layers[:-1], replace(found.layers[-1], prefixes=found.layers[-1].prefixes[1:]))
        ),
        "choice",
    ),
}


def shifted(typed: TypedWords) -> TypedWords:
    return TypedWords.gather([typed.of((device + 1) % len(typed)) for device in range(len(typed))])


def changed(config: TrieConfig, **fields: object) -> TrieConfig:
    return config.model_copy(update=fields)


@pytest.mark.parametrize("name", TAMPERED)
def test_what_is_not_the_discovery_is_seen(name: str) -> None:
    tamper, verdict = TAMPERED[name]
    assert verdict in tamper(discovered()).failed()


def test_the_votes_of_a_layer_without_noise_are_seen() -> None:
    """Every device tells the truth: a message for each of its items and nothing else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "discovery.device.answer.randomise",
            lambda randomizer, value, bits: np.resize(
                np.append(value, np.delete(np.arange(randomizer.domain), value)), randomizer.size
            ),
        )
        found = discovered.__wrapped__("usual", 2)
    assert "votes" in found.failed()


@pytest.mark.parametrize("messages", [1, 10])
def test_a_certificate_that_counts_everybody_as_honest_is_too_low(messages: int) -> None:
    """Half of the devices keep their messages secret; the certificate of all of them is no bound then."""
    config = TrieConfig.model_validate(BASE | {"epsilon0": 8.0, "messages_per_device": messages, "honest_share": 0.5})
    items, devices = 2_000, 20_000
    sample = subset_selection(config.epsilon0, items)
    right, wrong = (
        device(sample, honest_messages(devices * messages, messages, share), messages, config.delta)
        for share in (0.5, 1.0)
    )
    assert right > 1.1 * wrong
    assert on_certificate(config, [(items, devices)], right).passed
    assert on_certificate(config, [(items, devices), (300, 2 * devices)], right).passed
    assert not on_certificate(config, [(items, devices)], wrong).passed
    assert on_certificate(config, [(items, 7)], messages * config.epsilon0).passed
