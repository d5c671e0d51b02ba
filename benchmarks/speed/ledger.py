"""Growth of the privacy ledger's operations with its entries.

    .venv/stages/bin/python -m benchmarks.speed.ledger [--url postgresql://...] [--sizes 1000,10000,100000]

Each ledger holds weekly launches of fifty populations: 23 entries each, fifteen of them results. An operation
opens the ledger anew, as the process of a stage does. CPU milliseconds of one thread, medians of five; the
last column is the exponent between the smallest and the largest ledger.
"""

import argparse
import math
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial

from sqlalchemy import insert

from pipeline.ground import clock, settings
from pipeline.ground.settings import Settings
from pipeline.ledger import database, rows
from pipeline.ledger.budget import Budget, Ceilings
from pipeline.ledger.entries import DIGEST, RESULT, SPLIT_RULE, Entry, Spend, unsigned
from pipeline.ledger.ledger import PrivacyLedger

POPULATIONS = 50
STAGES = ("discover", "count", "fine_tune", "ab_test")
RESULTS = 15  # stages of a launch
TURNS = 5
_LAUNCH = (
    *((kind, stage) for stage in STAGES for kind in ("reserve", "commit")),
    *((RESULT, f"stage-{number}") for number in range(RESULTS)),
)
BUDGET = Budget(max_rho=1.0, max_words_epsilon=10.0, delta=1e-6, window_days=60)
SPEND = Spend(unit="device", adjacency="zero-out", rho=0.001, epsilon=0.2, delta=1e-9)


def fill(ledger: PrivacyLedger, size: int) -> None:
    """Bring a ledger to about ``size`` entries: weekly launches of all populations, the last one a week ago."""
    names = [f"people-{number}" for number in range(POPULATIONS)]
    for name in names:
        ledger.register(name, BUDGET, "benchmark")
    launches = (size - POPULATIONS) // len(_LAUNCH)
    began = clock.now() - timedelta(weeks=math.ceil(launches / POPULATIONS) + 1)
    with ledger.writing() as connection:
        count = rows.length(connection)
        for number in range(launches):
            when, name = began + timedelta(weeks=number // POPULATIONS), names[number % POPULATIONS]
            launch = f"{name}-{number:08x}-{when:%Y%m%d}"
            for kind, stage in _LAUNCH:
                count += 1
                entry = _entry(count, kind, name, launch, stage, clock.written(when))
                entry = entry.model_copy(update={"signature": rows.signature(connection, entry.hash)})
                connection.execute(insert(database.ENTRIES).values(**entry.model_dump()))


def _entry(seq: int, kind: str, population: str, launch: str, stage: str, when: str) -> Entry:
    if kind == RESULT:
        return unsigned(seq, kind, "", launch, stage, None, {DIGEST: f"{seq:064x}"}, when)
    return unsigned(
        seq,
        kind,
        population,
        launch,
        stage,
        SPEND,
        {"config": "c" * 64, "inputs": "i" * 64, SPLIT_RULE: "r" * 16},
        when,
    )


def operations(opened: Callable[[], PrivacyLedger], turn: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """What a stage of a launch asks of the ledger, in order, and a whole verification."""
    launch, key = f"new-{turn}", f"people-{turn}"
    request = {"population": key, "launch_id": launch, "stage": "fine_tune", "spend": SPEND}
    asked = Ceilings(window_rho=1.0, days=60, delta=BUDGET.delta)
    yield "begin a stage", lambda: opened().require_whole({"MLflow": opened().checkpoint()})
    yield "ask the witness", lambda: opened().witnessed()
    yield "split secret", lambda: opened().split_secret(key)
    yield "reserve", lambda: opened().reserve(**request, asked=asked, binding={"key": launch})
    yield "commit", lambda: opened().commit(launch, "fine_tune", SPEND)
    yield "bind a result", lambda: opened().bind_result(launch, "fine_tune", "d" * 64)
    yield "entries of a population", lambda: opened().entries(key)
    yield "results of a launch", lambda: opened().bound_results(launch)
    yield "verify all", lambda: opened().verify()


def measured(here: Settings, size: int) -> dict[str, float]:
    """CPU milliseconds of each operation on a ledger of a size, of a process that the witness has too."""
    fill(PrivacyLedger.create(here), size)
    opened = partial(PrivacyLedger.of, here)
    opened().require_whole({})
    spent: dict[str, list[float]] = {}
    for turn in range(TURNS):
        for name, act in operations(opened, turn):
            began = _cpu()
            act()
            spent.setdefault(name, []).append(1e3 * (_cpu() - began))
    return {name: statistics.median(times) for name, times in spent.items()}


def _cpu() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000,10000,100000", help="entries, smallest first")
    parser.add_argument("--url", default="", help="an empty database per size, {size} in it; by default SQLite")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    columns = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            url = options.url.format(size=size)
            columns.append(measured(settings.load({"TACIT_HOME": folder, "TACIT_LEDGER_URL": url}), size))
    print(f"| CPU ms, entries | {' | '.join(f'{size:,}' for size in sizes)} | exponent |")
    print("|---" * (len(sizes) + 2) + "|")
    for name in columns[0]:
        row = [column[name] for column in columns]
        exponent = math.log(row[-1] / row[0]) / math.log(sizes[-1] / sizes[0])
        print(f"| {name} | {' | '.join(f'{value:,.3g}' for value in row)} | {exponent:.2f} |")


if __name__ == "__main__":
    main()
