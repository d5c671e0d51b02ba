"""What it costs to pick a round's devices, by size of the population, with and without availability.

CPU time of one thread, medians over a day of rounds once the timer binds, in turns; the ratio is to the
smallest population of the same cohort. Devices asked whether they are awake are counted in a second run.

    OMP_NUM_THREADS=1 python -m benchmarks.utility.planning
"""

import argparse
import statistics
import sys
import time
from dataclasses import dataclass

from federated.participation.availability import Availability
from federated.participation.cohorts import Cohorts

_CASES = ((500, 10), (6500, 100))
_POPULATIONS = {500: (10_000, 100_000, 1_000_000), 6500: (1_000_000, 3_000_000)}
_ROUNDS = 48


@dataclass(frozen=True)
class Cost:
    """Of one population and cohort: milliseconds a round, the worst of them, and devices asked."""

    median: float
    worst: float
    asked: float


class _Counting(Availability):
    """Counts the devices that are asked."""

    def awake(self, devices_S, round_number):
        _asked.append(len(devices_S))
        return super().awake(devices_S, round_number)


_asked: list[int] = []


def cost(devices: int, goal: int, min_sep: int, day: Availability | None) -> Cost:
    """A day of rounds after as many as the timer lasts."""
    cohorts = Cohorts(devices, goal, min_sep, 10_000, seed=1, availability=day)
    state, spent = cohorts.init(), []
    for number in range(min_sep + _ROUNDS):
        if number == min_sep:
            spent.clear()
            _asked.clear()
        began = time.thread_time()
        _, state = cohorts.draw(state, number)
        spent.append(1000 * (time.thread_time() - began))
    return Cost(statistics.median(spent), max(spent), sum(_asked) / _ROUNDS)


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    lines = [
        "| devices a round | min_sep | population | availability | ms a round | worst | ratio | asked a round |",
        "|---:|---:|---:|---|---:|---:|---:|---:|",
    ]
    for goal, min_sep in _CASES:
        first: dict[bool, float] = {}
        for devices in _POPULATIONS[goal]:
            for day in (None, Availability(seed=1)):
                found = cost(devices, goal, min_sep, day)
                asked = "-"
                if day is not None:
                    asked = f"{cost(devices, goal, min_sep, _Counting(seed=1)).asked:,.0f}"
                base = first.setdefault(day is None, found.median)
                lines.append(
                    f"| {goal:,} | {min_sep} | {devices:,} | {'day and night' if day else 'always'} | "
                    f"{found.median:.2f} | {found.worst:.1f} | {found.median / base:.1f} | {asked} |"
                )
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
