"""Faults planted in whole tiny launches: how many launches of each are held or refused, and by what.

    OMP_NUM_THREADS=1 .venv/stages/bin/python -m benchmarks.privacy.planted_launches [--seeds 20] [--faults NAME ...]
        [--page FILE] [--work FOLDER]

Each launch has every kind of release under a budget, another seed, and faults of ``tests/helpers/launches/planted`` in
this project's own code. It is counted as held if a gate holds it, or a stage refuses to go on. Launches of one seed
begin with copies of the same honest stages, as far as their fault touches none of them.

The page is written again after every seed. A launch that stands in ``endings.csv`` of the work folder is not made
again: delete the folder after the code has changed.
"""

import argparse
import csv
import resource
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from pipeline.ground import settings
from pipeline.tracking import mlflow_tracker
from pretrain.files import write_text
from tests.helpers.launches.planted import NAMES, Ending, begun, launched, warm
from tests.helpers.processes.forked import prepare

PAGE, WORK = Path("benchmarks/results/planted-launches.md"), Path("build/planted-launches")
# Of a launch's messages, in which homes are shown as HOME.
_SHOWN = 300
# One fault and one seed each.
Endings = dict[tuple[str, int], Ending]


def endings(faults: Iterable[str], seeds: int, page: Path, work: Path) -> None:
    """Launch with every fault at every seed, and write the page after each seed."""
    work.mkdir(parents=True, exist_ok=True)
    kept = work / "endings.csv"
    known, faults, page = _read(kept), tuple(faults), page.absolute()
    prepare()
    with tempfile.TemporaryDirectory() as folder, kept.open("a", encoding="utf-8", newline="") as file:
        empty, home = Path(folder) / "empty", Path(folder) / "home"
        empty.mkdir()
        mlflow_tracker.connect(settings.load({"TACIT_HOME": str(empty)}))
        database = empty / "runs" / "mlflow.db"
        if seeds > 1:  # it takes as long as two launches with a fault
            warm(Path(folder) / "warm", database)
        for seed in range(seeds):
            missing = [fault for fault in faults if (fault, seed) not in known]
            copies = Path(folder) / f"copies-{seed}"
            if missing:
                begun(home, seed, database, copies)
            for fault in missing:
                made = launched(home, fault, seed, database, copies)
                made = Ending(made.decision, made.why.replace(str(home), "HOME"))
                known[fault, seed] = made
                csv.writer(file).writerow([fault, seed, made.decision, made.why, f"{_spent():.1f}"])
                file.flush()
                print(f"seed {seed}: {fault}: {made.decision}", flush=True)
            shutil.rmtree(copies, ignore_errors=True)
            write_text(page, text({fault: [known[fault, each] for each in range(seed + 1)] for fault in faults}))


def _read(path: Path) -> Endings:
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {(fault, int(seed)): Ending(decision, why) for fault, seed, decision, why, _ in csv.reader(file)}


def _spent() -> float:
    """CPU seconds of this process and of its launches so far."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in usages)


def text(made: Mapping[str, list[Ending]]) -> str:
    """Return the page: one row a fault, with what held or refused its launches; and the first launch of each."""
    seeds = min(map(len, made.values()))
    lines = [
        "# Planted faults in whole tiny launches",
        "",
        f"`python -m benchmarks.privacy.planted_launches --seeds {seeds}`: launches with every kind of release under a "
        "budget, and with faults in this project's own code. A launch is held if a gate holds it or a stage refuses to "
        f"go on; where all of {seeds} were, the chance of a launch is below {1 - 0.05 ** (1 / seeds):.0%}, at 95% "
        "confidence. On fifteen test devices the gates that judge the model hold launches by chance, so they are left "
        "out. Launches of one seed begin with copies of the same honest stages.",
        "",
        "| fault | held | by |",
        "|---|---|---|",
    ]
    for fault, ends in made.items():
        held = [each for each in ends if each.decision != "launch"]
        by = "; ".join(f"{why} ({times})" for why, times in Counter(map(_by, held)).most_common(2))
        lines.append(f"| {fault} | {len(held)} of {len(ends)} | {by} |")
    lines += ["", "The first launch of each:", ""]
    for fault, (first, *_) in made.items():
        lines.append(f"- {fault}: {first.decision}{': ' if first.why else ''}{first.why[:_SHOWN]}")
    return "\n".join(lines) + "\n"


def _by(ending: Ending) -> str:
    """Return the first gate that held a launch, or the stage that refused."""
    if ending.decision == "refused":
        return f"refused: {ending.why.removeprefix('error: ').partition(':')[0]}"
    return ending.why.partition(":")[0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--faults", nargs="*", choices=NAMES, default=NAMES)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--work", type=Path, default=WORK)
    asked = parser.parse_args()
    endings(asked.faults, asked.seeds, asked.page, asked.work)
