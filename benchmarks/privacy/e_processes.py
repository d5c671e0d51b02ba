"""Audits that watch training: rounds until planted faults stop a run, and false stops of honest runs.

    OMP_NUM_THREADS=1 .venv/stages/bin/python -m benchmarks.privacy.e_processes [--runs 1000] [--planted 20]

Each run has 32 rounds of the project's own mechanisms, cohorts, grid and watch, on vectors of 2,000 numbers in place of
a model, and random sums in place of devices' updates. An e-value of an honest run reaches 1 / alpha with probability at
most alpha, at every alpha; the watch stops at 0.001, which its two e-processes share. A fault begins in round 9.
"""

import argparse
import statistics
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace

import numpy as np

from evaluation.audit import strategies
from evaluation.audit.directions import Directions
from evaluation.audit.watch import Limits, Stopped, Watch, WatchState
from evaluation.config import STOP_ALPHA
from federated.config.blt_presets import PRESETS
from federated.local_training.clipping import release
from federated.participation.cohorts import Cohorts
from federated.rounds.rule import RoundRule
from pipeline.releases import audit_trace
from pretrain.randomness.noise import FIXED_POINT
from tests.helpers.audits.mechanism_kinds import PARSER

ROUNDS, MIN_SEP, MOST, GOAL, DEVICES, PARAMETERS, CLIP = 32, 8, 4, 20, 400, 2000, 0.3
FAULTY_FROM = 8  # the ninth round
LEVELS = (0.2, 0.1, 0.05, 0.01)
SHAPE = {"clip_norm": CLIP, "rounds": ROUNDS, "report_goal": GOAL, "delta": 1e-6, "randomness": "seeded"}
TIMED = SHAPE | {"min_sep": MIN_SEP, "max_participations": MOST}
BLT = {"theta": PRESETS["min-sep-100"].theta, "omega": PRESETS["min-sep-100"].omega}
KINDS = {
    "tree, a restart": TIMED | {"kind": "tree", "noise_multiplier": 6.0, "restarts": [16]},
    "BLT": TIMED | {"kind": "blt", "noise_multiplier": 3.0} | BLT,
    "banded": TIMED | {"kind": "banded", "noise_multiplier": 2.0, "bands": MIN_SEP},
    "independent": SHAPE
    | {"kind": "independent", "noise_multiplier": 1.0, "sampling": "poisson", "population": DEVICES},
}


@dataclass(frozen=True)
class Fault:
    """A fault from ``FAULTY_FROM`` on.

    Attributes:
      share: of the noise.
      reuses: the noise of the round before is added again.
      key: the noise is drawn from a key of everybody's.
      separation: no timer holds a device back.
      canaries: they send nothing.
    """

    share: float = 1.0
    reuses: bool = False
    key: bool = False
    separation: bool = False
    canaries: bool = False


HONEST = Fault()
FAULTS = {
    "noise missing": Fault(share=0.0),
    "noise a tenth of its scale": Fault(share=0.1),
    "noise at 0.9 of its scale": Fault(share=0.9),
    "noise of the round before": Fault(reuses=True),
    "noise of a public key": Fault(key=True),
    "a device too soon": Fault(separation=True),
    "canaries send nothing": Fault(canaries=True),
}


@cache
def directions(count: int) -> Directions:
    """One set for all runs: what differs from run to run is the noise."""
    return Directions((PARAMETERS,), count, seed=1)


@cache
def claim(kind: str) -> tuple[RoundRule, np.ndarray, strategies.Strategy]:
    """Rule, whitener and strategy, made once."""
    rule = RoundRule(PARSER.validate_python(KINDS[kind]), seed=3)
    return rule, audit_trace.whitener(rule.mechanism, ROUNDS), audit_trace.strategy_of(rule, ROUNDS)


def run(kind: str, count: int, seed: int, fault: Fault) -> tuple[WatchState, int | None, list[int | None]]:
    """Run under the watch, which is told to go on after a stop.

    Returns:
      Last state; the round that stops the run, from 1; the rounds in which scale and reuse alone would.
    """
    rule, whitener_TT, strategy = claim(kind)
    mechanism, planted, rng = rule.mechanism, directions(count), np.random.default_rng(seed)
    key, multiplier = rng.bytes(32), rule.privatizer.noise_multiplier
    timed = rule.config.timed
    limits = Limits(*((MIN_SEP, MOST) if timed else (1, ROUNDS)), np.ones(DEVICES, dtype=bool))
    watch = Watch(planted, whitener_TT, strategy, multiplier, key, limits)
    cohorts = Cohorts(DEVICES, GOAL, MIN_SEP, MOST, seed)
    canary_rounds = cohorts.of_canaries(count)
    timer, canaries, state = cohorts.init(), canary_rounds.init(), mechanism.init(PARAMETERS)
    rows: dict[str, list[np.ndarray]] = {name: [] for name in ("sums", "released", "planted")}
    before_P, stopped, alone = np.zeros(PARAMETERS), None, [None, None]
    watched = watch.begin(_seen(rows, count), ())
    for number in range(ROUNDS):
        faulty = fault if number >= FAULTY_FROM else HONEST
        rule_now = replace(cohorts, min_sep=1) if faulty.separation else cohorts
        cohort, timer = rule_now.draw(timer, number)
        joined, canaries = canary_rounds.draw(canaries, number)
        joined_N = np.isin(np.arange(count), joined)
        noise_P, state = mechanism.noise(state, number, bytes(32) if faulty.key else key)
        added_P, before_P = (before_P if faulty.reuses else faulty.share * noise_P), noise_P
        sends_N = joined_N & planted.included_N & (not faulty.canaries)
        planted_P = np.rint(planted.combined(sends_N.astype(np.float64)) * FIXED_POINT).astype(np.int64)
        sum_P = rng.integers(-(2**40), 2**40, size=PARAMETERS) + planted_P
        released_P = release(sum_P, added_P, CLIP, multiplier)
        rows["sums"].append(planted.project(sum_P / FIXED_POINT))
        rows["released"].append(planted.project(released_P))
        rows["planted"].append(planted.project(planted_P / FIXED_POINT))
        try:
            watched = watch.after(watched, cohort, sum_P, released_P, joined_N, _seen(rows, count))
        except Stopped as found:
            watched, stopped = found.state, stopped or number + 1
        for place, process in enumerate((watched.scale, watched.reuse)):
            if alone[place] is None and process.refutes(STOP_ALPHA / 2):
                alone[place] = number + 1
    return watched, stopped, alone


def _seen(rows: dict[str, list[np.ndarray]], count: int) -> SimpleNamespace:
    done = len(rows["sums"])
    arrays = {f"{name}_TN": np.array(each).reshape(done, count) for name, each in rows.items()}
    return SimpleNamespace(**arrays, clips_T=np.full(done, CLIP), missing_T=np.zeros(done))


def delays(kind: str, count: int, fault: Fault, runs: int) -> list[str]:
    """Rounds from the fault's first to the stop: of the watch, then of each e-process alone; median, and the most."""
    found = [run(kind, count, seed, fault) for seed in range(runs)]
    columns = [[stop for _, stop, _ in found], *([alone[place] for *_, alone in found] for place in range(2))]
    return [_delay(column) for column in columns]


def _delay(stops: list[int | None]) -> str:
    late = [stop - FAULTY_FROM for stop in stops if stop is not None]
    if not late:
        return "no"
    missed = f", {len(stops) - len(late)} not" if len(late) < len(stops) else ""
    return f"{statistics.median(late):g} ({max(late)}{missed})"


def table(lines: list[list[str]]) -> None:
    """Print a table of Markdown, the first line its head."""
    for number, line in enumerate(lines):
        print("| " + " | ".join(line) + " |")
        if not number:
            print("|" + "---|" * len(line))


def main() -> None:
    """Print both tables, and what the watch costs a round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000, help="honest runs of each mechanism")
    parser.add_argument("--planted", type=int, default=20, help="runs of each fault")
    options = parser.parse_args()
    print(f"Honest runs, {options.runs} of each mechanism, 64 directions: share that was stopped, and whose e-value of")
    print("scale or of reuse ever reached 1 / alpha.\n")
    lines = [["mechanism", "stopped at 0.001", *(f"alpha {level:g}: scale, reuse" for level in LEVELS)]]
    for kind in KINDS:
        found = [run(kind, 64, seed, HONEST) for seed in range(options.runs)]
        most_R2 = np.array([state.log_values_T2.max(axis=0) for state, *_ in found])
        shares = [np.mean(most_R2 >= -np.log(level), axis=0) for level in LEVELS]
        stopped = np.mean([stop is not None for _, stop, _ in found])
        lines.append([kind, f"{stopped:.2%}", *(f"{scale:.1%}, {reuse:.1%}" for scale, reuse in shares)])
    table(lines)
    for count in (64, 500):
        print(
            f"\nPlanted faults, {options.planted} runs each, {count} directions: rounds until the stop, from 1 for the"
        )
        print("round in which the fault begins: median (most). Watch; then its e-processes of scale, of reuse alone.\n")
        lines = [["fault", *KINDS]]
        for name, fault in FAULTS.items():
            kinds = [kind for kind in KINDS if not (fault.separation and kind == "independent")]
            cells = {kind: "; ".join(delays(kind, count, fault, options.planted)) for kind in kinds}
            lines.append([name, *(cells.get(kind, "no limits") for kind in KINDS)])
        table(lines)


if __name__ == "__main__":
    main()
