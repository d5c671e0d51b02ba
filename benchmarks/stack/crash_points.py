"""Table of crash points: a tiny launch killed, or its disk full, at system calls that reach the disk, then run again.

    .venv/stages/bin/python -m benchmarks.stack.crash_points [LAUNCH] [--kinds | --every] [--to-end] [--seed N]

A launch is one command for each stage, as in Airflow. One run for each point and fault, by strace (of Debian): from the
state before the stage, the command is stopped and run again. After it every file of the launch that two undisturbed
runs write alike must have the same digest, the others must be there, the values of results and the entries in the
ledger must be the same, with one spend, no file more, and no client's id outside ``private/``. By default
20 of these runs are drawn, in some ten minutes; ``--kinds`` tries one drawn point of each kind (a call in a folder)
with each fault, in an hour and a half, and ``--every`` all of them, in some ten hours of a core. ``--to-end`` runs the
whole launch again instead of the one stage. Prints Markdown, and each run on standard
error; exit code 1 if anything is wrong.
"""

import argparse
import os
import random
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path, PurePosixPath

from tests.golden.seeded_launch import LAUNCHES
from tests.helpers.launches.crashes import Step, Undisturbed, disturbed, undisturbed
from tests.helpers.processes.crash_points import CrashPoint, Fault
from tests.helpers.processes.forked import begun

DRAWN = 20
Trial = tuple[Step, CrashPoint, Fault]
# Kinds of files, by the beginning of their path below the home; of the launch's own files, below its folder.
_PLACES = {
    "runs/ledger": "ledger's database",
    "runs/..ledger": "ledger's last check",
    "runs/log": "transparency log",
    "runs/mlflow.db": "MLflow's database",
    "runs/mlflow-artifacts": "MLflow's files",
    "private": "private files of stages",
    "public/proof": "proof",
    "public/launch": "launch and its state",
    "public/publish": "published model",
    "public/report": "report",
    "public": "public files of stages",
}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("launch", nargs="?", choices=sorted(LAUNCHES), default="counts")
    many = parser.add_mutually_exclusive_group()
    many.add_argument("--kinds", action="store_true", help="one point of each kind, with each fault")
    many.add_argument("--every", action="store_true", help="every point, with each fault")
    parser.add_argument("--to-end", action="store_true", help="run the whole launch again, not the one stage")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    chance = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as folder:
        whole = undisturbed(asked.launch, Path(folder), begun(Path(folder), os.getpid()).tacit)
        trials = [(step, point, fault) for step, point in whole.points for fault in point.faults]
        if not asked.every:
            trials = one_of_each_kind(trials, chance)
        if not (asked.kinds or asked.every):
            trials = chance.sample(trials, DRAWN)
        wrong = {}
        for number, trial in enumerate(trials, start=1):
            step, point, fault = trial
            if found := list(disturbed(whole, step, point, fault, to_end=asked.to_end)):
                wrong[trial] = "; ".join(found).replace("\n", " ").replace("|", "/")
            said = f"{' '.join(step.command[:-1])}: {fault} at {point.call} {point.number} {point.file}"
            print(f"{number}/{len(trials)} {said}: {wrong.get(trial, 'the same')}", file=sys.stderr, flush=True)
    print("\n".join(table(whole, trials, wrong)))
    return int(bool(wrong))


def one_of_each_kind(trials: list[Trial], chance: random.Random) -> list[Trial]:
    """Draw one trial for each kind of crash point and fault; those with the other fault of a kind come later."""
    kinds = defaultdict[tuple[Fault, str], list[Trial]](list)
    for trial in trials:
        kinds[trial[2], trial[1].kind].append(trial)
    return [chance.choice(each) for _, each in sorted(kinds.items(), reverse=True)]


def table(whole: Undisturbed, trials: list[Trial], wrong: dict[Trial, str]) -> list[str]:
    """Lines of the table: trials by kind of file and by fault, and then all that went wrong."""
    points = [point for _, point in whole.points]
    tried = {point.kind for _, point, _ in trials}
    rows, bad = Counter[tuple[str, Fault]](), Counter[str]()
    for trial in trials:
        rows[place(trial[1]), trial[2]] += 1
        bad[place(trial[1])] += trial in wrong
    lines = [
        f"{len(points)} crash points of {len({point.kind for point in points})} kinds; tried: {len(trials)} of "
        f"{len(tried)} kinds; wrong: {len(wrong)}\n",
        "| files | crash points | kinds | SIGKILL | ENOSPC | wrong |\n|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(place(point) for point in points):
        theirs = [point for point in points if place(point) == name]
        kinds = len({point.kind for point in theirs})
        counts = f"{rows[name, 'SIGKILL']} | {rows[name, 'ENOSPC']} | {bad[name]}"
        lines.append(f"| {name} | {len(theirs)} | {kinds} | {counts} |")
    return [*lines, *(f"\n{fault} at {point.call} {point.file}: {said}" for (_, point, fault), said in wrong.items())]


def place(point: CrashPoint) -> str:
    """Kind of the file of a crash point."""
    path = PurePosixPath(point.file)
    inside = "/".join(path.parts[2:])
    of_launch = inside.startswith(("public", "private"))
    found = (name for begin, name in _PLACES.items() if (inside if of_launch else point.file).startswith(begin))
    return next(found, "folders")


if __name__ == "__main__":
    sys.exit(main())
