"""Growth of the privacy ledger's operations with its entries.

    .venv/stages/bin/python -m benchmarks.speed.ledger [--url postgresql://...] [--sizes 1000,10000,100000]

Each ledger holds weekly launches of fifty populations: eight entries and fifteen results each, with their receipts. An
operation opens the ledger anew, as the process of a stage does. CPU milliseconds of one thread, medians of five; the
last column is the exponent between the smallest and the largest ledger.
"""

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

from sqlalchemy import insert, update

from pipeline.ledger import clock, results, schema
from pipeline.ledger.budget import Budget, Ceilings, Window
from pipeline.ledger.entries import SPLIT_RULE, Entry, canonical, with_spend
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.receipts import FILE, Receipts
from pipeline.ledger.spend import Spend

POPULATIONS = 50
STAGES = ("discover", "count", "fine_tune", "ab_test")
RESULTS = 15  # stages of a launch
TURNS = 5
WINDOW = Window(rho=1.0, epsilon=10.0, days=60)
BUDGET = Budget(max_rho=1.0, max_epsilon=10.0, delta=1e-6, window_days=60)
SPEND = Spend(unit="device", adjacency="zero-out", rho=0.001, epsilon=0.2, delta=1e-9)


def fill(ledger: PrivacyLedger, runs: Path, size: int) -> None:
    """Bring a ledger to about ``size`` entries: weekly launches of all populations, the last one a week ago."""
    names = [f"people-{number}" for number in range(POPULATIONS)]
    for name in names:
        ledger.register(name, BUDGET, "benchmark")
    launches = (size - POPULATIONS) // (2 * len(STAGES))
    began = clock.now() - timedelta(weeks=math.ceil(launches / POPULATIONS) + 1)
    with ledger.transaction() as connection:
        count, previous = schema.read_head(connection)
        for number in range(launches):
            when, name = began + timedelta(weeks=number // POPULATIONS), names[number % POPULATIONS]
            launch = f"{name}-{number:08x}-{when:%Y%m%d}"
            receipts = {"entry": {}, "result": {}}
            for stage in STAGES:
                for kind in ("reserve", "commit"):
                    count += 1
                    entry = _entry(count, kind, name, launch, stage, clock.written(when), previous)
                    connection.execute(insert(schema.ENTRIES).values(**entry.model_dump()))
                    connection.execute(update(schema.HEAD).values(entries=entry.seq, hash=entry.hash))
                    previous = receipts["entry"][str(count)] = entry.hash
            for stage in range(RESULTS):
                receipt = results.write(connection, launch, f"stage-{stage}", f"{number:032x}{stage:032x}")
                receipts["result"][str(number * RESULTS + stage + 1)] = receipt
            folder = runs / launch / "public" / "launch"
            folder.mkdir(parents=True)
            (folder / FILE).write_text(json.dumps(receipts), encoding="utf-8")


def _entry(seq: int, kind: str, population: str, launch: str, stage: str, when: str, previous: str) -> Entry:
    binding = {"config": "c" * 64, "inputs": "i" * 64, "key": "k" * 64, SPLIT_RULE: "r" * 16}
    amounts = SPEND.model_dump(include={"unit", "adjacency", "rho", "epsilon", "delta", "note"})
    place = {"seq": seq, "kind": kind, "population": population, "launch_id": launch, "stage": stage}
    entry = Entry.model_construct(
        **place, **amounts, binding=canonical(with_spend(binding, SPEND)), created_at=when, prev_hash=previous, hash=""
    )
    return entry.model_copy(update={"hash": entry.expected_hash()})


def operations(opened: Callable[[], PrivacyLedger], turn: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """What a stage of a launch asks of the ledger, in order, and a whole verification."""
    launch, key = f"new-{turn}", f"people-{turn}"
    request = {"population": key, "launch_id": launch, "stage": "fine_tune", "spend": SPEND}
    asked = Ceilings(window=WINDOW, delta=BUDGET.delta)
    yield "begin a stage", lambda: opened().require_whole({})
    yield "split secret", lambda: opened().split_secret(key)
    yield "reserve", lambda: opened().reserve(**request, asked=asked, binding={"key": "k"})
    yield "commit", lambda: opened().commit(launch, "fine_tune", SPEND)
    yield "bind a result", lambda: opened().bind_result(launch, "fine_tune", "d" * 64)
    yield "entries of a population", lambda: opened().entries(key)
    yield "last receipts", lambda: opened().heads()
    yield "verify all", lambda: opened().verify()


def measured(url: str, runs: Path, size: int) -> dict[str, float]:
    """CPU milliseconds of each operation on a ledger of a size."""
    PrivacyLedger.create(url)
    opened = partial(PrivacyLedger, url, Receipts(runs))
    fill(opened(), runs, size)
    opened().require_whole({})
    spent: dict[str, list[float]] = {}
    for turn in range(TURNS):
        for name, act in operations(opened, turn):
            began = time.process_time()
            act()
            spent.setdefault(name, []).append(1e3 * (time.process_time() - began))
    return {name: statistics.median(times) for name, times in spent.items()}


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
            url = options.url.format(size=size) or f"sqlite:///{Path(folder) / 'ledger.db'}"
            columns.append(measured(url, Path(folder) / "runs", size))
    print(f"| CPU ms, entries | {' | '.join(f'{size:,}' for size in sizes)} | exponent |")
    print("|---" * (len(sizes) + 2) + "|")
    for name in columns[0]:
        row = [column[name] for column in columns]
        exponent = math.log(row[-1] / row[0]) / math.log(sizes[-1] / sizes[0])
        print(f"| {name} | {' | '.join(f'{value:,.3g}' for value in row)} | {exponent:.2f} |")


if __name__ == "__main__":
    main()
