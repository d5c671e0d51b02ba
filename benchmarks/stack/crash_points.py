"""Table of crash points: a tiny launch killed, or its disk full, at system calls that reach the disk, then run again.

    .venv/stages/bin/python -m benchmarks.stack.crash_points [LAUNCH] [--every] [--drawn N] [--seed N]

One run for each point and fault, by strace (of Debian). After it the same command must give the same model, releases
and ledger, bit by bit, spend once, leave no file behind, and have written no client's id outside ``private/``. By
default one point of each kind (a call on a file) is tried; ``--every`` tries all of them, which takes days of a core.
Prints Markdown; exit code 1 if anything is wrong.
"""

import argparse
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.golden.seeded_launch import LAUNCHES
from tests.helpers.launches.crashes import disturbed, undisturbed
from tests.helpers.processes.crash_points import CrashPoint
from tests.helpers.processes.forked import begun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("launch", nargs="?", choices=sorted(LAUNCHES), default="central")
    parser.add_argument("--every", action="store_true", help="every point, not one of each kind")
    parser.add_argument("--drawn", type=int, help="only so many of them")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        whole = undisturbed(asked.launch, Path(folder), begun(Path(folder), os.getpid()).tacit)
        chosen = list(whole.points) if asked.every else one_of_each_kind(whole.points)
        if asked.drawn:
            chosen = random.Random(asked.seed).sample(chosen, min(asked.drawn, len(chosen)))
        kinds = len({point.kind for point in whole.points})
        print(f"{len(whole.points)} crash points of {kinds} kinds; tried: {len(chosen)}\n")
        print("| call | file | fault | afterwards |\n|---|---|---|---|", flush=True)
        bad: Counter[str] = Counter()
        for point in chosen:
            for fault in point.faults:
                wrong = list(disturbed(whole, point, fault))
                bad[fault] += bool(wrong)
                said = "; ".join(wrong).replace("\n", " ").replace("|", "/")[:300] or "the same, one spend"
                print(f"| {point.call} {point.number} | {point.file} | {fault} | {said} |", flush=True)
    print(f"\nwrong: {dict(bad)}")
    return int(any(bad.values()))


def one_of_each_kind(points: Iterable[CrashPoint]) -> list[CrashPoint]:
    """The first point of each kind, in order."""
    first: dict[str, CrashPoint] = {}
    for point in points:
        first.setdefault(point.kind, point)
    return list(first.values())


if __name__ == "__main__":
    sys.exit(main())
