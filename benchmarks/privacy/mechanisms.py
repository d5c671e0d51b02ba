"""Losses of every mechanism on one run against the published ones, and searches against jax-privacy 2.0.0.

.venv/stages/bin/python -m benchmarks.privacy.mechanisms           about five minutes, most of them jax-privacy's
.venv/stages/bin/python -m benchmarks.privacy.mechanisms --alone   ours only: half a minute
.venv/stages/bin/python -m benchmarks.privacy.mechanisms --full    BandMF for 2,052 rounds too: a minute more

Loss is the error of prefix sums times the sensitivity, largest and root mean square over rounds.
Published: McMahan et al. 2024 (BLT), table 3. There MaxLoss comes first, whatever the heads say.
The first call makes an environment for jax-privacy in build/bench-jax-privacy.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

# Before numpy is imported, so that its thread pool sees one core.
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import numpy as np  # noqa: E402

from benchmarks.peers.environment import HERE, python_with  # noqa: E402
from federated.config.blt_presets import PRESETS  # noqa: E402
from federated.mechanisms.banded import Banded, from_coefficients, from_matrix  # noqa: E402
from federated.mechanisms.blt import Blt, errors, inverse_coefficients  # noqa: E402
from federated.mechanisms.optimise_banded import (  # noqa: E402
    Losses,
    fhu_coefficients,
    full_losses,
    optimise_banded,
)
from federated.mechanisms.optimise_blt import optimise_blt  # noqa: E402
from federated.mechanisms.sensitivity import toeplitz_sensitivity_squared, tree_matrix, tree_sensitivity_squared  # noqa: E402
from tests.helpers.audits.strategies import toeplitz_losses  # noqa: E402

RUN = (2052, 342, 6)  # rounds, min_sep, max_participations of table 3


@dataclass(frozen=True)
class Row:
    """One line: what to compute, what the paper printed for it, and the most that MaxLoss and CPU seconds may be."""

    name: str
    work: Callable[[], Losses]
    published: tuple[float, float] | None = None
    limits: tuple[float, float] | None = None


def blt(run: tuple[int, int, int], buffers: int, loss: str = "max") -> Losses:
    """A BLT optimised for the run."""
    found = optimise_blt(*run, num_buffers=buffers, loss=loss)
    return Losses(found.max_loss, found.rms_loss)


def losses_of(blt: Blt, run: tuple[int, int, int]) -> Losses:
    """Losses of a BLT that is there already."""
    largest, rms = errors(inverse_coefficients(blt, run[0]))
    sensitivity = blt.sensitivity_squared(*run) ** 0.5
    return Losses(largest * sensitivity, rms * sensitivity)


def one_participation(buffers: int) -> Losses:
    """A BLT optimised for single participation, used for six."""
    found = optimise_blt(RUN[0], RUN[1], 1, buffers, "max")
    return losses_of(Blt(1.0, found.theta, found.omega), RUN)


def square_root(bands: int) -> Losses:
    """The banded square root of the prefix sums (BandFHU)."""
    column = np.zeros(RUN[0])
    column[:bands] = fhu_coefficients(bands)
    return toeplitz_losses(column, toeplitz_sensitivity_squared(column, *RUN[1:]))


def rows(full: bool) -> list[Row]:
    """All lines in print order."""
    listed = [
        Row("TreeAgg-Full", lambda: full_losses(tree_matrix(RUN[0]), tree_sensitivity_squared(*RUN)), (14.98, 12.47)),
        Row("BandFHU, 342 bands", lambda: square_root(342)),
        Row("BLT for k=1, 2 buffers", lambda: one_participation(2), (11.80, 11.15)),
        Row("BLT for k=1, 5 buffers", lambda: one_participation(5), (11.40, 10.87)),
        Row("BLT, 2 buffers", lambda: blt(RUN, 2), (10.81, 9.34), (10.807, 5)),
        Row("BLT, 3 buffers", lambda: blt(RUN, 3), (10.79, 9.33), (10.752, 5)),
        Row("BLT, 4 buffers", lambda: blt(RUN, 4), None, (10.735, 5)),
        Row("BLT, 2 buffers, RmsLoss", lambda: blt(RUN, 2, "rms")),
        Row("BandToep, 342 bands", lambda: optimise_banded(*RUN, bands=342, kind="toeplitz").losses),
    ]
    if full:
        listed.append(Row("BandMF, 342 bands", lambda: optimise_banded(*RUN, bands=342).losses, (10.21, 8.60)))
    listed += [
        Row("20000/1000/20 BLT, 2 b.", lambda: blt((20_000, 1000, 20), 2), None, (30.42, 30)),
        Row("20000/1000/20 BLT, 4 b.", lambda: blt((20_000, 1000, 20), 4)),
        Row("500/100/5 BandMF, 100 bands", lambda: optimise_banded(500, 100, 5, 100).losses),
        Row("500/100/5 BLT, 4 buffers", lambda: blt((500, 100, 5), 4, "rms")),
    ]
    for name, made in PRESETS.items():
        run = (made.rounds, made.min_sep, made.max_participations)
        shipped = Blt(1.0, made.theta, made.omega)
        listed.append(Row(f"{name} as shipped", lambda shipped=shipped, run=run: losses_of(shipped, run)))
        listed.append(Row(f"{name} optimised", lambda run=run: blt(run, 4)))
    return listed


def print_losses(full: bool) -> None:
    """Every mechanism's losses; ArithmeticError when a line exceeds its limits, start-up included."""
    start_up = time.process_time()
    print(f"start-up and imports: {start_up:.1f} CPU s, part of every limit")
    print(f"{'mechanism':<30}{'MaxLoss':>9}{'RmsLoss':>9}{'published':>16}{'CPU s':>8}  limit")
    missed = []
    for row in rows(full):
        began = time.process_time()
        losses = row.work()
        spent = time.process_time() - began
        published = f"{row.published[0]:.2f} / {row.published[1]:.2f}" if row.published else ""
        limit = ""
        if row.limits:
            kept = losses.max_loss <= row.limits[0] and start_up + spent <= row.limits[1]
            limit = f"  {row.limits[0]} in {row.limits[1]} s: {'kept' if kept else 'MISSED'}"
            missed += [] if kept else [row.name]
        line = f"{row.name:<30}{losses.max_loss:>9.4f}{losses.rms_loss:>9.4f}{published:>16}{spent:>8.2f}{limit}"
        print(line, flush=True)
    if missed:
        raise ArithmeticError(f"limits missed: {', '.join(missed)}")


@dataclass(frozen=True)
class Case:
    """One search that both sides do; ``size`` is the number of buffers or bands."""

    kind: str
    rounds: int
    min_sep: int
    max_participations: int
    size: int

    @property
    def run(self) -> tuple[int, int, int]:
        """Rounds, min_sep, max_participations."""
        return self.rounds, self.min_sep, self.max_participations


CASES = (
    Case("blt", *RUN, 2),
    Case("blt", *RUN, 3),
    Case("blt", *RUN, 4),
    Case("blt", 20_000, 1000, 20, 2),
    Case("toeplitz", 2000, 400, 5, 400),
    Case("matrix", 500, 100, 5, 100),
)


def search(case: Case) -> dict[str, object]:
    """Ours, in a process of its own: the strategy and CPU seconds at two points."""
    imported = time.process_time()
    if case.kind == "blt":
        found = optimise_blt(*case.run, num_buffers=case.size, loss="max")
        strategy: dict[str, object] = {"theta": found.theta, "omega": found.omega}
    else:
        made = optimise_banded(*case.run, case.size, case.kind).strategy
        rows_are_equal = case.kind == "toeplitz"
        strategy = {"coefficients": made.lags_NL[-1].tolist()} if rows_are_equal else {"matrix": made.matrix().tolist()}
    return {"ended": time.process_time(), "first_step": imported, "near": time.process_time()} | strategy


def judged(case: Case, answer: dict[str, list]) -> float:
    """MaxLoss of a BLT, RmsLoss of a banded strategy: what was minimised, by our formulas for both sides."""
    if case.kind == "blt":
        return losses_of(Blt(1.0, tuple(answer["theta"]), tuple(answer["omega"])), case.run).max_loss
    if case.kind == "toeplitz":
        made: Banded = from_coefficients(1.0, np.array(answer["coefficients"]), case.rounds)
    else:
        made = from_matrix(1.0, np.array(answer["matrix"]), case.size)
    return full_losses(made.matrix(), made.sensitivity_squared(*case.run)).rms_loss


def timed(command: list[str], case: Case) -> tuple[dict[str, list], float]:
    """A child's answer, and all CPU seconds that it used."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*command, json.dumps(vars(case))], check=True, capture_output=True, text=True, timeout=1800)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return json.loads(done.stdout), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def print_side_by_side(repeats: int) -> None:
    """Losses and CPU seconds of both sides, one core each, one after the other."""
    try:
        peer = [str(python_with("jax-privacy.txt")), str(HERE / "run_jax_privacy.py")]
    except OSError as error:
        print(f"no environment for jax-privacy, ours alone: {error}")
        return
    ours = [sys.executable, "-m", "benchmarks.privacy.mechanisms", "--search"]
    print("CPU seconds of one core: 'all' with start-up and compilation, 'search' without them; '1e-6' is when the")
    print("peer, which never stops early, was within 1e-6 of its own end, start-up and compilation included.")
    print("Loss: MaxLoss of BLTs, RmsLoss of banded strategies, computed by one program for both sides.")
    heads = f"{'loss':>10}{'all':>8}{'search':>8}"
    print(f"{'':<34}{'ours':>18}{'':>16}{'jax-privacy 2.0.0':>18}{'':>8}{'peer / ours':>20}")
    print(f"{'search':<34}{heads}  |{heads}{'1e-6':>8}  |{'loss':>9}{'all':>7}{'search':>8}")
    for case in CASES:
        name = f"{case.kind} {'/'.join(map(str, case.run))} size {case.size}"
        sides = []
        for command in (ours, peer):
            runs = [timed(command, case) for _ in range(repeats)]
            answer = runs[0][0]
            whole = statistics.median(spent for _, spent in runs)
            begun = [run["first_step"] for run, _ in runs]
            apart = None if None in begun else statistics.median(run["ended"] - run["first_step"] for run, _ in runs)
            sides.append((judged(case, answer), whole, apart, answer["near"]))
        (loss, whole, apart, _), (their_loss, their_whole, their_apart, near) = sides
        print(
            f"{name:<34}{loss:>10.4f}{whole:>8.2f}{apart:>8.2f}  |{their_loss:>10.4f}{their_whole:>8.2f}"
            f"{shown(their_apart):>8}{shown(near):>8}  |{their_loss / loss:>9.5f}{their_whole / whole:>7.1f}"
            f"{shown(their_apart and their_apart / apart):>8}",
            flush=True,
        )


def shown(seconds: float | None) -> str:
    """Two digits, or nothing where there is no number."""
    return "" if seconds is None else f"{seconds:.2f}"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="BandMF for 2,052 rounds too")
    parser.add_argument("--alone", action="store_true", help="not beside jax-privacy")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each search, whose median is shown")
    parser.add_argument("--search", help="one of ours as JSON, for the comparison itself")
    arguments = parser.parse_args()
    if arguments.search:
        print(json.dumps(search(Case(**json.loads(arguments.search)))))
        return
    print_losses(arguments.full)
    if not arguments.alone:
        print_side_by_side(arguments.repeats)


if __name__ == "__main__":
    main()
