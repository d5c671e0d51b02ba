"""First steps of a stack, each once: databases, Airflow's tables and pools, the privacy ledger and its populations.

Interrupted, it resumes; later starts repeat it only after an upgrade of Airflow or a change of the pools.
"""

import hashlib
import os
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import places
from launch_file import fields
from places import ROOT, Places
from tacit_environment import of_review


def run(place: Places, secret: Mapping[str, str]) -> None:
    """Raises CalledProcessError if a step failed, after a pause, as supervisor repeats it at once."""
    try:
        steps(place, secret)
    except subprocess.CalledProcessError:
        time.sleep(10)
        raise


def steps(place: Places, secret: Mapping[str, str]) -> None:
    made = place.home / "databases-made"
    if not made.is_file():
        host, port = place.address("POSTGRES").split(":")
        login = {"POSTGRES_USER": "postgres", "PGPASSWORD": secret["POSTGRES_PASSWORD"], "PGHOST": host, "PGPORT": port}
        script = ["sh", str(ROOT / "docker" / "databases.sh")]
        subprocess.run(script, env={"PATH": os.environ["PATH"], **login, **secret}, check=True)
        made.touch()
    if not migrated(place):
        airflow = places.environment_of(place, "airflow")
        *shell, script = places.compose_service("setup")["entrypoint"]
        script = script.replace("dags/pools.json", shlex.quote(str(pools_file())))
        subprocess.run([*shell, script], env=airflow, cwd=ROOT, check=True)
        (place.home / "migrated").write_text(_tables(), encoding="utf-8")
    if not done(place):
        variables = of_review(places.environment_of(place, "worker-cpu"))
        program = variables.get("TACIT_BIN") or str(places.STAGES_BIN / "tacit")
        launches = Path(variables.get("TACIT_LAUNCHES") or ROOT / "dags" / "launches")
        for words in (["init"], *registrations(launches)):
            # The keys of the witness are made beside those of the ledger, before it serves.
            own = variables | {"TACIT_WITNESS": str(place.witness)}
            subprocess.run([program, "ledger", *words], env=own, check=True)
        (place.home / "ledger-made").touch()


def migrated(place: Places) -> bool:
    note = place.home / "migrated"
    return note.is_file() and note.read_text(encoding="utf-8") == _tables()


def done(place: Places) -> bool:
    return (place.home / "ledger-made").is_file()


def registrations(launches: Path) -> Iterator[list[str]]:
    """Words of `tacit ledger` for each population of people whose launch file states a budget (``policy.budget``)."""
    for path in sorted(launches.glob("*.yaml")) if launches.is_dir() else [launches]:
        try:
            launch = fields(path)
            text, policy = launch["private_text"], launch["policy"]
            if text["source"] != "files" or "budget" not in policy:
                continue
            rho, days = (str(policy["budget"][name]) for name in ("rho", "days"))
            reviewers = [word for name in launch.get("reviewers", ()) for word in ("--reviewer", name)]
            delta, of_device = str(policy["population_delta"]), policy.get("population_max_words_epsilon")
            words = policy.get("population_max_discovery_epsilon")
        except (ValueError, KeyError, TypeError):
            continue  # no launch file yet; its DAG states the fault
        limits = ["--max-rho", rho, "--delta", delta, "--window-days", days]
        limits += reviewers or ["--min-approvals", "0"]
        limits += ["--max-words-epsilon", str(of_device)] if of_device else []
        yield ["register", text["name"], *limits, *(["--max-discovery-epsilon", str(words)] if words else [])]


def pools_file() -> Path:
    """File of the deployment's pools, as compose mounts it."""
    return ROOT / (os.environ.get("POOLS") or "dags/pools.json")


def _tables() -> str:
    sources = [ROOT / "requirements" / "airflow.lock", pools_file()]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
