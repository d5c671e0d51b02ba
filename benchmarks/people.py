"""Seconds of what people do with launches: cost, a launch on own text, why it is held, approval, rollback.

    .venv/stages/bin/python -m benchmarks.people FOLDER

FOLDER is empty, or new. The people are those of ``docs/tutorial.md``, in a Parquet file; launches are
those of ``tacit init --small`` with the tutorial's sizes. Every command is a process of its own; its CPU seconds are
those of the process and of all that it started. A loop of ten million additions before each task says how fast the
machine was. The table goes to standard output, and all that commands say to ``FOLDER/said.txt``.
"""

import argparse
import json
import re
import resource
import runpy
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import yaml

from pipeline.ground.settings import account

TUTORIAL = Path(__file__).resolve().parents[1] / "docs" / "tutorial.md"
TACIT = Path(sys.executable).with_name("tacit")
DATA = ("--locale", "en-US", "--data", "people.parquet", "--public", "public.jsonl")
# The total of the tutorial's published launch.
ASKED = (*DATA, "--epsilon", "13", "--rho", "0.5", "--budget", "2", "--small")
HELD, DONE = 3, 0
# Of the shell: other folders, and what would compile every module again.
UNSET = ("TACIT_RUNS_DIR", "TACIT_LEDGER_URL", "MLFLOW_TRACKING_URI", "PYTHONDONTWRITEBYTECODE")


@dataclass(frozen=True)
class Step:
    """A command, and the exit code that it must have."""

    task: str
    arguments: tuple[str, ...]
    code: int = DONE


def steps(reviewer: str) -> Iterator[Step]:
    """All commands in order; launches that are approved need one answer of ``reviewer``."""
    sizes = tutorial_sizes()
    ready = {**sizes, "policy.approvals": 1, "reviewers": [reviewer], "private_text.name": "careful"}
    yield Step("the ledger and its budget, once", ("ledger", "init"))
    register = ("--max-rho", "2", "--max-words-epsilon", "200", "--delta", "1e-5")
    yield Step("the ledger and its budget, once", ("ledger", "register", "careful", *register))
    yield Step("a key to review with, once", ("ledger", "reviewer", "careful", reviewer))
    yield Step("launch on own text", ("init", "careful.yaml", *ASKED, *to_set(sizes | {"policy.min_top1_gain": 0.9})))
    yield Step("launch on own text", ("check", "careful.yaml"))
    yield Step("learn what a launch costs", ("plan", "careful.yaml"))
    yield Step("launch on own text", ("launch", "careful.yaml"), HELD)
    yield Step("learn why it is held", ("status", "careful"), DONE)
    yield Step("learn why it is held", ("explain", "utility"))
    # The first goes a third of the second's way, so that the second is not held for being worse.
    for name, rate in (("first", 0.05), ("second", 0.15)):
        asked = ("init", f"{name}.yaml", *ASKED, *to_set(ready | {"server.learning_rate": rate}))
        yield Step(f"a {name} launch, for an approval", asked)
        yield Step(f"a {name} launch, for an approval", ("launch", f"{name}.yaml"))
        yield Step("approve", ("review", name))
        yield Step("approve", ("review", name, "--answer", "approve", "--reason", "measured"))
        yield Step("publish what is approved", ("launch", f"{name}.yaml"))
    yield Step("roll back", ("rollback", "en-US", "--reason", "measured"))


def to_set(fields: Mapping[str, object]) -> tuple[str, ...]:
    """Options of ``tacit init`` for fields by dotted name."""
    return tuple(part for name, value in fields.items() for part in ("--set", f"{name}={json.dumps(value)}"))


def tutorial_sizes() -> dict[str, object]:
    """Fields of the tutorial's own sizes, by dotted name."""
    found = re.search(r'```yaml title="en-US.yaml"\n(.*?)^```', TUTORIAL.read_text("utf-8"), re.M | re.S)
    assert found is not None
    blocks = yaml.safe_load(found[1])
    del blocks["policy"]  # its gate
    return {f"{block}.{name}": value for block, fields in blocks.items() for name, value in fields.items()}


def loop() -> float:
    """CPU seconds of ten million additions."""
    begun, total = time.process_time(), 0
    for number in range(10_000_000):
        total += number
    return time.process_time() - begun


def children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(folder: Path, arguments: tuple[str, ...], code: int) -> str:
    """Run ``tacit``; what it says is kept.

    Raises:
      ValueError: it ended with another code.
    """
    own = (f"TACIT_HOME={folder}", f"TACIT_REVIEW_KEY={folder / 'review.pem'}")
    command = ["env", *(f"--unset={name}" for name in UNSET), *own, TACIT, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    with (folder / "said.txt").open("a", encoding="utf-8") as said:
        said.write(f"$ tacit {' '.join(arguments)}\n{done.stdout}{done.stderr}\n")
    if done.returncode != code:
        raise ValueError(f"tacit {' '.join(arguments)}: exit code {done.returncode}, not {code}\n{done.stderr[-2000:]}")
    return done.stdout


def accepted(folder: Path, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """An approval with every main concern accepted by its number."""
    if "approve" not in arguments:
        return arguments
    concerns = json.loads(run(folder, ("review", arguments[1], "--json"), DONE)).get("concerns", ())
    return (*arguments, *(part for number in range(1, len(concerns) + 1) for part in ("--accept", str(number))))


def write_text(folder: Path) -> None:
    """Public text, and the tutorial's people in a Parquet file."""
    found = re.search(r'```python title="people.py"\n(.*?)^```', TUTORIAL.read_text("utf-8"), re.M | re.S)
    assert found is not None
    (folder / "people.py").write_text(found[1], encoding="utf-8")
    with chdir(folder):
        runpy.run_path("people.py", run_name="__main__")
        pd.read_json("people.jsonl", lines=True).to_parquet("people.parquet")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a new folder, which keeps what the commands say")
    folder = parser.parse_args().folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder)
    print("| task | command | wall s | CPU s | loop s |\n|---|---|---|---|---|")
    for step in steps(account()):
        arguments, speed = accepted(folder, step.arguments), loop()
        wall, used = time.monotonic(), children()
        run(folder, arguments, step.code)
        row = (time.monotonic() - wall, children() - used, speed)
        shown = " ".join(arguments[:2])
        print(f"| {step.task} | `tacit {shown}` | {' | '.join(f'{value:.1f}' for value in row)} |", flush=True)


if __name__ == "__main__":
    main()
