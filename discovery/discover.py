"""LDP TrieHH: words that many devices type, letter by letter (Sun & Sun 2024, algorithm 2).

Each layer asks devices that no other layer asked, so layers do not add up. The server sees
summed votes only; raw messages are never stored.
"""

import hashlib
import hmac
import json
import logging
import os
import string
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from discovery.amplification import CERTIFICATE, clones
from discovery.config import DiscoveryConfig
from discovery.device import END, Broadcast, report
from discovery.randomizer import (
    Keystream,
    estimate,
    estimate_deviation,
    significant_votes,
    subset_selection,
)

_log = logging.getLogger(__name__)


class FoundWord(BaseModel):
    """A finished word and how many of its layer's messages held it, with a 95% interval."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    word: str
    layer: int
    share: float
    low: float
    high: float


class Layer(BaseModel):
    """One layer as the report shows it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layer: int
    messages: int
    domain: int
    kept: int
    finished: int
    epsilon_central: float


class DiscoveryResult(BaseModel):
    """Public: words are outputs of the private mechanism, and nothing else here depends on a device.

    Guarantee: item-level ``epsilon0``-LDP under swap adjacency; ``messages_per_device * epsilon0``
    for a whole device; (epsilon_central, delta) for the item after shuffling, at the worst
    layer. None of these adds to the rho of training, whose unit is the device.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    words: tuple[FoundWord, ...]
    layers: tuple[Layer, ...]
    epsilon0: float
    messages_per_device: int
    device_level_epsilon0: float
    epsilon_central: float
    delta: float
    certificate: str = CERTIFICATE
    unit: str = "item"
    adjacency: str = "swap"


class _LayerState(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    row: Layer
    prefixes: tuple[str, ...]
    words: tuple[FoundWord, ...]


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
      ValueError: fewer devices than layers, a key that is not 32 bytes, or a directory that holds
        the answers of other devices or to other questions.
    """
    if len(device_words) < config.layers:
        raise ValueError(
            f"discovery.layers: {config.layers} layers need as many devices, there are {len(device_words)}; "
            "lower layers or wait for more devices"
        )
    letters = "".join(sorted(set(string.printable if config.alphabet == "printable" else alphabet) - {END})) + END
    groups = assign(len(device_words), config.layers, key, directory)
    _claim(directory, _fingerprint(device_words, known, letters, config, key))
    prefixes: tuple[str, ...] = ("",)
    states: list[_LayerState] = []
    for number, group in enumerate(groups, start=1):
        state = _load(directory, number)
        if state is None:
            state = _run_layer(number, group, prefixes, letters, device_words, known, config, key)
            _save(directory, state)
        states.append(state)
        prefixes = state.prefixes
        if progress:
            progress(state.row.model_dump())
        if not prefixes:
            _log.info("discover: no prefix survived layer %d, so no longer word can be found", number)
            break
    words = [word for state in states for word in state.words]
    return DiscoveryResult(
        words=tuple(sorted(words, key=lambda word: (-word.share, word.word))),
        layers=tuple(state.row for state in states),
        epsilon0=config.epsilon0,
        messages_per_device=config.messages_per_device,
        device_level_epsilon0=config.messages_per_device * config.epsilon0,
        epsilon_central=max(state.row.epsilon_central for state in states),
        delta=config.delta,
    )


def assign(devices: int, layers: int, key: bytes, directory: Path) -> list[np.ndarray]:
    """Disjoint groups of devices, one a layer, by a secret permutation; recorded in ``devices.npy``."""
    order = np.argsort(Keystream(key, "layers").words(devices), kind="stable")
    groups = [np.sort(group) for group in np.array_split(order, layers)]
    layer_D = np.empty(devices, dtype=np.int16)
    for number, group in enumerate(groups, start=1):
        layer_D[group] = number
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    np.save(directory / "devices.npy", layer_D)
    return groups


def _run_layer(
    number: int,
    group: np.ndarray,
    prefixes: tuple[str, ...],
    letters: str,
    device_words: Sequence[Sequence[str]],
    known: frozenset[str],
    config: DiscoveryConfig,
    key: bytes,
) -> _LayerState:
    broadcast = Broadcast(number, prefixes, letters)
    randomizer = subset_selection(config.epsilon0, broadcast.domain)
    votes_d = np.zeros(broadcast.domain, dtype=np.int64)
    for device in group.tolist():
        bits = Keystream(key, f"device {device} answers {broadcast.digest}")
        messages_Ck = report(device_words[device], known, broadcast, randomizer, config, bits)
        np.add.at(votes_d, messages_Ck.ravel(), 1)

    messages = len(group) * config.messages_per_device
    needed = significant_votes(randomizer, messages, config.significance_z)
    estimates_d = estimate(randomizer, votes_d, messages)
    deviations_d = estimate_deviation(randomizer, estimates_d, messages)
    survivors, words = [], []
    # Most votes first; equals in the order of the domain, which no device can influence.
    for item in np.argsort(-votes_d[:-1], kind="stable")[: config.max_prefixes].tolist():
        if estimates_d[item] <= 0:
            break
        candidate = broadcast.candidate(item)
        if not candidate.endswith(END):
            survivors.append(candidate)
        elif votes_d[item] >= needed:
            share, spread = estimates_d[item] / messages, 1.96 * deviations_d[item] / messages
            words.append(
                FoundWord(
                    word=candidate[:-1],
                    layer=number,
                    share=share,
                    low=max(share - spread, 0.0),
                    high=min(share + spread, 1.0),
                )
            )
    row = Layer(
        layer=number,
        messages=messages,
        domain=broadcast.domain,
        kept=len(survivors),
        finished=len(words),
        epsilon_central=clones(config.epsilon0, messages, config.delta),
    )
    return _LayerState(row=row, prefixes=tuple(sorted(survivors)), words=tuple(words))


def _fingerprint(
    device_words: Sequence[Sequence[str]], known: frozenset[str], letters: str, config: DiscoveryConfig, key: bytes
) -> str:
    """Changes with anything that the answers depend on; keyed, so that it tells nothing about the words."""
    digest = hmac.new(key, config.model_dump_json().encode(), hashlib.sha256)
    for part in (letters, *sorted(known)):
        digest.update(json.dumps(part).encode())
    for words in device_words:
        digest.update(json.dumps(list(words)).encode())
    return digest.hexdigest()


def _claim(directory: Path, fingerprint: str) -> None:
    """Refuse finished layers of another discovery: their prefixes and their epsilon are not this one's."""
    path = directory / "fingerprint"
    if path.exists():
        if path.read_text(encoding="utf-8") != fingerprint:
            raise ValueError(
                f"directory: {directory} holds a discovery with other devices, known words, alphabet, "
                "configuration or key; its devices have answered, so start a new launch in an empty directory"
            )
    elif any(directory.glob("layer-*.json")):
        raise ValueError(f"directory: {directory} holds layers of an unknown discovery; use an empty directory")
    else:
        _write(path, fingerprint)


def _path(directory: Path, number: int) -> Path:
    return directory / f"layer-{number:02d}.json"


def _load(directory: Path, number: int) -> _LayerState | None:
    path = _path(directory, number)
    return _LayerState.model_validate(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def _save(directory: Path, state: _LayerState) -> None:
    _write(_path(directory, state.row.layer), state.model_dump_json())


def _write(path: Path, content: str) -> None:
    temporary = path.with_suffix(".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
