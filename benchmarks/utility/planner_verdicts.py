"""What the planner says of real populations before a spend, beside what training on them really gives.

OMP_NUM_THREADS=1 python -m benchmarks.utility.planner_verdicts FOLDER [--only NAME] [--work FOLDER]

FOLDER holds ``users/*.parquet`` (``client_id, text, locale, ts``) and ``public/*.parquet`` (``text, source``). A small
model is pretrained on one public text and its launch rehearsed, as ``tacit rehearse`` does it, on another that reads
more like typing; then the very splits that were rehearsed are trained and counted on the real devices, with the same
noise (seeded, so nobody is protected: a measurement, not a launch), and judged on held-out ones. Small: 4,000 words,
8 rounds, one server rate. Prints Markdown; about three minutes of CPU a population.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.utility.real_users import (
    Asked,
    PublicStart,
    device_store,
    first_people,
    public_texts,
    public_words,
    trade_setting,
    tried_of,
)
from federated.config.planning import SmallLaunch, SmallTrade
from federated.config.training import LocalTrainingConfig, RuntimeConfig, ServerConfig
from federated.planning import trade
from federated.planning.pseudo_users import pseudo_users
from federated.planning.rehearsal import Setting, rehearse
from federated.planning.verdict import Outcome, Verdict
from pretrain.config import ModelConfig, PretrainConfig
from pretrain.model import KeyboardLM, build_model
from pretrain.train import pretrain, start_from_frequencies
from pretrain.vocabulary import TokenStream, from_counts

SEED, VOCABULARY, WORDS_A_DEVICE, HELD_OUT_WORDS = 1, 4000, 400, 12_000
MOST_PUBLIC_WORDS, MOST_REHEARSED_WORDS, HELD_OUT_DOCUMENTS = 1_300_000, 800_000, 0.1
MODEL = ModelConfig(embedding_dim=64, hidden_dim=128, tied=True)
PRETRAIN = PretrainConfig(
    steps=1200,
    batch_sentences=128,
    sequence_words=20,
    learning_rate=0.006,
    evaluate_every_steps=1200,
    checkpoint_every_steps=300,
)
RHO, ROUNDS = 1.0, 8
SMALL = SmallLaunch(report_goal=50, rounds=8, server_learning_rates=(1.0,), noise_to_signal=(0.01,))
LIMITS = SmallTrade(shares=(0.1, 0.5, 0.9, 1.0), goals=(1.0, 0.5), held_out_words=HELD_OUT_WORDS)
LOCAL = LocalTrainingConfig(learning_rate=0.5, batch_sentences=8, sequence_words=20, max_words=80)


@dataclass(frozen=True)
class Population:
    """Devices, the text to pretrain on and the text to rehearse on.

    Attributes:
      most: of the users; None for all.
      goal: most devices in a round.
      rehearsed: None for what of the public text is no manual, which then is not pretrained on.
    """

    users: str
    locale: str
    most: int | None
    goal: int
    public: str
    rehearsed: str | None


POPULATIONS = {
    "chat": Population("en-US_chitchat", "en-US", None, 150, "en-US_public", "en-US_blogs_web"),
    "blogs of 80": Population("en_blogs", "en-US", 80, 12, "en-US_public", "en-US_blogs_web"),
    "blogs of 300": Population("en_blogs", "en-US", 300, 40, "en-US_public", "en-US_blogs_web"),
    "blogs of 3,000": Population("en_blogs", "en-US", 3000, 200, "en-US_public", "en-US_blogs_web"),
    "learners of Spanish": Population("es-US_cowsl2h", "es-US", None, 150, "es-ES_public", None),
}


def main() -> None:
    """Rehearse, train, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=POPULATIONS)
    parser.add_argument("--work", type=Path, help="private: goes on from here; default: a temporary folder")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = chosen.work or Path(folder)
        for name in POPULATIONS:
            if chosen.only in (None, name):
                for line in measured(name, chosen.folder, work):
                    print(line, flush=True)


def measured(name: str, folder: Path, work: Path) -> Iterator[str]:
    """The verdict of one population, and the truth."""
    began, population = time.process_time(), POPULATIONS[name]
    start, rehearsed = started(population, folder, work / population.public)
    private = work / name.replace(" ", "-").replace(",", "")
    path = folder / "users" / f"{population.users}.parquet"
    store = device_store(path, population.locale, private, SEED, population.most, WORDS_A_DEVICE)
    number = len(store.devices("train"))

    def tell(line: str) -> None:
        print(f"{name}, {time.process_time() - began:.0f} s: {line}", file=sys.stderr, flush=True)

    documents = len(rehearsed)
    held = int(documents * HELD_OUT_DOCUMENTS)
    sizes = "heavy-tailed", LIMITS.median_words, SEED, WORDS_A_DEVICE
    people, users = (
        pseudo_users(rehearsed.select(np.arange(first, last)), count, *sizes)
        for first, last, count in ((0, held, documents), (held, documents, max(number, SMALL.pseudo_users)))
    )
    rehearsal = setting(start.model, users.select(np.arange(min(len(users), number))), people)
    small = replace(rehearsal, users=users.select(np.arange(min(len(users), SMALL.pseudo_users))))
    shown = private / "shown"
    shown.mkdir(exist_ok=True)
    best = rehearse(small, shown, private / "trials", tell)
    asked = Asked(6.0, 0.3, ROUNDS, population.goal, number, number, RHO)
    stage = trade_setting(start, judged_by_one(rehearsal), first_people(people, HELD_OUT_WORDS), asked, LIMITS)
    verdict = trade.rehearse(stage, best, private / "trained", tell)
    tell(verdict.sentence)
    tried = list(dict.fromkeys(tried_of(outcome) for outcome in verdict.outcomes))
    # Mixed with the start, counts alone come out as two outcomes, as they did when they were rehearsed.
    truth = setting(start.model, store.encode(start.vocabulary, "train"), store.encode(start.vocabulary, "test"))
    real = trade_setting(start, judged_by_one(truth), first_people(truth.held_out, HELD_OUT_WORDS), asked, LIMITS)
    gained = trade.gains(real, tried, private / "real", tell)
    yield from table(name, number, verdict, gained.start, gained.outcomes)
    headroom = f"{best.start_accuracy:.4f} to {best.noiseless_accuracy:.4f}"
    yield f"\nWithout noise {len(small.users)} pseudo-users took known words from {headroom}."
    yield f"\n{time.process_time() - began:.0f} s of CPU.\n"


def table(
    name: str, number: int, verdict: Verdict, recall_at_start: float, outcomes: tuple[Outcome, ...]
) -> Iterator[str]:
    """Rehearsed and real gains, side by side."""
    yield f"## {name}\n\n{number:,} devices to train on, {verdict.pseudo_users:,} pseudo-users. Said before a spend:"
    yield f"**{verdict.answer}**: {verdict.sentence}\n"
    yield f"Top-1 recall of the start: {100 * verdict.start:.2f}% rehearsed, {100 * recall_at_start:.2f}% real.\n"
    yield "| split | ships | rounds x devices | noise-to-signal | rehearsed gain | pays | real gain | paid |"
    yield "|---|---|---|---|---|---|---|---|"
    really = replace(verdict, outcomes=outcomes)
    for planned, true in zip(verdict.outcomes, outcomes, strict=True):
        shape = f"{planned.rounds} x {planned.report_goal}" if planned.rounds else ""
        pays, paid = ("yes" if judge.pays(row) else "no" for judge, row in ((verdict, planned), (really, true)))
        cells = planned.label, planned.ships, shape, f"{planned.noise_to_signal:.3g}", _gain(planned), pays
        yield f"| {' | '.join((*cells, _gain(true), paid))} |"


def started(population: Population, folder: Path, work: Path) -> tuple[PublicStart, TokenStream]:
    """The vocabulary and the model of a public text, and the text to rehearse on."""
    public = public_texts(folder / "public" / f"{population.public}.parquet", SEED)
    if population.rehearsed is None:
        texts = [text for text, manual in public if manual], [text for text, manual in public if not manual]
    else:
        rehearsed = public_texts(folder / "public" / f"{population.rehearsed}.parquet", SEED)
        texts = [text for text, _ in public], [text for text, _ in rehearsed]
    first, second = (
        public_words(work / kind, part, population.locale, most)
        for kind, part, most in zip(
            ("public", "rehearsed"), texts, (MOST_PUBLIC_WORDS, MOST_REHEARSED_WORDS), strict=True
        )
    )
    vocabulary = from_counts(first.word_counts(), VOCABULARY)
    stream, model = first.encode(vocabulary), build_model(MODEL, len(vocabulary), SEED)
    start_from_frequencies(model, stream.tokens_N)
    pretrain(PRETRAIN, model, stream, stream.select(np.arange(20)), work / "pretrain", SEED)
    return PublicStart(vocabulary, stream, model, first.num_words), second.encode(vocabulary)


def setting(model: KeyboardLM, users: TokenStream, held_out: TokenStream) -> Setting:
    """How all runs train."""
    server, runtime = ServerConfig(learning_rate=1.0), RuntimeConfig(chunk_devices=16, checkpoint_every_rounds=100)
    return Setting(model, users, held_out, SMALL, LOCAL, server, runtime, SEED)


def judged_by_one(how: Setting) -> Setting:
    """The same with a curve of one device, which nobody looks at."""
    return replace(how, held_out=how.held_out.select(np.arange(1)))


def _gain(outcome: Outcome) -> str:
    return f"{100 * outcome.gain:+.2f} ± {200 * outcome.error:.2f}"


if __name__ == "__main__":
    main()
