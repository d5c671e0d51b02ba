"""Private training at equal rho, one setting varied at a time, judged on held-out people of three populations.

OMP_NUM_THREADS=1 python -m benchmarks.private_training [FOLDER] [--only chat|blogs|SMS ...] [--draws 3] [--most ROWS]
    [--work runs/private_training]

FOLDER holds the Parquet files of blogs and SMS (``client_id, text, locale, ts``); chat is packaged. Each population's
start is pretrained once as the launch file says, on the packaged text of its language; there is no discovery, so the
vocabulary is the base one. Then every setting is trained with each draw of the noise at rho 0.5 (seeded: a measurement,
nobody is protected). Rows go to WORK as they are measured, by several processes if there are several; what is there is
not measured again. Prints Markdown of all rows there are. About a minute of CPU a run; ``--most 0`` prints alone.
"""

import argparse
import fcntl
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from benchmarks.private_training.populations import POPULATIONS, people
from benchmarks.private_training.settings import SETTINGS
from benchmarks.private_training.table import tables
from benchmarks.private_training.training import START, Row, rows, start_row
from pipeline.config import LaunchConfig, load_launch


def main() -> None:
    """Measure what is missing, then print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--launch", type=Path, default=Path("dags/launches/demo-en-US.yaml"))
    parser.add_argument("--only", nargs="+", choices=POPULATIONS, default=list(POPULATIONS))
    parser.add_argument("--settings", nargs="+", choices=[setting.name for setting in SETTINGS])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--most", type=int, help="trainings of this call; default: all that are missing")
    parser.add_argument("--work", type=Path, default=Path("runs/private_training"), help="private: text of devices")
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    chosen.work.mkdir(parents=True, exist_ok=True)
    launch, left = load_launch(chosen.launch), chosen.most
    for name in chosen.only:
        if left != 0:
            left = measure(name, launch, chosen, left)
    for text in tables(read(chosen.work), chosen.draws):
        print(text)


def measure(name: str, launch: LaunchConfig, chosen: argparse.Namespace, left: int | None) -> int | None:
    """Train what is missing of a population, all settings with one draw before the next; how many are left to do."""
    settings = [setting for setting in SETTINGS if not chosen.settings or setting.name in chosen.settings]
    todo = [(setting, draw) for draw in range(chosen.draws) for setting in settings if setting.noise or not draw]
    if all((name, setting.name, draw) in done(chosen.work) for setting, draw in todo):
        return left
    with claimed(chosen.work / f"{name}.lock", wait=True):
        who = people(name, launch, chosen.folder, chosen.work)
        if (name, START, 0) not in done(chosen.work):
            append(chosen.work, [start_row(name, who)])
    for setting, draw in todo:
        if left == 0:
            break
        with claimed(chosen.work / f"{name}-{SETTINGS.index(setting)}-{draw}.lock") as mine:
            if mine and (name, setting.name, draw) not in done(chosen.work):
                print(f"{name}: {setting.name}, draw {draw}", file=sys.stderr, flush=True)
                append(chosen.work, list(rows(name, setting, draw, who, launch.seed)))
                left = None if left is None else left - 1
    return left


def read(work: Path) -> list[Row]:
    """All rows there are."""
    path = work / "rows.jsonl"
    return [Row.read(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def done(work: Path) -> set[tuple[str, str, int]]:
    """Population, setting and draw of all rows there are."""
    return {(row.population, row.setting, row.draw) for row in read(work)}


def append(work: Path, measured: list[Row]) -> None:
    """Add rows in one write."""
    with (work / "rows.jsonl").open("a", encoding="utf-8") as file:
        file.write("".join(row.line() for row in measured))


@contextmanager
def claimed(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Whether this process alone has the name; until the block ends, if it does."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True


if __name__ == "__main__":
    main()
