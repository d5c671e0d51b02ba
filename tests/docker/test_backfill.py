"""`make backfill`: what it says before anything runs, and what it asks of Airflow; both commands are stand-ins."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.processes.stack import ROOT

DAGS = ("public_model-de", "de", "experiment-de")
OTHERS = ("public_model-ch-de", "ch-de", "experiment-ch-de")  # of another launch file
CREATED = "creating dag run [x] logical_date=None partition_key=20260801 run_id=a"
# As Airflow writes it, before what was asked for and to the same place.
WARNING = "2026-11-23T07:14:21.261747Z [warning  ] Could not import graphviz. [py.warnings] category=UserWarning"
SKIPPED = "Skipping dag run creation. non_create_reason='already exists'"


def asked(folder: Path, *go: str, forecast: int = 0, paused: tuple[str, ...] = (), says: str = CREATED, code: int = 0):
    """What it answers, and what Airflow was asked."""
    listed = [{"dag_id": dag, "is_paused": str(dag in paused)} for dag in (*DAGS, *OTHERS)]
    (folder / "listed").write_text(f"{WARNING}\n{json.dumps(listed)}\n", encoding="utf-8")
    (folder / "says").write_text(says, encoding="utf-8")
    scripts = {
        "tacit": f'echo "$@"; exit {forecast}',
        "airflow": f"""echo "$@" >>{folder}/calls
            if [ "$1" = dags ]; then cat {folder}/listed; else cat {folder}/says; exit {code}; fi""",
    }
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    told = {"PATH": f"{folder}:{os.environ['PATH']}", "TACIT_BIN": str(folder / "tacit")}
    words = [sys.executable, "docker/stack/backfill.py", "x/de.yaml", "2026-08-01", "2026-09-30", *go]
    done = subprocess.run(words, cwd=ROOT, env=told, capture_output=True, text=True)
    calls = folder / "calls"
    return done, calls.read_text(encoding="utf-8").splitlines() if calls.exists() else []


def test_it_says_what_dates_would_spend_and_runs_nothing(tmp_path: Path) -> None:
    done, calls = asked(tmp_path)
    assert done.stdout.splitlines() == [
        "--quiet ledger forecast x/de.yaml --from 2026-08-01 --to 2026-09-30",
        "nothing runs yet: repeat it with GO=1 to create these runs in Airflow",
    ]
    assert (done.returncode, calls) == (0, [])


def test_what_would_be_refused_is_not_asked_for(tmp_path: Path) -> None:
    done, calls = asked(tmp_path, "1", forecast=65)
    assert (done.returncode, calls) == (65, [])


@pytest.mark.parametrize("dag", DAGS)
def test_what_is_paused_would_wait_for_ever_or_lose_its_date(tmp_path: Path, dag: str) -> None:
    done, calls = asked(tmp_path, "1", paused=(dag,))
    assert (done.returncode, len(calls)) == (1, 1)
    assert done.stderr.startswith(f"backfill: {dag}: paused, so not all would run")


def test_what_is_paused_of_another_launch_file_stops_nothing(tmp_path: Path) -> None:
    done, calls = asked(tmp_path, "1", paused=OTHERS)
    assert (done.returncode, len(calls)) == (0, 2), done.stderr


@pytest.mark.parametrize(
    ("says", "answer"),
    [
        (f"{CREATED}\n{SKIPPED}\n", "public_model-de: runs of 20260801; 1 already have a run, and get no other"),
        (SKIPPED, "public_model-de: runs of no date; 1 already have a run, and get no other"),
        (CREATED, "public_model-de: runs of 20260801"),
    ],
)
def test_dates_get_one_run_each(tmp_path: Path, says: str, answer: str) -> None:
    done, calls = asked(tmp_path, "1", says=says)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith(answer)
    words = "backfill create --dag-id public_model-de --from-date 2026-08-01 --to-date 2026-09-30"
    assert calls[1] == f"{words} --max-active-runs 1 --reprocess-behavior none"


@pytest.mark.parametrize(
    ("says", "answer"),
    [("x.AlreadyRunningBackfill: Another", "one is running"), ("Traceback\nValueError: no", "Airflow: ValueError: no")],
)
def test_what_airflow_refuses_is_said_in_a_line(tmp_path: Path, says: str, answer: str) -> None:
    done, _ = asked(tmp_path, "1", says=says, code=1)
    assert done.returncode == 1
    assert answer in done.stderr
    assert len(done.stderr.splitlines()) == 1
