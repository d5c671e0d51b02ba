"""Faults planted in whole tiny launches: how many launches of each are held or refused, and by what.

    OMP_NUM_THREADS=1 .venv/stages/bin/python -m benchmarks.privacy.planted_launches [--seeds 20] [--faults NAME ...]

Each launch has every kind of release under a budget, another seed, and one fault of ``tests/helpers/launches/planted``
in this project's own code. It is counted as held if a gate holds it, or a stage refuses to go on.
"""

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from pipeline.ground import settings
from pipeline.tracking import mlflow_tracker
from tests.helpers.launches.planted import FAULTS, Ending, launched
from tests.helpers.processes.forked import prepare


def endings(faults: Iterable[str], seeds: Iterable[int]) -> dict[str, list[Ending]]:
    """Endings of the launches of each fault, one for each seed."""
    prepare()
    seeds = list(seeds)
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / "empty"
        empty.mkdir()
        mlflow_tracker.connect(settings.load({"TACIT_HOME": str(empty)}))
        made: dict[str, list[Ending]] = {}
        for number, fault in enumerate(faults):
            made[fault] = [
                launched(Path(folder) / f"{number}-{seed}", fault, seed, empty / "runs" / "mlflow.db") for seed in seeds
            ]
    return made


def table(made: dict[str, list[Ending]]) -> str:
    """One row a fault: how many launches it was not launched in, and what held or refused most of them."""
    lines = ["| fault | held | by |", "|---|---|---|"]
    for fault, ends in made.items():
        held = sum(each.decision != "launch" for each in ends)
        by = Counter(_by(each) for each in ends if each.decision != "launch").most_common(2)
        lines.append(f"| {fault} | {held} of {len(ends)} | {'; '.join(f'{why} ({times})' for why, times in by)} |")
    return "\n".join(lines)


def _by(ending: Ending) -> str:
    """Return the gates that held a launch, or the stage that refused."""
    if ending.decision == "refused":
        return f"refused: {ending.why.removeprefix('error: ').partition(':')[0]}"
    return ending.why.partition(":")[0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--faults", nargs="*", default=list(FAULTS))
    asked, began = parser.parse_args(), time.process_time()
    found = endings(asked.faults, range(asked.seeds))
    print(table(found))
    print("\nThe first launch of each:\n")
    for name, ends in found.items():
        print(f"- {name}: {ends[0].decision}{': ' if ends[0].why else ''}{ends[0].why[:300]}")
    print(f"\n{time.process_time() - began + sum(os.times()[2:4]):.0f} s of CPU")
