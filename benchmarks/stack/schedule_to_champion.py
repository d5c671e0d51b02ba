"""From a schedule to a champion on real servers: two dates, a reviewer, two live experiments, both decisions.

    .venv/stages/bin/python -m benchmarks.stack.schedule_to_champion

The schedule's latest date is launched first and promoted; then a date that passed, by what `make backfill` runs, whose
experiment is lost. Nothing stands in for anything but people: typists are simulated, and days are those before
publication, as for any simulated population. Each step is printed with the seconds since the start and what was seen;
exit 1 if one of them is not what it should be.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.experiments import logs
from tests.helpers.launches.tiny_launch import MECHANISM, POLICY
from tests.helpers.processes.forked import begun
from tests.helpers.processes.server import latest_monthly, until
from tests.helpers.processes.stack import DAG, REVIEWER, Stack, stack

PUBLIC, EXPERIMENT = f"public_model-{DAG}", f"experiment-{DAG}"
MODEL = "simulated-keyboard-en-US-NWP"
# No reviewer. Two persons cannot be told apart here: one account runs the whole stack.
OTHER = "admin"
PATIENCE = 1200.0  # seconds for each wait, on a machine that does other things too
PASSED = ("2026-02-10", "2026-03-20", "20260301")
LAUNCH = {
    "schedule": "@monthly",
    "reviewers": [REVIEWER],
    "private_text": {
        "source": "synthetic",
        "name": "tiny-clients",
        "devices": 80,
        "max_words_per_device": 60,
        "test_fraction": 0.35,
    },
    "mechanism": MECHANISM | {"noise_multiplier": 8.0, "randomness": "secure"},
    # Small steps, so that the gates let it pass.
    "server": {"learning_rate": 0.05},
    "policy": POLICY,
    "experiment": {"share": 0.5, "days": 3, "min_gain": -0.5},
}


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with (
        tempfile.TemporaryDirectory() as meeting,
        stack(begun(Path(meeting), os.getpid()).tacit, **LAUNCH) as servers,
    ):
        show = Show(servers)
        show.scheduled()
        show.backfilled()
    return 1 if show.differences else 0


class Show:
    """The steps, one after the other, and a line of what each has seen."""

    def __init__(self, servers: Stack) -> None:
        self.servers = servers
        self.file = f"{servers.environment['TACIT_LAUNCHES']}/{DAG}.yaml"
        self.begun, self.differences = time.monotonic(), 0
        self.latest = f"{latest_monthly(DAG):%Y%m%d}"

    def step(self, what: str, seen: Any, expected: Any) -> None:
        right = seen == expected
        self.differences += not right
        said = seen if right else f"DIFFERS: {seen!r}, not {expected!r}"
        print(f"| {time.monotonic() - self.begun:4.0f} s | {what} | {said} |", flush=True)

    def scheduled(self) -> None:
        """The schedule's latest date, from switching it on to everybody's."""
        dags = until(lambda: self.on(), PATIENCE)
        self.step("switched on at first", dags, {DAG: False, PUBLIC: False, EXPERIMENT: True})
        words = ("backfill", self.file, *PASSED[:2])
        refused = self.servers.command(*words, "1").stderr.strip()
        self.step("backfill of what is paused", refused.partition(", so")[0], f"backfill: {PUBLIC}, {DAG}: paused")
        for name in (DAG, PUBLIC):
            self.servers.airflow.api("PATCH", f"/dags/{name}", {"is_paused": False})
        first = self.launched(self.latest)
        self.experiment(first, picks=1.0, decision="promote", now={"champion": "1"})

    def backfilled(self) -> None:
        """A date that passed, asked for twice, whose experiment takes it back."""
        words = ("backfill", self.file, *PASSED[:2])
        said = self.servers.done(*words)
        self.step("forecast", f"-{PASSED[2]}: rho 0.02344" in said and "nothing runs yet" in said, True)
        said = self.servers.done(*words, "1")
        self.step("asked for", said.splitlines()[-1], f"{PUBLIC}: runs of {PASSED[2]}")
        second = self.launched(PASSED[2])
        spent = self.spends()
        said = self.servers.done(*words, "1")
        # Of words that another launch found the forecast still says what finding them would cost at worst.
        seen = (f"-{PASSED[2]}: rho 0, " in said, "runs of no date; 1 already have a run" in said)
        self.step("asked for again: nothing to train, no run", seen, (True, True))
        self.experiment(second, picks=0.2, decision="roll back", now={"champion": "1"})
        self.step("launches of", sorted(self.runs(DAG)), sorted([self.latest, PASSED[2]]))
        self.step("nothing was spent again", self.spends(), spent)
        self.servers.done("tacit", "site")
        page = self.servers.home / "runs" / "index.html"
        said = page.read_text(encoding="utf-8")
        self.step("the site says", [word in said for word in ("since then", "rolled back", "published")], [True] * 3)

    def launched(self, date: str) -> str:
        """From the public model to publication: its reviewer answers; returns the launch's id."""
        run = until(lambda: self.runs(DAG).get(date), PATIENCE)
        until(lambda: self.servers.state(run, "approve") == "awaiting_input" or self.servers.ended(run), PATIENCE)
        launch_id = self.result(run, "check")["launch_id"]
        self.step(f"{date}: the asset began", launch_id.rpartition("-")[2], date)
        time.sleep(4)  # an answer that comes at once may meet the task before it is parked
        self.step("another user's answer", self.refused(run), 403)
        self.servers.answer(run)
        state = until(lambda: self.servers.ended(run), PATIENCE)
        self.step(
            f"{date}: launch", (state, set(self.servers.airflow.states(DAG, run).values())), ("success", {"success"})
        )
        entries = [each for each in self.servers.tacit("ledger", "show")["entries"] if each["launch_id"] == launch_id]
        spends = [each["stage"] for each in entries if each["kind"] in ("commit", "reuse")]
        by = [json.loads(each["binding"])["account"] for each in entries if each["kind"] == "review"]
        self.step("spent once, approved by", (len(spends) == len(set(spends)), by), (True, [f"airflow:{REVIEWER}"]))
        return launch_id

    def experiment(self, launch_id: str, picks: float, decision: str, now: dict[str, str]) -> None:
        """From publication to the decision; those with the model pick so many times as often as simulated."""
        run = until(lambda: self.runs(EXPERIMENT).get(launch_id), PATIENCE)
        until(lambda: self.servers.state(run, "logs", EXPERIMENT) == "up_for_reschedule", PATIENCE)
        version = now["champion"] if decision == "promote" else "2"
        self.step("aliases while it waits", self.aliases(), {"experiment": version} | (now if version == "2" else {}))
        files = self.servers.tacit("experiment", "simulate", launch_id)["files"]
        for name in files:
            picked_less(Path(name), picks)
        body = {"dry_run": False, "only_failed": False, "task_ids": ["logs"], "dag_run_id": run}
        self.servers.airflow.api("POST", f"/dags/{EXPERIMENT}/clearTaskInstances", body)
        state = until(lambda: self.servers.ended(run, EXPERIMENT), PATIENCE)
        self.step("experiment", (state, self.result(run, "settle", EXPERIMENT)["decision"]), ("success", decision))
        self.step("aliases", self.aliases(), now)
        state = {"promote": "published", "roll back": "rolled back"}[decision]
        self.step("the launch is", self.servers.tacit("review", launch_id)["state"], state)
        runs = self.servers.home / "runs"
        badge = (runs / launch_id / "public" / "launch" / "state.svg").read_text(encoding="utf-8")
        self.step("its report's badge", state in badge, True)

    def on(self) -> dict[str, bool]:
        """DAGs of the launch, and those of them that are switched on, once all are known."""
        dags = {dag["dag_id"]: not dag["is_paused"] for dag in self.servers.airflow.api("GET", "/dags")["dags"]}
        wanted = (DAG, PUBLIC, EXPERIMENT)
        return {name: dags[name] for name in wanted} if dags.keys() >= set(wanted) else {}

    def runs(self, dag: str) -> dict[str, str]:
        """Ids of a DAG's runs by partition."""
        listed = self.servers.airflow.api("GET", f"/dags/{dag}/dagRuns")["dag_runs"]
        return {run["partition_key"]: run["dag_run_id"] for run in listed}

    def result(self, run: str, task: str, dag: str = DAG) -> dict[str, Any]:
        path = f"/dags/{dag}/dagRuns/{quote(run, safe='')}/taskInstances/{task}/xcomEntries/return_value"
        value = self.servers.airflow.api("GET", path)["value"]
        return json.loads(value) if isinstance(value, str) else value

    def spends(self) -> list[str]:
        """Spends of a population, launch by launch."""
        entries = self.servers.tacit("ledger", "show")["entries"]
        return [f"{each['launch_id']} {each['stage']}" for each in entries if each["kind"] == "commit"]

    def refused(self, run: str) -> int:
        """The code with which the question refuses an answer of another user."""
        try:
            self.servers.answer(run, by=OTHER)
        except HTTPError as error:
            return error.code
        return 200

    def aliases(self) -> dict[str, str]:
        """Versions behind what users and devices in an experiment have."""
        model = self.servers.mlflow("registered-models/get", name=MODEL)["registered_model"]
        every = {each["alias"]: each["version"] for each in model.get("aliases", [])}
        return {name: every[name] for name in ("champion", "experiment") if name in every}


def picked_less(path: Path, picks: float) -> None:
    """Logs in which users with the model pick ``picks`` times as often."""
    rows = pq.read_table(path)
    treated = pc.equal(rows["arm"], logs.TREATMENT)
    fewer = pc.cast(pc.floor(pc.multiply(pc.cast(rows["picked"], pa.float64()), picks)), pa.int64())
    column = rows.schema.get_field_index("picked")
    logs.write(rows.set_column(column, "picked", pc.if_else(treated, fewer, rows["picked"])), path, simulated=True)


if __name__ == "__main__":
    sys.exit(main())
