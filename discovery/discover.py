"""LDP TrieHH: words that many devices type, letter by letter (Sun & Sun 2024, algorithm 2).

Each layer queries its own devices, so the losses of layers do not add up.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from discovery import participation, state
from discovery.config import TrieConfig
from discovery.device.answer import letters_of
from discovery.device.typed import TypedWords
from discovery.device.votes import AddUp, Workers, ask, workers
from discovery.results import DiscoveryResult, FoundWord, LayerState, by_share
from discovery.trie import close_layer, question_of
from pretrain import progress

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Run:
    """Arguments that all layers share: devices, configuration, key, folder."""

    typed: TypedWords
    letters: str
    config: TrieConfig
    key: bytes
    directory: Path
    groups: dict[int, np.ndarray]
    known_words: frozenset[str]
    add_up: AddUp | None


def require_devices(config: TrieConfig, devices: int) -> None:
    """Raise ValueError if there are fewer devices than layers."""
    if devices < config.layers:
        raise ValueError(
            f"discovery.layers: {config.layers} layers need as many devices, there are {devices}; lower layers, or "
            "wait for more devices"
        )


def discover(
    device_words: Sequence[Sequence[str]] | TypedWords,
    *,
    known_words: frozenset[str],
    alphabet: str,
    config: TrieConfig,
    key: bytes,
    directory: Path,
    processes: int = 1,
    add_up: AddUp | None = None,
) -> DiscoveryResult:
    """Find words that devices type, letter by letter, each layer from devices of its own.

    Args:
      device_words: the words of each device, in its order of typing, with the signs of their forms.
      known_words: public; every device removes them before it answers.
      alphabet: letters of the locale.
      key: 32 secret bytes that all devices' random bits derive from in this simulation.
      directory: private; participation records and one file for each finished layer, so that a killed run resumes.
      processes: number of processes that share a layer's devices; the result does not depend on it.
      add_up: sums a layer's votes, such as by secure aggregation; the sums are the same.

    Raises:
      ValueError: fewer devices than layers, no letters, a key that is not 32 bytes, or a directory
        that holds answers of other devices or to other questions.
      ArithmeticError: votes, certificates or participation went wrong.
      OSError: a worker process was killed.
    """
    typed = device_words if isinstance(device_words, TypedWords) else TypedWords.gather(device_words)
    require_devices(config, len(typed))
    letters = letters_of(alphabet)
    state.claim(directory, state.fingerprint(typed, known_words, letters, config, key))
    groups = participation.assign(len(typed), config, key, known_words)
    run = _Run(typed, letters, config, key, directory, groups, known_words, add_up)
    with workers(processes) as shared:
        advance = progress.along("asking devices for words", config.layers)
        done = _layers(run, shared, advance)
        if len(done) < config.layers:  # No prefix survived, so the discovery ends.
            advance(config.layers - len(done))
    rows = tuple(layer.row for layer in done)
    participation.check(directory, rows, config.messages_per_device)
    return DiscoveryResult(
        words=tuple(sorted((_as_typed(word, done) for layer in done for word in layer.words), key=by_share)),
        rows=rows,
        epsilon0=config.epsilon0,
        messages_per_device=config.messages_per_device,
        device_level_epsilon0=config.messages_per_device * config.epsilon0,
        epsilon_central=max(row.clones for row in rows),
        epsilon_blanket=max(row.blanket for row in rows),
        epsilon_attack=max(row.attack for row in rows),
        device_epsilon_central=max(row.device for row in rows),
        honest_share=config.honest_share,
        delta=config.delta,
    )


def _as_typed(word: FoundWord, done: Sequence[LayerState]) -> FoundWord:
    """A word in the form that a later layer found."""
    forms = [layer.forms[word.word] for layer in done if word.word in layer.forms]
    return word.model_copy(update={"form": forms[0]}) if forms else word


def _layers(run: _Run, shared: Workers, advance: Callable[[float], None]) -> list[LayerState]:
    prefixes: tuple[str, ...] = ("",)
    done = []
    for layer in range(1, run.config.layers + 1):
        closed = state.load(run.directory, layer)
        if closed is None:
            question = question_of(layer, prefixes, run.letters, run.known_words, run.config)
            group = run.groups[layer]
            participation.record(run.directory, layer, group)
            answers = ask(question, group, run.typed, run.key, shared, run.add_up)
            closed = close_layer(question, answers)
            state.save(run.directory, closed, answers.votes_d)
        done.append(closed)
        advance(1.0)
        prefixes = closed.prefixes
        if not prefixes:
            _log.info("discover: no prefix survived layer %d: no longer word can be found", layer)
            break
    return done
