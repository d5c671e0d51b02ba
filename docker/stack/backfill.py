"""Launches of dates that passed: what they would spend, then, asked to, their runs in Airflow, one by one.

Run as a script it is that of `make up`: FILE FROM TO [GO], with the ledger and the Airflow that the environment names.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_VENV = Path(__file__).resolve().parents[2] / ".venv"


def backfill(
    ledger: Mapping[str, str], environment: Mapping[str, str], file: str, first: str, last: str, go: str = ""
) -> int:
    """Print the spend of the dates; with ``go`` Airflow runs them. Exit code: 0, 1, or that of `tacit`.

    Args:
      ledger: variables of `tacit`, which name the ledger.
      environment: those of Airflow.
    """
    tacit = ledger.get("TACIT_BIN") or str(_VENV / "stages" / "bin" / "tacit")
    words = ["--quiet", "ledger", "forecast", file, "--from", first, "--to", last]
    if refused := subprocess.run([tacit, *words], env=dict(ledger), check=False).returncode:
        return refused
    if not go:
        print("nothing runs yet: the same with GO=1 asks Airflow for these runs")
        return 0
    name = Path(file).stem
    if missing := not_switched_on(environment, name):
        print(f"backfill: {missing}", file=sys.stderr)
        return 1
    return created(environment, f"public_model-{name}", first, last)


def not_switched_on(environment: Mapping[str, str], name: str) -> str:
    """Reason that keeps a launch file's dates from running through, and the fix; empty where nothing does."""
    listed = airflow(environment, "dags", "list", "--columns", "dag_id,is_paused", "--output", "json")
    if listed.returncode:
        return f"Airflow does not answer: {last_line(listed.stderr)}"
    answer = re.search(r"^\[\{.*\}\]", listed.stdout, re.MULTILINE)  # its warnings go to the same place
    paused = {row["dag_id"]: row["is_paused"] == "True" for row in json.loads(answer[0] if answer else "[]")}
    wanted = (f"public_model-{name}", name)
    if absent := [dag for dag in wanted if dag not in paused]:
        return f"Airflow has no DAG {absent[0]}; is the file under TACIT_LAUNCHES, with a schedule, and Airflow up?"
    also = [dag for dag in (f"experiment-{name}",) if dag in paused]
    if off := [dag for dag in (*wanted, *also) if paused[dag]]:
        return (
            f"{', '.join(off)}: paused, so not all would run; switch it on in Airflow, {wanted[0]} last: that runs the "
            "schedule's latest date too (name it to the forecast, to see what it spends)"
        )
    return ""


def created(environment: Mapping[str, str], dag: str, first: str, last: str) -> int:
    """Ask Airflow for the runs; those that there are already are no fault."""
    about = ["--dag-id", dag, "--from-date", first, "--to-date", last]
    kind = ["--max-active-runs", "1", "--reprocess-behavior", "none"]
    done = airflow(environment, "backfill", "create", *about, *kind)
    if "AlreadyRunningBackfill" in done.stdout + done.stderr:
        print(f"backfill: {dag}: one goes on; its page in Airflow shows how far it is", file=sys.stderr)
        return 1
    if done.returncode:
        print(f"backfill: Airflow: {last_line(done.stdout + done.stderr)}", file=sys.stderr)
        return 1
    dates = ", ".join(re.findall(r"creating dag run.*partition_key=([0-9]+)", done.stdout)) or "no date"
    before = done.stdout.count("Skipping dag run creation")
    had = f"; {before} had their run before, and get no other: clear it in Airflow if it failed" if before else ""
    print(f"{dag}: runs of {dates}{had}")
    return 0


def airflow(environment: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    path = f"{environment['PATH']}:{_VENV / 'airflow' / 'bin'}"
    command = [shutil.which("airflow", path=path) or "airflow", *words]
    return subprocess.run(command, env=dict(environment), capture_output=True, text=True, check=False)


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no word"])[-1]


if __name__ == "__main__":
    sys.exit(backfill(os.environ, os.environ, *sys.argv[1:]))
