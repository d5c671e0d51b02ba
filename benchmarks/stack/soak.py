"""Soak test of the stack: many tiny launches, some in parallel, with growth of memory, open files, rows and disk.

    .venv/stages/bin/python -m benchmarks.stack.soak [--launches 50] [--at-once 4] [--every 2] [--out FILE]

`make stack` in a folder of its own, a launch file and a population a locale, each triggered, approved and published
through Airflow; nothing of it is left. What the stack holds is measured after every few launches (``measure``) and
written to FILE, a line a sample. ``growth`` then says what a launch adds, and by which rule that is a leak; exit code 1
if anything is. `--read FILE` says it again of a run that was.
"""

import argparse
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import time
import urllib.error
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from benchmarks.stack.growth import Sample, picture, table, trends
from benchmarks.stack.measure import Probe
from tests.helpers.launches.tiny_launch import write_launch
from tests.helpers.processes.forked import begun
from tests.helpers.processes.stack import REVIEWER, Stack, stack

# One each, in Latin script, as the made-up people type English words.
LOCALES = """
en-US en-GB en-AU en-CA en-IN en-IE en-NZ en-ZA es-ES es-MX es-AR es-CO es-CL es-PE pt-BR pt-PT fr-FR fr-CA fr-BE
fr-CH de-DE de-AT de-CH it-IT it-CH nl-NL nl-BE sv-SE da-DK nb-NO fi-FI pl-PL cs-CZ sk-SK sl-SI hr-HR ro-RO hu-HU
et-EE lt-LT lv-LV tr-TR id-ID ms-MY vi-VN sw-KE af-ZA ca-ES eu-ES gl-ES
""".split()  # noqa: SIM905 - a list of fifty quoted tags reads worse
# A question that is answered in the second that it is asked can fail its task.
THINKING_SECONDS = 4
# How often runs are asked how they are: each answer costs the api-server some of what is measured.
LOOKING_SECONDS = 5
OVER = frozenset({"success", "failed", "skipped", "upstream_failed"})


@dataclass
class Run:
    """A launch under way; ``asked``: when it was first seen to wait for an answer."""

    dag: str
    id: str
    asked: float = 0.0


def main() -> int:
    asked = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of what ends the stack
    samples = read(asked.read) if asked.read else soak(asked)
    try:
        print(table(samples))
    except ValueError as error:
        sys.exit(str(error))
    if asked.picture:
        asked.picture.write_text(picture(samples), encoding="utf-8")
    leaks = [trend for trend in trends(samples) if trend.leaks]
    for trend in leaks:
        print(f"LEAK: {trend.name}: {trend.said}", file=sys.stderr)
    failed = samples[-1].values["failed"]
    if failed:
        print(f"{failed:.0f} launches failed", file=sys.stderr)
    return 1 if leaks or failed else 0


def soak(asked: argparse.Namespace) -> list[Sample]:
    """Run the launches; the samples, the first before any launch and the last when nothing runs any more."""
    folder = Path(tempfile.mkdtemp(prefix="tacit-soak-"))
    spare, meeting = folder / "tmp", folder / "meeting"
    spare.mkdir()
    meeting.mkdir()
    try:
        with stack(begun(meeting, os.getpid(), spare).tacit, spare) as servers:
            return launched(servers, Probe(servers, spare), asked)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def launched(servers: Stack, probe: Probe, asked: argparse.Namespace) -> list[Sample]:
    waiting = [write(servers, locale, seed) for seed, locale in enumerate(LOCALES[: asked.launches])]
    running: list[Run] = []
    samples: list[Sample] = []
    ended, failed, begun_at = 0, 0, time.monotonic()

    def take() -> None:
        samples.append(Sample(ended, time.monotonic() - begun_at, probe.sample() | {"failed": failed}))
        with asked.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(vars(samples[-1])) + "\n")

    asked.out.unlink(missing_ok=True)
    take()
    while waiting or running:
        if time.monotonic() - begun_at > 60 * asked.minutes:
            waiting.clear()
        while waiting and len(running) < asked.at_once:
            dag = waiting.pop(0)
            servers.done(
                "tacit", "ledger", "register", dag, "--max-rho", "9", "--max-words-epsilon", "900", "--delta", "1e-4"
            )
            running.append(Run(dag, servers.trigger(dag)))
        time.sleep(LOOKING_SECONDS)
        for run in list(running):
            states = servers.airflow.states(run.dag, run.id)
            if states.get("approve") == "awaiting_input":
                answer(servers, run)
            if not OVER.issuperset(states.values()) or not servers.ended(run.id, run.dag):
                continue
            running.remove(run)
            # Noise is drawn anew each time, so the gates may hold one: an end like any other, with less to publish.
            became = (
                "failed" if "failed" in states.values() else "held" if "skipped" in states.values() else "published"
            )
            ended, failed = ended + 1, failed + (became == "failed")
            print(f"{time.monotonic() - begun_at:6.0f} s  {ended:3} {run.dag} {became}", flush=True)
            if became == "failed":
                print(logged(servers, run, states), file=sys.stderr, flush=True)
            if ended % asked.every == 0:
                take()
    time.sleep(asked.rest)
    take()
    return samples


def answer(servers: Stack, run: Run) -> None:
    """Approve what a launch asks, after a while."""
    run.asked = run.asked or time.monotonic()
    if time.monotonic() - run.asked > THINKING_SECONDS:
        # It may have been taken since.
        with suppress(urllib.error.HTTPError):
            servers.answer(run.id, dag=run.dag)


def logged(servers: Stack, run: Run, states: dict[str, str]) -> str:
    """The ends of the logs of tasks that failed."""
    failed = [name for name, state in states.items() if state == "failed"]
    folder = servers.home / "airflow" / "logs" / f"dag_id={run.dag}"
    logs = [path for name in failed for path in sorted(folder.glob(f"*/task_id={name}/*.log"))]
    return "\n".join(f"{path}:\n{path.read_text(encoding='utf-8')[-4000:]}" for path in logs)


def write(servers: Stack, locale: str, seed: int) -> str:
    """The launch file of one locale, with text and a population of its own; returns its name."""
    name = f"soak-{locale}"
    folder = Path(servers.environment["TACIT_LAUNCHES"]).parent / "text" / name
    folder.mkdir()
    path = write_launch(folder, name=name, locale=locale, seed=seed, reviewers=[REVIEWER])
    launch = yaml.safe_load(path.read_text(encoding="utf-8"))
    launch["private_text"]["name"] = name
    path.unlink()
    # The same ids in two populations would be the same people, and refused.
    people = pq.read_table(folder / "clients.parquet")
    ids = pc.binary_join_element_wise(name, people["client_id"], "-")
    pq.write_table(people.set_column(0, "client_id", ids), folder / "clients.parquet")
    Path(servers.environment["TACIT_LAUNCHES"], f"{name}.yaml").write_text(yaml.safe_dump(launch), encoding="utf-8")
    return name


def read(path: Path) -> list[Sample]:
    return [Sample(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=50, help=f"how many, at most {len(LOCALES)} (default 50)")
    parser.add_argument("--at-once", type=int, default=4, help="how many run at a time (default 4)")
    parser.add_argument("--every", type=int, default=2, help="launches between two samples (default 2)")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="after so many no launch begins (default: none)"
    )
    parser.add_argument("--rest", type=float, default=60, help="seconds of rest before the last sample (default 60)")
    parser.add_argument("--out", type=Path, default=Path("soak.jsonl"), help="file of the samples (default soak.jsonl)")
    parser.add_argument("--read", type=Path, metavar="FILE", help="samples of a run that was: no stack is started")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="an SVG picture of what was measured")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
