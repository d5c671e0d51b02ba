"""Backfill: forecast the spends of launches of past dates and, on request, create their runs in Airflow, one by one.

As a script it serves `make up`: FILE FROM TO [GO], with the ledger and the Airflow of the environment.
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
    """Print the forecast of the dates; with ``go`` Airflow runs them. Exit code: 0, 1, or that of `tacit`.

    Args:
      ledger: environment of `tacit`, with the ledger's address.
      environment: environment of Airflow.
    """
    tacit = ledger.get("TACIT_BIN") or str(_VENV / "stages" / "bin" / "tacit")
    words = ["--quiet", "ledger", "forecast", file, "--from", first, "--to", last]
    if refused := subprocess.run([tacit, *words], env=dict(ledger), check=False).returncode:
        return refused
    if not go:
        print("nothing runs yet: repeat it with GO=1 to create these runs in Airflow")
        return 0
    name = Path(file).stem
    if missing := not_switched_on(environment, name):
        print(f"backfill: {missing}", file=sys.stderr)
        return 1
    return created(environment, f"public_model-{name}", first, last)


def not_switched_on(environment: Mapping[str, str], name: str) -> str:
    """Message if a paused or missing DAG would stop the runs, with the fix; empty if none would."""
    listed = airflow(environment, "dags", "list", "--columns", "dag_id,is_paused", "--output", "json")
    if listed.returncode:
        return f"Airflow does not answer: {last_line(listed.stderr)}"
    answer = re.search(r"^\[\{.*\}\]", listed.stdout, re.MULTILINE)  # warnings are on the same stream
    paused = {row["dag_id"]: row["is_paused"] == "True" for row in json.loads(answer[0] if answer else "[]")}
    wanted = (f"public_model-{name}", name)
    if absent := [dag for dag in wanted if dag not in paused]:
        return f"Airflow has no DAG {absent[0]}; is the file under TACIT_LAUNCHES, with a schedule, and Airflow up?"
    # Any other DAG of the file, KIND-NAME: publication needs it, after the spend. NAME2-NAME may be another file's own.
    also = (dag for dag in paused if dag.partition("-")[2] == name and f"public_model-{dag}" not in paused)
    if off := [dag for dag in dict.fromkeys((*wanted, *also)) if paused[dag]]:
        return (
            f"{', '.join(off)}: paused, so not all would run; unpause in Airflow, {wanted[0]} last: that also runs the "
            "schedule's latest date (include it in the forecast, to see its spend)"
        )
    return ""


def created(environment: Mapping[str, str], dag: str, first: str, last: str) -> int:
    """Create the runs in Airflow; existing ones are not an error."""
    about = ["--dag-id", dag, "--from-date", first, "--to-date", last]
    kind = ["--max-active-runs", "1", "--reprocess-behavior", "none"]
    done = airflow(environment, "backfill", "create", *about, *kind)
    if "AlreadyRunningBackfill" in done.stdout + done.stderr:
        print(f"backfill: {dag}: one is running; its page in Airflow shows its progress", file=sys.stderr)
        return 1
    if done.returncode:
        print(f"backfill: Airflow: {last_line(done.stdout + done.stderr)}", file=sys.stderr)
        return 1
    dates = ", ".join(re.findall(r"creating dag run.*partition_key=([0-9]+)", done.stdout)) or "no date"
    before = done.stdout.count("Skipping dag run creation")
    had = f"; {before} already have a run, and get no other: clear it in Airflow if it failed" if before else ""
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
