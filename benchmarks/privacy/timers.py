"""What a wrong guess of the min separation costs where devices rest by the clock: tree, BLT and banded noise.

    .venv/stages/bin/python -m benchmarks.privacy.timers    a minute of CPU

A device rests for whole days; rounds last as long as they take to fill; so how many rounds lie between two
participations (MinS + 1) is known only after the run. Planned is what a count of devices allows, `population / report
goal`, with a population that was estimated right, twice as large or half as large as it is. Mechanisms are made for
what was planned and meet what came out. rho is that of equal noise in the model (root mean square over rounds), as a
multiple of the best of all made for what came out. A tree has nothing to guess. Simulation and accounting; no training.

A launch by the clock enforces the separation that it reserved beside the hours. What that costs in days is shown for
the shipped files that plan.
"""

import argparse
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from benchmarks.papers.blt import strategies
from benchmarks.papers.blt.strategies import Run
from federated.participation import clock
from federated.participation.availability import Availability
from federated.planning import timer
from pipeline.config import load_launch

RESULTS = Path(__file__).parents[1] / "results"
LAUNCHES = Path(__file__).parents[2] / "dags" / "launches"
ROUNDS, GOAL, BUFFERS = 600, 100, 3
CYCLES, TIMERS, ESTIMATES = (40, 100, 250), (1, 2), (0.5, 1.0, 2.0)


@dataclass(frozen=True)
class Row:
    """One run by the clock, and rho of mechanisms made for another."""

    cycle: int
    timer_days: int
    planned: int
    came_out: int
    days: float
    rho: dict[str, float]


def losses(planned: int, came_out: int) -> dict[str, float]:
    """RmsLoss of each kind, made for one separation, at another."""
    plan, run = Run(ROUNDS, planned), Run(ROUNDS, came_out)
    return {
        "tree": strategies.tree_losses(run).rms_loss,
        "BLT": strategies.blt_losses(strategies.blt(plan, BUFFERS), run).rms_loss,
        "banded": strategies.banded_losses(strategies.bands(plan, planned), run).rms_loss,
    }


def rows(seed: int) -> list[Row]:
    """All runs, each with all estimates."""
    made = []
    for cycle in CYCLES:
        for days in TIMERS:
            campaign = clock.run(ROUNDS, cycle * GOAL, GOAL, days, Availability(seed=seed))
            best = min(losses(campaign.min_sep, campaign.min_sep).values())
            for estimate in ESTIMATES:
                planned = min(ROUNDS, round(cycle * estimate))
                rho = {kind: (loss / best) ** 2 for kind, loss in losses(planned, campaign.min_sep).items()}
                made.append(Row(cycle, days, planned, campaign.min_sep, campaign.days, rho))
    return made


def floors() -> list[str]:
    """A line of Markdown for each shipped file that plans: hours alone, and the reserved floor beside them."""
    lines = []
    for path in sorted(LAUNCHES.glob("*.yaml")):
        config = load_launch(path)
        planning, mechanism = config.planning, config.mechanism
        trains = config.private_text.splits.training(planning.population_estimate) if planning else 0
        enforced = timer.of_launch(mechanism, trains) if planning else None
        if planning is None or enforced is None:
            continue
        free = timer.timer(trains, planning.round_minutes, mechanism.rounds, mechanism.report_goal, mechanism.min_sep)
        lines.append(
            f"| {path.stem} | {trains / mechanism.report_goal:.0f} | {enforced.days} | "
            f"{free.min_sep} | {free.run_days:.1f} | {enforced.min_sep} | {enforced.run_days:.1f} |"
        )
    return lines


def table(made: list[Row], seconds: float) -> str:
    """The result as Markdown."""
    worst = {kind: max(row.rho[kind] for row in made) for kind in made[0].rho}
    lines = [
        "# A wrong guess of the min separation, by the clock",
        "",
        f"`python -m benchmarks.privacy.timers`, {date.today()}, {seconds:.0f} s of CPU. {ROUNDS} rounds of {GOAL} "
        f"devices, by night and day; BLTs of {BUFFERS} buffers, banded Toeplitz noise of as many bands as planned. "
        "rho at equal noise in the model, as a multiple of the best made for what came out.",
        "",
        "| population / goal | timer, days | run, days | planned | came out | "
        + " | ".join(f"rho, {kind}" for kind in worst)
        + " |",
        "|---:|---:|---:|---:|---:|" + "---:|" * len(worst),
    ]
    for row in made:
        rho = " | ".join(f"{row.rho[kind]:.2f}" for kind in worst)
        lines.append(
            f"| {row.cycle} | {row.timer_days} | {row.days:.1f} | {row.planned} | {row.came_out} | {rho} |",
        )
    said = ", ".join(f"{kind} {value:.2f}" for kind, value in worst.items())
    kept = [row.came_out / row.cycle for row in made]
    lines += [
        "",
        f"At worst: {said}. What comes out is {min(kept):.2f} to {max(kept):.2f} of population / goal: some devices "
        "sleep through the first night, others check in as soon as they may.",
        "",
        "What the floor costs that a launch by the clock reserves and enforces beside the hours:",
        "",
        "| launch | population / goal | timer, days | MinS + 1, hours alone | days | MinS + 1, floor too | days |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *floors(),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Play, price, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of who is awake when")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the table")
    chosen = parser.parse_args()
    begun = time.process_time()
    made = rows(chosen.seed)
    text = table(made, time.process_time() - begun)
    (chosen.results / f"{date.today()}-timers.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
