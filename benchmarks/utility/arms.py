"""Arms of the tables: each made of its people, and scored on those held out."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from benchmarks.utility.cell import Cell
from benchmarks.utility.populations import SEED, People
from benchmarks.utility.recall import Arm, predictions
from federated import mechanisms
from federated.accounting.gaussian import epsilon_of_rho
from federated.config.mechanism import BandedMechanism, BltMechanism, MechanismConfig, TreeMechanism
from federated.config.training import LocalTrainingConfig, RuntimeConfig, ServerConfig
from federated.counts.cells import choose
from federated.counts.distil import distil
from federated.counts.posterior import counted_ngram
from federated.counts.release import released_counts
from federated.mechanisms.optimise_blt import optimise_blt
from federated.planning import law
from federated.rounds import state
from federated.rounds.rule import RoundRule
from federated.train import TrainingData, Workplace, fine_tune
from pretrain.config import PretrainConfig
from pretrain.model.export import save_model
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.ngrams import counted
from pretrain.ngrams.counted import CountedNGram
from pretrain.randomness.noise import seeded_key
from pretrain.text.batches import batches, find_rows
from pretrain.text.vocabulary import SPECIALS, UNK, TokenStream
from pretrain.training.train import dropped_share, kept_outputs, pretrain

DELTA, SEQUENCE_WORDS, CURVE_PEOPLE = 1e-6, 20, 20
_NEXT_TO_NONE = 1e-9
_CENTRAL = PretrainConfig(
    steps=3_000, batch_sentences=128, sequence_words=SEQUENCE_WORDS, learning_rate=3e-3, evaluate_every_steps=3_000
)


@dataclass(frozen=True)
class Hits:
    """Words that an arm ranks first, and among the first three, by held-out person; different words put first."""

    top1_D: np.ndarray
    top3_D: np.ndarray
    distinct: int


def made(cell: Cell, people: People, work: Path) -> tuple[Arm, dict[str, object]]:
    """Make the arm of a cell, and the facts of its row."""
    start = people.start
    match cell.arm:
        case "start":
            return Arm(start.model(), None), {}
        case "ngram":
            return Arm(None, start.ngram), {}
        case "start+ngram":
            return Arm(start.model(), start.ngram), {}
        case "start+counts":
            return Arm(start.model(), counts(cell, people, cell.rho, work)), {"epsilon": _epsilon(cell.rho)}
        case "central":
            return Arm(central(cell, people, work), None), {"devices": len(people.train)}
        case "train":
            return _trained(cell, people, start.model(), work, cell.rho)
        case "counts-train":
            moved = kept(work / "moved.safetensors", people, lambda: moved_start(cell, people, work))
            return _trained(cell, people, moved, work, cell.rho + cell.counts_rho)


def _epsilon(rho: float) -> float:
    return round(epsilon_of_rho(rho, DELTA), 3)


def counts(cell: Cell, people: People, rho: float, work: Path) -> CountedNGram:
    """The n-gram that a release of counts of this rho moves."""
    path = work / "counts.npz"
    if not path.exists():
        start, z = people.start, 1 / math.sqrt(2 * rho)
        chosen = choose(start.public, start.vocabulary, cell.contexts)
        released_U = released_counts(people.train, chosen, z, seeded_key(SEED + cell.draw), cell.counts_clip)
        model = counted_ngram(released_U, chosen, start.ngram, len(start.vocabulary), z, cell.counts_clip)
        path.parent.mkdir(parents=True, exist_ok=True)
        counted.save(model, path)
    return counted.load(path)


def moved_start(cell: Cell, people: People, work: Path) -> KeyboardLM:
    """The start that counts moved."""
    start = people.start
    return distil(start.model(), counts(cell, people, cell.counts_rho, work), start.public, SEQUENCE_WORDS, SEED)


def central(cell: Cell, people: People, work: Path) -> KeyboardLM:
    """Ordinary training without privacy on all text of the same people, by the cell's loss."""

    def trained() -> KeyboardLM:
        model = people.start.model()
        if cell.loss:
            _by_loss(model, people.train, cell.loss)
        else:
            few = people.held_out.select(np.arange(CURVE_PEOPLE))
            pretrain(_CENTRAL, model, people.train, few, work / "central", SEED)
        return model

    return kept(work / "model.safetensors", people, trained)


def _by_loss(model: KeyboardLM, text: TokenStream, loss: float) -> None:
    """The product's loop for public text, with the loss of devices' training (``local_training.kernel.outputs``)."""
    rows, first = find_rows(text.tokens_N, SEQUENCE_WORDS), UNK + 1
    usual_words = float(rows.length_R.mean()) * _CENTRAL.batch_sentences
    dropped = dropped_share(_CENTRAL.steps, _CENTRAL.batch_sentences, len(rows))
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    for step, rows_B in enumerate(islice(batches(rows, _CENTRAL.batch_sentences, SEED, 0), _CENTRAL.steps)):
        inputs_BT, targets_BT = rows.batch(rows_B)
        word_BT = targets_BT >= first
        features_ME = model.features(inputs_BT)[0][word_BT]
        kept_ME = kept_outputs(
            len(features_ME), features_ME.shape[1], dropped, np.random.default_rng((SEED, step, 0, 1))
        )
        features_ME = features_ME if kept_ME is None else features_ME * kept_ME
        logits_MW = torch.addmm(model.output_bias[first:], features_ME, model.output_VE[first:].T)
        optimizer.zero_grad()
        (word_loss(logits_MW, targets_BT[word_BT] - first, loss) / usual_words).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        left = 1 - step / _CENTRAL.steps
        optimizer.param_groups[0]["lr"] = _CENTRAL.learning_rate * min((step + 1) / (0.05 * _CENTRAL.steps), 1.0) * left
        optimizer.step()


def word_loss(logits_MW: torch.Tensor, targets_M: torch.Tensor, loss: float) -> torch.Tensor:
    """Sum of the loss over targets, of logits of words alone."""
    surprise_M = functional.cross_entropy(logits_MW / (1 - loss), targets_M, reduction="none")
    return (1 - loss) / loss * -torch.expm1(-loss * surprise_M).sum()


def kept(path: Path, people: People, make: Callable[[], KeyboardLM]) -> KeyboardLM:
    """A network from its file, or made and written there."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        save_model(make(), path)
    return people.start.load(path)


def mechanism_of(cell: Cell, people: int) -> MechanismConfig:
    """The mechanism block that spends the cell's rho at its rounds and participations."""
    rest = cell.rounds // cell.participations
    goal = people * cell.participations // cell.rounds
    limits = (cell.rounds, rest, cell.participations)
    shared = {
        "clip_norm": cell.clip,
        "clipping": cell.clipping,
        "rounds": cell.rounds,
        "report_goal": goal,
        "min_sep": rest,
        "max_participations": cell.participations,
        "delta": DELTA,
        "randomness": "seeded",
        "noise_multiplier": 1.0,
    }
    block: MechanismConfig
    match cell.mechanism:
        case "banded":
            block = BandedMechanism(kind="banded", bands=rest, **shared)
        case "blt":
            fit = optimise_blt(*limits, 4, "rms")
            block = BltMechanism(kind="blt", theta=fit.theta, omega=fit.omega, **shared)
        case "tree":
            block = TreeMechanism(kind="tree", **shared)
    z = math.sqrt(mechanisms.sensitivity_squared(block) / (2 * cell.rho))
    return block.model_copy(update={"noise_multiplier": z})


def _trained(cell: Cell, people: People, model: KeyboardLM, work: Path, rho: float) -> tuple[Arm, dict[str, object]]:
    block = mechanism_of(cell, len(people.train))
    server = ServerConfig(optimizer=cell.optimizer, learning_rate=1.0)
    rate = law.server_rate(block, server, cell.step_noise)
    server = ServerConfig(optimizer=cell.optimizer, learning_rate=rate)
    facts = {"devices": block.report_goal * block.rounds, "z": round(block.noise_multiplier, 4)}
    facts |= {"sigma": round(law.step_noise(block, server), 5), "way": round(law.way(block, server), 2)}
    facts |= {"server_rate": round(rate, 4), "epsilon": _epsilon(rho)}
    if not cell.noise:
        block = block.model_copy(update={"noise_multiplier": _NEXT_TO_NONE})

    def run() -> KeyboardLM:
        rounds(cell, people, model, block, server, work / "rounds")
        return model

    return Arm(kept(work / "model.safetensors", people, run), None), facts


def rounds(
    cell: Cell,
    people: People,
    model: KeyboardLM,
    block: MechanismConfig,
    server: ServerConfig,
    work: Path,
    along: Callable[[int, np.ndarray], None] | None = None,
) -> None:
    """Train ``model`` in place by the cell's settings; a killed run goes on from the last checkpoint in ``work``.

    Args:
      along: gets the number of rounds of the last checkpoint and its weights, before the first round and after each.
    """
    local = LocalTrainingConfig(
        learning_rate=cell.device_rate,
        loss=cell.loss,
        batch_sentences=cell.batch,
        sequence_words=SEQUENCE_WORDS,
        epochs=cell.epochs,
        max_words=cell.max_words,
    )
    runtime = RuntimeConfig(chunk_devices=16, checkpoint_every_rounds=8, evaluate_every_rounds=cell.rounds)
    everybody_D = np.zeros(len(people.train), dtype=bool)
    data = TrainingData(people.train, everybody_D, people.held_out.select(np.arange(CURVE_PEOPLE)))
    rule = RoundRule(block, SEED + cell.draw, seeded_key(SEED + cell.draw))
    digest = state.run_digest(model, people.train, everybody_D, (block, local, server), rule.seed, rule.key)

    def tell(_: object = None) -> None:
        if along and (newest := state.newest_checkpoint(work, digest)):
            along(newest.rounds_done, newest.arrays["weights"])

    tell()
    fine_tune(model, data, rule, local, server, Workplace(work, runtime, threads=1, on_round=tell))


def hits(arm: Arm, held_out: TokenStream) -> Hits:
    """Score an arm on held-out people; a word outside the vocabulary is a miss, specials are never suggested."""
    first = len(SPECIALS)
    top1_D, top3_D = (np.zeros(len(held_out), dtype=np.int64) for _ in range(2))
    said: set[int] = set()
    with torch.no_grad():
        for owner_M, meant_M, (chance_MV,) in predictions(held_out, [arm], SEQUENCE_WORDS):
            words_MV = chance_MV[:, first:]
            best_M = words_MV.argmax(axis=1)
            said.update(np.unique(best_M).tolist())
            rank_M = (words_MV > words_MV[np.arange(len(meant_M)), meant_M - first][:, None]).sum(axis=1)
            top1_D += np.bincount(owner_M[best_M == meant_M - first], minlength=len(held_out))
            top3_D += np.bincount(owner_M[rank_M < 3], minlength=len(held_out))
    return Hits(top1_D, top3_D, len(said))
