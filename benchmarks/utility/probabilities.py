"""Probabilities of networks trained by the loss of devices and by the cross entropy, in all that reads them.

OMP_NUM_THREADS=1 python -m benchmarks.utility.probabilities FOLDER [--work FOLDER] [--populations NAMES]

FOLDER and ``--work`` are those of ``benchmarks.utility.crossing``; a network that is not there is trained, with
the same noise and cohorts for either loss. Canaries are trained without noise, beside the people. The result is
``benchmarks/results/probabilities.md``. Intervals are of people (or canaries) alone: each network is one draw.

Shape legend: M words to predict, W words of the vocabulary, D people.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from scipy import stats

from benchmarks.utility import arms, populations
from benchmarks.utility.cell import Cell
from benchmarks.utility.populations import POPULATIONS, SEED, People
from benchmarks.utility.recall import Arm, predictions
from evaluation.arms.arm import Mixture, NextWord, PublicNGram, neural
from evaluation.arms.history import WithHistory
from evaluation.audit import canaries, exposure
from evaluation.comparison import compare
from evaluation.config import AuditConfig
from pretrain.dictionary import from_model
from pretrain.files import write_text
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.text.vocabulary import SPECIALS, UNK, TokenStream, join_owners, join_streams

RESULT = Path(__file__).resolve().parents[1] / "results" / "probabilities.md"
CELLS = {"sms-fr": Cell("sms-fr", 0, "train"), "chat": Cell("chat", 0, "train"), "talk": Cell("talk", 3_000, "train")}
TEMPERATURES = np.round(np.arange(0.9, 1.26, 0.05), 2)
LOSSES = {"cross entropy": 0.0, "loss 0.2": 0.2}
READ = ("top1_recall", "prate", "words_modified", "words_per_minute", "errors_left", "keystroke_savings")
CANARIES = AuditConfig(users=(1, 4, 16), examples=(1, 20), repeats=4, directions=100)
REFERENCES, NODES, BINS, HISTORY, TYPED, SESSION_WORDS = 2_000_000, 500, 20, 0.2, 10, 4_000


def measured(model: KeyboardLM, text: TokenStream) -> tuple[np.ndarray, float, float]:
    """Nats over words by person and temperature; calibration error of the first word; share of specials."""
    nats_DT = np.zeros((len(text), len(TEMPERATURES)))
    chances, right, specials, first = [], [], 0.0, len(SPECIALS)
    for owner_M, meant_M, (chance_MV,) in predictions(text, [Arm(model, None)], arms.SEQUENCE_WORDS):
        specials += float(chance_MV[:, :first].sum())
        log_MW = torch.from_numpy(chance_MV[:, first:]).clamp_min(1e-30).log()
        own_M = torch.from_numpy(meant_M).long() - first
        for place, temperature in enumerate(TEMPERATURES):
            nats_M = torch.nn.functional.cross_entropy(log_MW / float(temperature), own_M, reduction="none").numpy()
            nats_DT[:, place] += np.bincount(owner_M, nats_M, minlength=len(text))
        best_M = log_MW.softmax(1).max(1)
        chances.append(best_M.values.numpy())
        right.append((best_M.indices == own_M).numpy())
    chance_N, right_N = np.concatenate(chances), np.concatenate(right)
    parts = np.array_split(np.argsort(chance_N), BINS)
    error = sum(len(part) * abs(chance_N[part].mean() - right_N[part].mean()) for part in parts) / len(chance_N)
    return nats_DT, float(error), specials / len(chance_N)


def known(text: TokenStream) -> np.ndarray:
    """Words of the vocabulary that each person typed."""
    owner_N = np.repeat(np.arange(len(text)), np.diff(text.offsets_D1))
    return np.bincount(owner_N[text.tokens_N > UNK], minlength=len(text))


def of_networks(cell: Cell, people: People, networks: dict[str, KeyboardLM], work: Path) -> Iterator[str]:
    """Rows of one population: likelihood, calibration, dictionary."""
    locale = POPULATIONS[cell.population].locale
    public = join_streams(
        [each.encode(people.start.vocabulary) for each in populations.public_text(locale, work).validation]
    )
    everybody = join_owners([*owners(people.train), *owners(people.held_out)])
    words_D, one = known(people.held_out), int(np.flatnonzero(TEMPERATURES == 1.0)[0])
    typed_W = np.bincount(everybody.tokens_N, minlength=len(people.start.vocabulary))[len(SPECIALS) :]
    often_W = typed_W >= TYPED
    for name, model in networks.items():
        fitted = measured(model, public)[0].sum(0).argmin()
        nats_DT, error, specials = measured(model, people.held_out)
        nats_T = nats_DT.sum(0) / words_D.sum()
        score_W = from_model.word_scores(from_model.Arm(model, None))[len(SPECIALS) :]
        rank = stats.spearmanr(score_W[often_W], typed_W[often_W]).statistic
        dictionary = -(score_W * typed_W).sum() / typed_W.sum()
        yield (
            f"| {POPULATIONS[cell.population].about} | {name} | {nats_T[one]:.3f} | {TEMPERATURES[fitted]:g} | "
            f"{nats_T[fitted]:.3f} | {TEMPERATURES[nats_T.argmin()]:g} | {error:.3f} | {specials:.3f} | {rank:.3f} | "
            f"{dictionary:.3f} |"
        )


def of_readers(cell: Cell, people: People, networks: dict[str, KeyboardLM], folder: Path, work: Path) -> Iterator[str]:
    """Rows of one population: what the loss changes for typing, and in mixtures with n-gram and history."""
    population = POPULATIONS[cell.population]
    entrants: dict[str, NextWord] = {}
    for name in LOSSES:
        alone = neural(networks[name])
        entrants[name] = alone
        entrants[f"{name}, n-gram"] = Mixture(alone, PublicNGram(people.start.ngram))
        entrants[f"{name}, history"] = WithHistory(alone, HISTORY)
    before, after = LOSSES
    pairs = tuple((after + end, before + end) for end in ("", ", n-gram", ", history"))
    store = populations.text_of(population, folder, work)
    order_D = np.random.default_rng(SEED).permutation(len(store))
    test_D = (
        order_D[: population.held_out] if population.held_out else np.array_split(order_D, populations.FOLDS)[cell.fold]
    )
    size = len(people.start.vocabulary)
    rules = compare.Rules(("NWP", "OTF"), population.locale, "probabilities", SEED, 20, SESSION_WORDS)
    devices = compare.Devices(store, test_D, np.setdiff1d(order_D, test_D)[:50])
    found = compare.run(compare.Entrants(entrants, pairs, people.start.vocabulary, size, size), devices, rules)
    value = {(row.arm, row.metric): row.estimate.value for row in found.table.arms}
    for row in found.table.differences:
        if row.metric in READ:
            change = row.absolute
            yield (
                f"| {population.about} | {row.candidate.partition(', ')[2] or 'alone'} | {row.metric} | "
                f"{value[row.baseline, row.metric]:.4g} | {value[row.candidate, row.metric]:.4g} | "
                f"{change.value:+.4f} ({change.low:+.4f} to {change.high:+.4f}) |"
            )


def owners(text: TokenStream) -> list[np.ndarray]:
    """Tokens of each owner."""
    return np.split(text.tokens_N, text.offsets_D1[1:-1])


def of_canaries(cell: Cell, people: People, work: Path) -> Iterator[str]:
    """Rows of exposure in bits, canaries trained beside the people, without noise."""
    planted = canaries.make(CANARIES, people.start.vocabulary, people.start.public, SEED)
    with_them = replace(people, train=join_owners([*owners(people.train), *owners(planted.devices)]))
    bits: dict[str, np.ndarray] = {}
    for name, loss in LOSSES.items():
        own = replace(cell, noise=False, loss=loss)
        model = arms.made(own, with_them, work / "trained" / f"{own.name}-canaries")[0].network
        assert model is not None, "training makes a network"
        ranks = [exposure.rank(model, each, REFERENCES, SEED, nodes=NODES).rank for each in planted.canaries]
        bits[name] = np.array([exposure.exposure_bits(rank, REFERENCES) for rank in ranks])
    for users in CANARIES.users:
        for copies in CANARIES.examples:
            of = np.array([(each.n_u, each.n_e) == (users, copies) for each in planted.canaries])
            before, after = (bits[name][of] for name in LOSSES)
            change, error = (after - before).mean(), 2 * (after - before).std(ddof=1) / np.sqrt(of.sum())
            yield f"| {users} | {copies} | {before.mean():.1f} | {after.mean():.1f} | {change:+.1f} ± {error:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--work", type=Path, default=Path("build/crossing"), help="private; resumes from here")
    parser.add_argument("--populations", nargs="+", choices=sorted(CELLS), default=list(CELLS))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    done: tuple[list[str], list[str], list[str]] = ([], [], [])
    for number, name in enumerate(chosen.populations, 1):
        cell = CELLS[name]
        people = populations.opened(cell, chosen.folder, chosen.work)
        networks = {"start": people.start.model()}
        for called, loss in LOSSES.items():
            own = replace(cell, loss=loss)
            trained = arms.made(own, people, chosen.work / "trained" / own.name)[0].network
            assert trained is not None, "training makes a network"
            networks[called] = trained
        done[0].extend(of_networks(cell, people, networks, chosen.work))
        done[1].extend(of_readers(cell, people, networks, chosen.folder, chosen.work))
        if name == "chat":
            done[2].extend(of_canaries(cell, people, chosen.work))
        write_text(RESULT, page(chosen.populations[:number], *done))


def page(names: list[str], networks: list[str], readers: list[str], canary: list[str]) -> str:
    """The whole file."""
    return "\n".join(
        [
            "# Probabilities after training with the loss of devices",
            "",
            f"`python -m benchmarks.utility.probabilities FOLDER --populations {' '.join(names)}`: networks trained at "
            "rho 0.5 with the same noise and cohorts, one draw each; intervals of people alone. *fitted*: the "
            "temperature of fewest nats on public text that pretraining has not read, of "
            f"{TEMPERATURES[0]:g} to {TEMPERATURES[-1]:g}. *calibration*: mean distance of the first word's chance "
            f"from how often it is right, {BINS} groups. *specials*: their share of probability before a word. "
            "*ranks*: Spearman correlation of a dictionary's frequencies with those of everybody's words, of words "
            f"typed {TYPED} times or more. *dictionary*: nats of everybody's words by those frequencies.",
            "",
            "| people | network | nats | fitted | nats at it | best | calibration | specials | ranks | dictionary |",
            "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
            *networks,
            "",
            "Loss 0.2 over the cross entropy; typing is simulated.",
            "",
            "| people | mixed with | metric | cross entropy | loss 0.2 | difference |",
            "|---|---|---|---:|---:|---:|",
            *readers,
            "",
            f"Exposure of canaries in bits, of at most {np.log2(REFERENCES):.1f}, trained without noise beside "
            f"{POPULATIONS['chat'].about}; {CANARIES.repeats} canaries a row, ± two standard errors over them.",
            "",
            "| devices | copies on each | cross entropy | loss 0.2 | difference |",
            "|---:|---:|---:|---:|---:|",
            *canary,
            "",
        ]
    )


if __name__ == "__main__":
    main()
