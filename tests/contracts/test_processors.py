"""Bits that are the same on every kind of processor, and bits of one kind, in processes told to be of other kinds.

The same everywhere: whatever a retry must do again without its being a second release, and what everybody must agree
on. On one kind only: what models compute; there the same chunks of devices give the same bits, and nothing rests on
how a processor multiplies.
"""

import hashlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from discovery.device import votes
from discovery.device.answer import END, Broadcast, Question
from discovery.device.randomizer import subset_selection
from discovery.device.typed import TypedWords
from evaluation.audit import keyed_noise
from federated.config.blt_presets import PRESETS
from federated.local_training.clipping import Clip, release
from federated.local_training.kernel.chunk import train_chunk
from federated.local_training.low_bits import low_bits_of
from federated.local_training.rows import DeviceRows
from federated.local_training.sums import Sums, chunked_sum, most_steps_first
from federated.mechanisms import Mechanism
from federated.mechanisms.banded import from_coefficients
from federated.mechanisms.blt import Blt
from federated.mechanisms.independent import Independent
from federated.mechanisms.tree import Tree
from federated.rounds.rule import RoundRule
from pretrain.kernel.threads import one_torch_thread
from pretrain.kernel.weights import pack
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.randomness import noise
from tests.contracts.processors import HERE, KINDS, on, only_where_emulated
from tests.helpers.audits.mechanism_kinds import KINDS as BLOCKS
from tests.helpers.audits.mechanism_kinds import PARSER
from tests.helpers.launches.small_run import DEVICES, Launch, run
from tests.helpers.text.tries import trie_config
from tests.helpers.text.typed_devices import keyboard, local, rows_of

KEY = bytes(range(32))
ROUNDS = 12
MECHANISMS = {
    "tree": Tree(1.7, restarts=(5, 8)),
    "blt": Blt(1.7, PRESETS["min-sep-100"].theta, PRESETS["min-sep-100"].omega, (5, 8)),
    "independent": Independent(1.7, "poisson", 0.5, 20),
    "banded": from_coefficients(1.7, np.array([1.0, 0.5, 0.3]), ROUNDS),
}

pytestmark = [pytest.mark.slow, only_where_emulated]


def digest(*arrays: np.ndarray) -> str:
    total = hashlib.sha256()
    for array in arrays:
        total.update(f"{array.dtype.str} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def same_everywhere() -> dict[str, str]:
    """Bits that no processor may change, by what they are."""
    normals_N = noise.gaussian(KEY, "processors", 3, 200_001)
    whole_N = np.arange(200_001) * 10**9
    return {
        "noise": digest(normals_N),
        "noise of the audits": digest(keyed_noise.gaussian(KEY, "processors", 3, 200_001)),
        "noise far out": digest(noise.box_muller(np.array([[0, 5], [3, 2**63]], np.uint64), np.zeros(2, np.uint64))),
        "words of noise": digest(noise.uniform_words(KEY, "who", 0, 1000)),
        "releases on their lattice": digest(release(whole_N, normals_N, 0.3, 1.0), noise.on_grid(normals_N, 0.7)),
        **{f"noise of {name}": digest(*noise_of(each)) for name, each in MECHANISMS.items()},
        **{f"cohorts of {kind}": digest(*cohorts(kind)) for kind in BLOCKS},
        "messages of devices": digest(*messages()),
    }


def noise_of(mechanism: Mechanism) -> list[np.ndarray]:
    """Every round's."""
    state, drawn = mechanism.init(501), []
    for number in range(ROUNDS):
        noise_P, state = mechanism.noise(state, number, KEY)
        drawn.append(noise_P)
    return drawn


def messages() -> list[np.ndarray]:
    """What devices send in a layer of discovery, one by one and together."""
    broadcast = Broadcast(1, ("",), "abcdefgh" + END)
    trie = trie_config(epsilon0=4.0, messages_per_device=3, max_prefixes=50)
    question = Question(broadcast, subset_selection(4.0, broadcast.domain), frozenset({"ab"}), trie)
    typed = TypedWords.gather([[f"{'abcdefgh'[n % 8]}{'abcx'[n % 4]}"] * (1 + n % 5) for n in range(60)])
    sent = []
    for worth in (10**9, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(votes, "WORTH_COMPILING", worth)
            sent.append(votes.votes_of_shard(question, np.arange(60), typed, KEY).votes_d)
    return sent


def cohorts(kind: str) -> list[np.ndarray]:
    """Who joins each round."""
    rule = RoundRule(PARSER.validate_python(BLOCKS[kind]), 3, noise.seeded_key(5), None)
    drawn, found = rule.cohorts(np.arange(DEVICES) >= DEVICES - 3, None, 0.0), []
    state = drawn.init()
    for number in range(rule.config.rounds):
        cohort, state = drawn.draw(state, number)
        found.append(cohort)
    return found


def of_one_kind() -> dict[str, object]:
    """What the kernel promises on whatever processor this is."""
    training, clip = local(epochs=2), Clip(0.1, below=0.3)
    found: dict[str, object] = {}
    for tied in (True, False):
        model = keyboard(tied)
        rows = rows_of(23, training)
        with one_torch_thread():
            found |= {f"{name}, tied: {tied}": holds for name, holds in kernel(model, rows, training, clip).items()}
    found["a run, whole and resumed"] = resumed()
    return found


def kernel(model: KeyboardLM, rows: list[DeviceRows], training: object, clip: Clip) -> dict[str, bool]:
    ordered = most_steps_first(rows, training)

    def summed(chunk: int, threads: int = 1, parts: int = 1) -> str:
        whole, *others = (chunked_sum(model, ordered, training, clip, chunk, threads, n, parts) for n in range(parts))
        for other in others:
            whole.merge(other)
        return digest(whole.flat(model).numpy(), whole.counts)

    alone = {number: update(model, [rows], training) for number, rows in enumerate(ordered)}
    one_each = Sums.zeros(pack(model))
    for each in reversed(ordered):
        one_each.add(*train_chunk(pack(model), [each], training), [1.0], clip)
        one_each.trained([each])
    return {
        "threads": len({summed(4, threads) for threads in (1, 2, 3)}) == 1,
        "workers": len({summed(4, parts=parts) for parts in (1, 2, 3)}) == 1,
        "again": summed(7) == summed(7),
        "one device a chunk, in any order": digest(one_each.flat(model).numpy(), one_each.counts) == summed(1),
        "one device a chunk, whoever trained before": all(
            update(model, [each], training) == alone[number] for number, each in reversed(list(enumerate(ordered)))
        ),
    }


def update(model: KeyboardLM, devices: list[DeviceRows], training: object) -> str:
    """Digest of the update of one device that is trained by itself."""
    updates, ids = train_chunk(pack(model), devices, training)
    parts = [*updates.shared(), *([] if updates.inputs is None else [updates.inputs])]
    return digest(*(part.numpy() for part in parts), *(each.numpy() for each in ids))


def resumed() -> bool:
    class Stopped(Exception):
        pass

    def stop(told: dict) -> None:
        if told["round"] == 5:
            raise Stopped

    with tempfile.TemporaryDirectory() as folder:
        whole, cut = Path(folder) / "whole", Path(folder) / "cut"
        expected_P, _ = run(Launch(), whole)
        try:
            run(Launch(), cut, stop, threads=2)
        except Stopped:
            again_P, _ = run(Launch(), cut)
            return again_P.tobytes() == expected_P.tobytes()
    return False


def low_bits() -> list[str]:
    """The kernel's low bits in the shapes of two models, each twice."""
    torch.manual_seed(1)
    models = KeyboardLM(300, 16, 24, tied=False), keyboard(True)
    return [low_bits_of(model, local()) for model in (*models, *models)]


def everything() -> dict[str, object]:
    """All of the above, as a process takes seconds to begin; as JSON has it."""
    return {"same everywhere": same_everywhere(), "of one kind": of_one_kind(), "low bits": low_bits()}


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    return {kind: everything() if kind == HERE else on(kind, everything) for kind in KINDS}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != HERE])
def test_noise_messages_and_cohorts_are_the_same_on_every_processor(found: dict, kind: str) -> None:
    assert found[kind]["same everywhere"] == found[HERE]["same everywhere"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_chunks_have_the_same_bits_on_any_processor(found: dict, kind: str) -> None:
    assert [name for name, holds in found[kind]["of one kind"].items() if holds is not True] == []


def test_low_bits_tell_kinds_of_processors_apart(found: dict) -> None:
    """An emulated kind is told from the other one; this processor may be either."""
    bits = {kind: each["low bits"] for kind, each in found.items()}
    assert all(each[:2] == each[2:] for each in bits.values())
    assert bits["with AVX2"][0] != bits["with SSE"][0]
    assert bits["with AVX2"][1] != bits["with SSE"][1]
