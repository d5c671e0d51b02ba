"""Arms that a launch may ship, at one rho, on real users: start, n-grams, training, counts, both mixed.

OMP_NUM_THREADS=1 python -m benchmarks.utility.what_ships FOLDER [--only NAME] [--work FOLDER]

FOLDER holds ``users/*.parquet`` (``client_id, text, locale, ts``) and ``public/*.parquet`` (``text, source``) under the
names of ``POPULATIONS``; a population whose file is not there is left out. A language's start is what the demo's launch
file makes of packaged text. The planner rehearses each population on other public text, as ``tacit rehearse`` does it;
then what it rehearsed is done on the real training devices with all of rho: training alone, counts alone, and the split
that it found best, mixed. Noise is seeded, so nobody is protected: a measurement, not a launch. New words are not
discovered. Prints Markdown; about twelve CPU minutes a population, and whoever kills it goes on where it was.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from benchmarks.utility.populations import LAUNCH, PublicStart, public_start
from evaluation.arms.arm import Mixture, NextWord, PublicNGram, neural
from evaluation.arms.held_out import HeldOut, held_out
from evaluation.arms.history import WithHistory
from evaluation.comparison.scoring import score
from evaluation.config import HISTORY_WEIGHT
from evaluation.keyboard import script, sessions, typist
from federated.accounting.gaussian import epsilon_of_rho
from federated.config.counts import CountsConfig
from federated.config.mechanism import MechanismConfig, TreeMechanism
from federated.config.planning import PlanningConfig, SmallLaunch, SmallTrade
from federated.config.population import EVERYBODY_TRAINS, FilePopulation
from federated.config.training import RuntimeConfig
from federated.counts.cells import choose
from federated.devices import store as devices
from federated.devices.store import DeviceStore
from federated.planning import trade
from federated.planning.rehearsal import Setting, pseudo_users, rehearse
from federated.planning.search import terms_of
from federated.planning.trade import TradeSetting, Training, Tried
from federated.planning.verdict import SHIPS_BOTH, SHIPS_COUNTS, Outcome, Verdict, as_json, from_json
from pipeline.launch.config import LaunchConfig, load_launch
from pretrain.files import write_text
from pretrain.ngrams import counted
from pretrain.ngrams.ngram import NGram
from pretrain.text import sentences
from pretrain.vocabulary import TokenStream
from pretrain.words import WordStore, open_words, write_words

RHO, SEED, DELTA = 0.5, 1, 1e-6
HELD_OUT_WORDS, SESSION_WORDS, REHEARSED_WORDS = 30_000, 6_000, 800_000
SMALL = SmallLaunch(report_goal=50, rounds=8, server_learning_rates=(1.0,), noise_to_signal=(0.01,))
LIMITS = SmallTrade(shares=(0.1, 0.9, 1.0), goals=(1.0,), held_out_words=12_000)
HELD_OUT_DOCUMENTS = 0.1


@dataclass(frozen=True)
class Population:
    """Users, the rounds that they can carry, and public text to rehearse on; the start has not read it."""

    about: str
    users: str
    locale: str
    rounds: int
    goal: int
    rehearsed: str


@dataclass(frozen=True)
class Request:
    """Settings of a launch file for a measured population.

    Attributes:
      devices: to train on. available: of them, how many the timer may count on.
      goal: devices in a round, and the most that the planner may choose.
    """

    noise_multiplier: float
    clip_norm: float
    rounds: int
    goal: int
    devices: int
    available: int
    rho: float


POPULATIONS = {
    "chat": Population("typed chat", "en-US_chitchat", "en-US", 16, 200, "en-US_blogs_web"),
    "blogs": Population("bloggers", "en_blogs", "en-US", 8, 400, "en-US_blogs_web"),
    "French SMS": Population("text messages", "fr-FR_88milsms", "fr-FR", 8, 100, "fr-FR_public"),
    "learners of Spanish": Population("essays of learners", "es-US_cowsl2h", "es-US", 8, 60, "es-ES_public"),
    "English SMS": Population("text messages", "en_nus_sms", "en-US", 8, 80, "en-US_blogs_web"),
    "chat rooms": Population("questions about programming", "en_gitter_fcc", "en", 8, 400, "en-US_blogs_web"),
}


@dataclass(frozen=True)
class Row:
    """One arm on held-out devices: shares of all words typed, and the words that it has first, by device."""

    top1: float
    top3: float
    first_word: float
    other_words: float
    distinct: int
    saved: float
    hits: list[int]


def main() -> None:
    """Rehearse, train, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=POPULATIONS)
    parser.add_argument("--work", type=Path, default=Path("build/what-ships"), help="private: goes on from here")
    chosen = parser.parse_args()
    for name, population in POPULATIONS.items():
        there = (chosen.folder / "users" / f"{population.users}.parquet").exists()
        if chosen.only in (None, name) and there:
            for line in measured(name, chosen.folder, chosen.work):
                print(line, flush=True)


def measured(name: str, folder: Path, work: Path) -> Iterator[str]:
    """One population in Markdown."""
    population, config = POPULATIONS[name], load_launch(LAUNCH)
    private = work / name.replace(" ", "-")
    start = public_start(population.locale, work)
    store = device_store(folder / "users" / f"{population.users}.parquet", population.locale, private, SEED)
    train = store.encode(start.vocabulary, "train")

    def tell(line: str) -> None:
        print(f"{name}: {line}", file=sys.stderr, flush=True)

    def staged(users: TokenStream, people: TokenStream) -> TradeSetting:
        return staged_launch(population, config, start, (users, people), len(train))

    verdict = rehearsed(population, staged, start, folder, private, tell)
    tell(verdict.sentence)
    real = staged(train, store.encode(start.vocabulary, "validation"))
    text = whole_devices(store, HELD_OUT_WORDS)
    arms = entrants(real, start, verdict, private, tell)
    rows: dict[str, Row] = {}
    for arm, made in arms.items():
        for label in (arm, f"{arm}, history"):
            path = private / "rows" / f"{label.replace(', ', '-').replace(' ', '-')}.json"
            if not path.exists():
                model = made() if label == arm else WithHistory(made(), HISTORY_WEIGHT)
                write_text(path, json.dumps(asdict(judged(model, text, start, population.locale))))
                tell(label)
            rows[label] = Row(**json.loads(path.read_text(encoding="utf-8")))
    yield from table(name, len(train), start, verdict, text, rows)


def rehearsed(
    population: Population,
    staged: Callable[[TokenStream, TokenStream], TradeSetting],
    start: PublicStart,
    folder: Path,
    private: Path,
    tell: Callable[[str], None],
) -> Verdict:
    """The planner's verdict before a spend, on as many pseudo-users of public text as there are devices."""
    path = private / "verdict.json"
    if path.exists():
        return from_json(json.loads(path.read_text(encoding="utf-8")))
    texts = public_texts(folder / "public" / f"{population.rehearsed}.parquet", SEED)
    words = public_words(private.parent / population.rehearsed, texts, population.locale, REHEARSED_WORDS)
    stream = words.encode(start.vocabulary)
    held = int(len(stream) * HELD_OUT_DOCUMENTS)
    number = staged(stream, stream).terms.training_devices
    people, users = (
        pseudo_users(stream.select(np.arange(first, last)), count, "heavy-tailed", LIMITS.median_words, SEED, 400)
        for first, last, count in (
            (0, held, len(stream)),
            (held, len(stream), max(min(number, LIMITS.most_users), SMALL.pseudo_users)),
        )
    )
    stage = staged(users.select(np.arange(min(len(users), number))), first_people(people, LIMITS.held_out_words))
    small = replace(stage.setting, users=users.select(np.arange(min(len(users), SMALL.pseudo_users))), held_out=people)
    best = rehearse(small, private, private / "trials", tell)
    # What the launch file would ask for is what the planner would choose for all of rho: one training less.
    fixed = stage.mechanism.model_copy(update={"clip_norm": best.clip_norm})
    whole = trade.largest_shapes(fixed, stage.terms, RHO, LIMITS, best.server_learning_rate)[0]
    verdict = trade.rehearse(replace(stage, mechanism=whole.mechanism), best, private / "rehearsed", tell)
    write_text(path, json.dumps(as_json(verdict)))
    return verdict


def staged_launch(
    population: Population,
    config: LaunchConfig,
    start: PublicStart,
    text: tuple[TokenStream, TokenStream],
    number: int,
) -> TradeSetting:
    """A launch in the demo's manner, on these users and judged on these people."""
    users, people = text
    curve = people.select(np.arange(min(len(people), 20)))
    runtime = RuntimeConfig(chunk_devices=16, checkpoint_every_rounds=4)
    how = Setting(start.model(), users, curve, SMALL, config.local_training, config.server, runtime, config.seed)
    noise, clip = config.mechanism.noise_multiplier, config.mechanism.clip_norm
    request = Request(noise, clip, population.rounds, population.goal, number, int(0.9 * number), RHO)
    return trade_setting(start, how, people, request, LIMITS)


def entrants(
    real: TradeSetting, start: PublicStart, verdict: Verdict, work: Path, tell: Callable[[str], None]
) -> dict[str, Callable[[], NextWord]]:
    """Arms by name, each made when it is asked for."""

    @cache
    def network(*, mixed: bool) -> NextWord:
        training, _ = run_of(whole_rho(verdict, mixed=mixed))
        assert training is not None
        return neural(trade.trained(real, [training], work / "trained", tell)[training])

    @cache
    def counts(rho: float) -> NextWord:
        path = work / f"counts-{rho:.4g}.npz"
        if not path.exists():
            config = trade.counts_at(rho)
            cells = choose(real.public, real.vocabulary)
            counted.save(trade.counted(real, cells, [config], tell)[config], path)
        return PublicNGram(counted.load(path))

    start_network = cache(lambda: neural(start.model()))
    return {
        "start": start_network,
        "private": lambda: network(mixed=False),
        "counts": lambda: counts(RHO),
        "start and counts": lambda: Mixture(start_network(), counts(RHO)),
        "mixture": lambda: Mixture(network(mixed=True), counts(whole_rho(verdict, mixed=True).counts_rho)),
        "kenlm 3": cache(lambda: PublicNGram(real.ngram)),
        "kenlm 5": cache(lambda: PublicNGram(NGram.fit(start.public, start.vocabulary, 5))),
    }


def whole_rho(verdict: Verdict, *, mixed: bool) -> Outcome:
    """Of the outcomes that train and spend all of rho, the one that was rehearsed to gain most."""
    spent = [
        outcome
        for outcome in verdict.outcomes
        if outcome.gradient_rho and outcome.rho > 0.99 * RHO and (outcome.counts_rho > 0) == mixed
    ]
    return max(spent, key=lambda outcome: outcome.gain)


def whole_devices(store: DeviceStore, words: int) -> HeldOut:
    """All text of the first test devices, up to the device that completes ``words``: history needs whole devices."""
    test = store.devices("test")
    ends = np.cumsum([np.count_nonzero(store.words.owner(int(device))) for device in test])
    return held_out(store.words, test[: 1 + int(np.searchsorted(ends, words))])


def judged(arm: NextWord, text: HeldOut, start: PublicStart, locale: str) -> Row:
    """One row."""
    scored = score(arm, text, text.ids(start.vocabulary), workers=1)
    first_P, hit_P = text.place_P == 0, scored.rank_P < 1
    some = some_devices(text, SESSION_WORDS)
    typed = script.prepare(some, start.vocabulary, locale, typist.MEDIAN, SEED)
    saved, keystrokes = (each.sum() for each in sessions.simulate(typed, some, arm).ratios()["keystroke_savings"])
    return Row(
        top1=float(np.mean(hit_P)),
        top3=float(np.mean(scored.rank_P < 3)),
        first_word=float(np.mean(hit_P[first_P])),
        other_words=float(np.mean(hit_P[~first_P])),
        distinct=len(set(scored.first_P.tolist())),
        saved=float(saved / keystrokes),
        hits=np.bincount(text.device_P[hit_P], minlength=text.devices).tolist(),
    )


def some_devices(text: HeldOut, words: int) -> HeldOut:
    """The first devices, up to the one that completes ``words``."""
    ends_D = np.cumsum(np.bincount(text.device_P, minlength=text.devices))
    devices = min(text.devices, 1 + int(np.searchsorted(ends_D, words)))
    sentences, total = int(np.searchsorted(text.device_S, devices)), int(ends_D[devices - 1])
    starts_S, lengths_S = text.starts_S[:sentences], text.lengths_S[:sentences]
    return HeldOut(text.spellings, text.word_P[:total], starts_S, lengths_S, text.device_S[:sentences], devices)


def table(
    name: str, number: int, start: PublicStart, verdict: Verdict, text: HeldOut, rows: dict[str, Row]
) -> Iterator[str]:
    """All arms of one population, and whether the planner was right."""
    alone, mixture = whole_rho(verdict, mixed=False), whole_rho(verdict, mixed=True)
    words_D = np.bincount(text.device_P, minlength=text.devices)
    session_words = len(some_devices(text, SESSION_WORDS).word_P)
    unknown = 100 * float(np.mean(text.ids(start.vocabulary) == 3))
    yield f"## {name}: {POPULATIONS[name].about}\n"
    yield (
        f"{number:,} devices to train on; {text.devices:,} held-out ones typed {len(text.word_P):,} words, of which "
        f"{unknown:.1f}% are outside the vocabulary and misses; {session_words:,} of them typed again. Start: "
        f"{start.words:,} words of packaged text.\n"
    )
    yield f"The planner before any spend, on {verdict.pseudo_users:,} pseudo-users: **{verdict.answer}**."
    yield f"{verdict.sentence}\n"
    yield (
        f"Private: {alone.run['mechanism']['kind']}, {alone.rounds} rounds of {alone.report_goal} devices, rho "
        f"{alone.rho:.3g}. Counts: rho {RHO:g}. Mixture: {mixture.label}.\n"
    )
    yield "| arm | top-1 | top-3 | first word | other words | different first suggestions | saved | top-1 over start |"
    yield "|---|---|---|---|---|---|---|---|"
    for label, row in rows.items():
        shares = row.top1, row.top3, row.first_word, row.other_words
        cells = [label, *(f"{100 * share:.2f}" for share in shares), f"{row.distinct:,}", f"{100 * row.saved:.1f}"]
        base = rows["start, history" if "history" in label else "start"]
        gain, error = trade.gain(np.array(row.hits), np.array(base.hits), words_D)
        yield f"| {' | '.join(cells)} | {'' if row is base else f'{100 * gain:+.2f} ± {200 * error:.2f}'} |"
    yield "\n| rehearsed run that spends all of rho | planner's gain | pays | real gain |\n|---|---|---|---|"
    untrained = {SHIPS_COUNTS: "counts", SHIPS_BOTH: "start and counts"}
    counts = [
        (untrained[outcome.ships], outcome)
        for outcome in verdict.outcomes
        if not outcome.gradient_rho and outcome.rho > 0.99 * RHO
    ]
    for label, outcome in (("private", alone), ("mixture", mixture), *counts):
        gain, error = trade.gain(np.array(rows[label].hits), np.array(rows["start"].hits), words_D)
        said = f"{100 * outcome.gain:+.2f} ± {200 * outcome.error:.2f}"
        pays = "yes" if verdict.pays(outcome) else "no"
        yield f"| {label}: {outcome.label} | {said} | {pays} | {100 * gain:+.2f} ± {200 * error:.2f} |"
    yield f"\nrho {RHO:g} is epsilon {epsilon_of_rho(RHO, DELTA):.2f} at delta {DELTA:g}.\n"


# Device stores, and runs as they were rehearsed.


def device_store(
    path: Path, locale: str, work: Path, seed: int, most: int | None = None, words_a_device: int = 400
) -> DeviceStore:
    """The store of a Parquet file of users, a fifth of them held out, cut to ``most`` users; made once in ``work``."""
    if not (work / "store" / "store.json").exists():
        users = pq.read_table(path)
        if most is not None:
            clients = sorted(set(users["client_id"].to_pylist()))
            some = np.random.default_rng(0).permutation(clients)[:most].tolist()
            users = users.filter(pc.is_in(users["client_id"], pa.array(some)))
        work.mkdir(parents=True, exist_ok=True)
        pq.write_table(users, work / "users.parquet")
        config = FilePopulation(
            source="files",
            paths=(str(work / "users.parquet"),),
            name="users",
            max_words_per_device=words_a_device,
            test_fraction=0.2,
        )
        devices.build_store(config, locale, seed, work / "store")
    return devices.open_store(work / "store")


def public_texts(path: Path, seed: int) -> list[str]:
    """Documents of a Parquet file in a drawn order."""
    texts = pq.read_table(path, columns=["text"])["text"].to_pylist()
    return [texts[place] for place in np.random.default_rng(seed).permutation(len(texts))]


def public_words(path: Path, texts: list[str], locale: str, most: int) -> WordStore:
    """Documents up to ``most`` words as a store, made once in ``path``."""

    def documents() -> Iterator[list[list[str]]]:
        total = 0
        for text in texts:
            cut = sentences(text, locale)
            total += sum(map(len, cut))
            yield cut
            if total > most:
                return

    return open_words(path) if (path / "meta.json").exists() else write_words(path, documents())


def first_people(people: TokenStream, words: int) -> TokenStream:
    """The first people, up to the one who completes ``words``."""
    ends = np.cumsum(trade.words_typed(people))
    return people.select(np.arange(min(len(people), 1 + int(np.searchsorted(ends, words)))))


def trade_setting(
    start: PublicStart, how: Setting, people: TokenStream, request: Request, limits: SmallTrade
) -> TradeSetting:
    """The rehearsal's setting: a tree with the longest rest that the devices allow, judged on these people."""
    rest = min(max(1, request.available // request.goal), request.rounds)
    mechanism = TreeMechanism(
        kind="tree",
        noise_multiplier=request.noise_multiplier,
        clip_norm=request.clip_norm,
        rounds=request.rounds,
        report_goal=request.goal,
        min_sep=rest,
        max_participations=-(-request.rounds // rest),
        delta=DELTA,
        randomness="seeded",
    )
    planning = {"population_estimate": request.devices, "max_report_goal": request.goal, "round_minutes": 10.0}
    return TradeSetting(
        setting=how,
        mechanism=mechanism,
        counts=None,
        terms=terms_of(
            mechanism, PlanningConfig.model_validate({**planning, "target_rho": request.rho}), EVERYBODY_TRAINS
        ),
        rho=request.rho,
        min_gain=0.0,
        vocabulary=start.vocabulary,
        public=start.public,
        ngram=NGram.fit(start.public, start.vocabulary, 3),
        people=people,
        limits=limits,
        inputs="",
    )


def run_of(outcome: Outcome) -> Tried:
    """The training and counts of a rehearsed outcome, to be run on real devices."""
    if not outcome.run:
        return None, trade.counts_at(outcome.counts_rho)
    shared = {"delta": DELTA, "randomness": "seeded"}
    mechanism = TypeAdapter(MechanismConfig).validate_python({**outcome.run["mechanism"], **shared})
    counts = None if outcome.run["counts"] is None else CountsConfig.model_validate(outcome.run["counts"])
    return Training(mechanism, outcome.run["server_learning_rate"], outcome.gradient_rho), counts


if __name__ == "__main__":
    began = time.process_time()
    main()
    print(f"{time.process_time() - began:.0f} s of CPU", file=sys.stderr)
