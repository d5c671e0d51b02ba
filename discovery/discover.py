"""LDP TrieHH: words that many devices type, letter by letter (Sun & Sun 2024, algorithm 2).

Each layer asks devices that no other layer asked, so layers do not add up.
"""

import logging
import string
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from discovery import state
from discovery.config import DiscoveryConfig
from discovery.device import END, Broadcast
from discovery.keystream import Keystream
from discovery.results import DiscoveryResult, LayerState
from discovery.trie import run_layer

_log = logging.getLogger(__name__)


def discover(
    device_words: Sequence[Sequence[str]],
    *,
    known: frozenset[str],
    alphabet: str,
    config: DiscoveryConfig,
    key: bytes,
    directory: Path,
    progress: Callable[[dict], None] | None = None,
) -> DiscoveryResult:
    """One pass over the population.

    Args:
      device_words: the words of each device, in its order of typing.
      known: public words; every device removes them before it answers.
      alphabet: letters of the locale, used unless the configuration says 'printable'.
      key: 32 secret bytes that all devices' random bits derive from in this simulation.
      directory: private; one file for each finished layer, so that a killed run goes on.

    Raises:
      ValueError: fewer devices than layers, no letters, a key that is not 32 bytes, or a directory
        that holds the answers of other devices or to other questions.
      ArithmeticError: votes or certificates went wrong.
    """
    if len(device_words) < config.layers:
        raise ValueError(
            f"discovery.layers: {config.layers} layers need as many devices, there are {len(device_words)}; "
            "lower layers or wait for more devices"
        )
    letters = "".join(sorted(set(string.printable if config.alphabet == "printable" else alphabet) - {END})) + END
    if letters == END:
        raise ValueError("alphabet: it is empty; give the letters that words of this locale hold")
    state.claim(directory, state.fingerprint(device_words, known, letters, config, key))
    groups = assign(len(device_words), config.layers, key)
    state.record(directory, groups)
    prefixes: tuple[str, ...] = ("",)
    done: list[LayerState] = []
    for number, group in enumerate(groups, start=1):
        layer = state.load(directory, number)
        if layer is None:
            layer = run_layer(Broadcast(number, prefixes, letters), group, device_words, known, config, key)
            state.save(directory, layer)
        done.append(layer)
        prefixes = layer.prefixes
        if progress:
            progress(layer.row.model_dump())
        if not prefixes:
            _log.info("discover: no prefix survived layer %d, so no longer word can be found", number)
            break
    words = [word for layer in done for word in layer.words]
    return DiscoveryResult(
        words=tuple(sorted(words, key=lambda word: (-word.share, word.word))),
        layers=tuple(layer.row for layer in done),
        epsilon0=config.epsilon0,
        messages_per_device=config.messages_per_device,
        device_level_epsilon0=config.messages_per_device * config.epsilon0,
        epsilon_central=max(layer.bounds.clones for layer in done),
        epsilon_blanket=max(layer.bounds.blanket for layer in done),
        epsilon_attack=max(layer.bounds.attack for layer in done),
        delta=config.delta,
    )


def assign(devices: int, layers: int, key: bytes) -> list[np.ndarray]:
    """Disjoint groups of device numbers, int64, one a layer, by a secret permutation."""
    return [np.sort(group) for group in np.array_split(Keystream(key, "layers").permutation(devices), layers)]
