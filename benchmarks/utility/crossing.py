"""Ways to spend rho on people by the ten thousand: cells of population, people and way, appended to a CSV.

OMP_NUM_THREADS=1 python -m benchmarks.utility.crossing FOLDER LIST [--results FILE] [--work FOLDER]

FOLDER holds ``users/*.parquet`` (``client_id, text, locale, ts``) under the names of ``populations.POPULATIONS``. LIST
names one of ``cell_lists.LISTS``. A cell whose row stands in the CSV is not computed again, and several processes may
work through the same list: each takes the first cell that nobody has taken. A killed cell resumes from its checkpoint.

People are permuted once; the first of them are held out, and those who train are nested, so that 300 people are among
1,000. Intervals are of people alone: noise and cohorts are drawn once a cell, ``draw`` counts repetitions. Noise is
seeded, so nobody is protected: a measurement, not a launch.
"""

import argparse
import csv
import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np

from benchmarks.utility import arms, cell_lists, populations
from benchmarks.utility.cell import Cell
from benchmarks.utility.recall import Arm, gain
from pretrain.files import atomic

RESULTS = Path("benchmarks/results/crossing.csv")
MEASURED = ("devices", "test_people", "test_words", "way", "sigma", "z", "server_rate", "epsilon", "top1", "top3")
MEASURED += ("over_start", "error", "distinct", "train_cpu_s")


def main() -> None:
    """Work through a list of cells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("list", choices=sorted(cell_lists.LISTS))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--work", type=Path, default=Path("build/crossing"), help="private; resumes from here")
    chosen = parser.parse_args()
    for cell in cell_lists.LISTS[chosen.list]:
        with taken(chosen.work, cell) as mine:
            if mine and cell.name not in done(chosen.results):
                append(chosen.results, cell, measured(cell, chosen.folder, chosen.work))


def measured(cell: Cell, folder: Path, work: Path) -> dict[str, object]:
    """Measure one cell."""
    people = populations.opened(cell, folder, work)
    began = time.process_time()
    entrant, facts = arms.made(cell, people, work / "trained" / cell.name)
    seconds = time.process_time() - began
    hits = judged(cell.name, entrant, people, work)
    start = judged("start", Arm(people.start.model(), None), people, work)
    value, error = gain(hits.top1_D, start.top1_D, people.words_D)
    total = int(people.words_D.sum())
    tell(f"{cell.name}: {100 * hits.top1_D.sum() / total:.2f}, {100 * value:+.2f} ± {200 * error:.2f}, {seconds:.0f} s")
    return facts | {
        "test_people": len(people.words_D),
        "test_words": total,
        "top1": round(100 * float(hits.top1_D.sum()) / total, 3),
        "top3": round(100 * float(hits.top3_D.sum()) / total, 3),
        "over_start": round(100 * value, 3),
        "error": round(100 * error, 3),
        "distinct": hits.distinct,
        "train_cpu_s": round(seconds),
    }


def judged(name: str, entrant: Arm, people: populations.People, work: Path) -> arms.Hits:
    """Score an arm on the held-out people; kept in ``work``, so that later tables can pair any two cells."""
    path = work / "hits" / people.name / f"{name}.npz"
    if not path.exists():
        hits = arms.hits(entrant, people.held_out)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **asdict(hits))
    with np.load(path) as kept:
        return arms.Hits(kept["top1_D"], kept["top3_D"], int(kept["distinct"]))


@contextmanager
def taken(work: Path, cell: Cell) -> Iterator[bool]:
    """Take a cell: False while another process works at it."""
    path = work / "taken" / f"{cell.name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True


def done(results: Path) -> set[str]:
    """Names of cells that have a row.

    Raises:
      ValueError: rows of other columns, below which today's would be misread.
    """
    if not results.exists():
        return set()
    with results.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        if list(rows.fieldnames or ()) != columns():
            raise ValueError(f"--results: the columns of {results} are not {', '.join(columns())}; add what is missing")
        return {row["cell"] for row in rows}


def columns() -> list[str]:
    """Columns of a row: the cell, and what was measured."""
    return ["cell", *(each.name for each in fields(Cell)), *MEASURED]


def append(results: Path, cell: Cell, row: dict[str, object]) -> None:
    """Append one row; a line is written whole."""
    content = {"cell": cell.name, **asdict(cell), **row}
    new = not results.exists()
    with results.open("a", encoding="utf-8", newline="") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        writer = csv.DictWriter(file, columns(), restval="", lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(content)
        file.flush()
        os.fsync(file.fileno())


def tell(line: str) -> None:
    """Say how far the list is."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
