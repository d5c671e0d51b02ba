"""A whole launch through the command line and through Airflow; nothing private leaves its folder."""

import json
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest
import yaml

from evaluation.audit import canaries
from federated.devices import store as population
from federated.participation.records import load_records
from federated.rounds.state import RECORDS
from pipeline.config import STAGE_NAMES, launch_id, load_launch
from pipeline.errors import PERMANENT
from tests.helpers.launches.command import AIRFLOW, ROOT, Launched, answered, environment, ledger_entries, tacit
from tests.helpers.launches.installed import installed
from tests.helpers.launches.tiny_launch import CLIENTS, SHARED_NEW, client_id, leaks, planted, write_launch
from tests.helpers.processes.forked import Forked

# Airflow's commands one after the other in one process: it takes seconds to load.
_IN_TURN = """
import json, sys
from airflow.__main__ import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["airflow", *arguments]
    main()
"""
NEEDLES = [planted(client) for client in range(CLIENTS)] + [client_id(client) for client in range(CLIENTS)]

pytestmark = [
    pytest.mark.slow,
    # MLflow's own code uses what SQLAlchemy 2.1 deprecates, and warns about type hints of its own.
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType.*:UserWarning"),
]


def test_every_stage_did_its_work(launched: Launched) -> None:
    assert launched.answer["launch_id"] == launched.run_id
    assert launched.answer["decision"] in ("launch", "hold")
    assert launched.answer["rho"] > 0
    assert launched.answer["epsilon"] > 0
    # Neither counts nor votes were asked for.
    for stage in set(STAGE_NAMES) - {"count", "vote"}:
        record = json.loads((launched.run / "public" / stage / "result.json").read_text(encoding="utf-8"))
        assert record["launch_id"] == launched.run_id
    assert (launched.run / "public" / "report" / "report.html").exists()
    spent = {entry["stage"] for entry in ledger_entries(launched.home) if entry["kind"] == "commit"}
    assert spent == {"discover", "fine_tune"}


def test_second_run_redoes_nothing_and_spends_nothing(launched: Launched, forked: Forked) -> None:
    before = {path: path.stat().st_mtime_ns for path in (launched.run / "public").rglob("*") if path.is_file()}
    entries = ledger_entries(launched.home)
    again = tacit(launched.home, "launch", str(launched.file), "--json", program=forked.tacit)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout) == launched.answer
    after = {path: path.stat().st_mtime_ns for path in (launched.run / "public").rglob("*") if path.is_file()}
    assert after == before
    assert ledger_entries(launched.home) == entries


def test_audit_and_ab_show_what_was_found(launched: Launched, forked: Forked) -> None:
    def shown(name: str, *more: str) -> subprocess.CompletedProcess:
        return tacit(launched.home, name, "--run", launched.run_id, *more, program=forked.tacit)

    audited, compared = shown("audit"), shown("ab")
    assert (audited.returncode, compared.returncode) == (0, 0), audited.stderr + compared.stderr
    assert "compliant: obey the timer" in audited.stdout
    assert "stress: always available, under no guarantee; on a twin that never ships" in audited.stdout
    assert "control without noise, 4 copies: 2 of 2 found" in audited.stdout
    assert "champion: none, nothing was published before" in compared.stdout
    assert "private minus start within " in compared.stdout
    assert "prate" in compared.stdout
    assert "words_modified" in shown("ab", "--feature", "OTF").stdout
    wrong = shown("ab", "--feature", "swipe", "--json")
    assert wrong.returncode == 65
    assert "choose one of NWP, SC, OTF" in json.loads(wrong.stdout)["error"]


def test_the_launched_model_trained_on_no_canary_that_is_on_the_twin(launched: Launched) -> None:
    """By the records, which the audit of trained rows holds against what was trained on."""

    def result(stage: str) -> dict:
        return json.loads((launched.run / "public" / stage / "result.json").read_text(encoding="utf-8"))["result"]

    held, apart = (canaries.load(launched.run / "public" / stage / "canaries.json") for stage in ("fine_tune", "audit"))
    assert {canary.population for canary in held.canaries} == {"compliant"}
    assert {canary.population for canary in apart.canaries} == {"stress"}
    store = population.open_store(launched.run / "private" / "ingest_private" / "store")
    devices = len(store.devices("train")) + len(held.devices)
    trained = load_records(launched.run / "private" / "fine_tune" / "rounds" / RECORDS, 3)
    assert trained.devices_N.max() < devices
    assert result("fine_tune")["synthetic_devices"] == len(held.devices) == 2
    audited = result("audit")
    assert (audited["in_launch"], audited["twin"]["populations"]) == (["compliant"], ["stress"])
    (rows,) = (row for row in audited["audits"] if row["type"] == "trained_rows")
    assert rows["passed"] is True


def test_nothing_private_outside_the_private_folder(launched: Launched) -> None:
    private = launched.run / "private"
    assert private.stat().st_mode & 0o777 == 0o700
    kept_private = leaks([private], {}, NEEDLES)
    assert any(planted(0) in found for found in kept_private), "the search must find what is there"
    assert any(client_id(0) in found for found in kept_private)

    places = [path for path in (launched.home / "runs").iterdir() if path != launched.run and path.is_dir()]
    places.append(launched.run / "public")
    files = {
        path.name: path.read_bytes().decode("latin-1") for path in (launched.home / "runs").iterdir() if path.is_file()
    }
    assert any(name.endswith(".db") for name in files), "MLflow's database must be among what is searched"
    assert not leaks(places, files | {"console": launched.console}, NEEDLES)


@pytest.mark.usefixtures("forked_python")
def test_report_verifies_and_a_changed_record_does_not(launched: Launched) -> None:
    assert answered(launched.home, "verify", launched.run_id)["ok"]
    disclosure = launched.run / "public" / "report" / "disclosure.json"
    original = disclosure.read_text(encoding="utf-8")
    try:
        disclosure.write_text(original.replace('"rho"', '"rho" ', 1), encoding="utf-8")
        assert not answered(launched.home, "verify", launched.run_id, code=PERMANENT)["ok"]
    finally:
        disclosure.write_text(original, encoding="utf-8")


def test_changed_privacy_parameter_is_a_new_launch_that_spends_on_training_alone(
    launched: Launched, forked: Forked
) -> None:
    content = yaml.safe_load(launched.file.read_text(encoding="utf-8"))
    content["mechanism"]["noise_multiplier"] *= 2
    changed = launched.home / "changed.yaml"
    changed.write_text(yaml.safe_dump(content), encoding="utf-8")
    before, run_id = ledger_entries(launched.home), launch_id(load_launch(changed))
    assert run_id != launched.run_id
    told = answered(launched.home, "check", str(changed))["reuse"]
    expected = {"ingest_public", "ingest_private", "pretrain", "discover", "build_vocabulary", "adapt"}
    assert {(each["stage"], each["launch_id"], each["problem"]) for each in told} == {
        (stage, launched.run_id, "") for stage in expected
    }
    # In processes of their own: MLflow keeps the registry of the first home that a process opened.
    done = tacit(launched.home, "launch", str(changed), "--json", program=forked.tacit)
    assert done.returncode == 0, done.stderr
    added = ledger_entries(launched.home)[len(before) :]
    spent = {(entry["stage"], entry["kind"]) for entry in added if entry["kind"] in ("reserve", "commit", "reuse")}
    assert spent == {("fine_tune", "reserve"), ("fine_tune", "commit"), ("discover", "reuse")}
    assert {entry["launch_id"] for entry in added} == {run_id}
    public = launched.home / "runs" / run_id / "public"
    records = [json.loads(path.read_text(encoding="utf-8")) for path in public.glob("*/result.json")]
    assert {record["stage"] for record in records if "reused_from" in record} == expected
    report = (public / "report" / "report.md").read_text(encoding="utf-8")
    assert f"They were discovered by launch `{launched.run_id}` on the same text" in report
    stated = json.loads((public / "report" / "disclosure.json").read_text(encoding="utf-8"))
    assert [row["launch_id"] for row in stated["reused"]] == [launched.run_id]
    assert stated["discovery"]["epsilon0"] == content["discovery"]["epsilon0"] == stated["reused"][0]["epsilon"]
    verified = json.loads(tacit(launched.home, "verify", run_id, "--json", program=forked.tacit).stdout)
    assert verified["ok"], [check for check in verified["checks"] if not check["passed"]]
    assert "reuse:discover" in {check["id"] for check in verified["checks"]}


def test_a_hold_on_made_up_typists_has_its_report_and_publishes_nothing(tmp_path: Path, forked: Forked) -> None:
    population = {
        "source": "synthetic",
        "name": "made-up",
        "devices": 90,
        "max_words_per_device": 60,
        "test_fraction": 0.35,
    }
    policy = {
        "max_rho": 2.0,
        "population_max_rho": 5.0,
        "max_discovery_epsilon0": 8.0,
        "min_canary_rank": 1,
        "min_top1_gain": 0.99,
        "max_top3_loss": 1.0,
    }
    audit = {"users": [1], "examples": [1, 4], "repeats": 1, "directions": 64, "sentences_per_device": 10}
    audit |= {"random_continuations": 10_000, "populations": ["compliant", "stress"]}
    compared = {"buckets": 5, "non_private_upper_bound": True}
    file = write_launch(tmp_path, private_text=population, policy=policy, audit=audit, ab_test=compared)
    installed(tmp_path)
    # In a process of its own: MLflow keeps the registry of the first home that a process opened.
    answer = json.loads(tacit(tmp_path, "launch", str(file), "--json", program=forked.tacit).stdout)
    assert answer["decision"] == "hold"
    assert "gain in top-1 recall" in " ".join(answer["reasons"])
    public = tmp_path / "runs" / answer["launch_id"] / "public"
    page = (public / "report" / "report.html").read_text(encoding="utf-8")
    assert "on hold. Nothing was published" in page
    assert "population is synthetic" in page
    assert "Under stress" in page
    assert "trained without privacy, simulation only" in page
    # What was trained without noise is compared and gone: no weights, no checkpoint.
    kept = tmp_path / "runs" / answer["launch_id"] / "private" / "ab_test"
    assert [path.name for path in kept.iterdir()] == [".lock"]
    assert not json.loads((public / "publish" / "result.json").read_text(encoding="utf-8"))["result"]["published"]
    assert not list((public / "publish").glob("bundle*"))
    with sqlite3.connect(tmp_path / "runs" / "mlflow.db") as database:
        assert database.execute("select count(*) from registered_models").fetchone() == (0,)
        # The launch's own, and one a stage but count and vote.
        assert database.execute("select count(*) from runs").fetchone()[0] >= len(STAGE_NAMES) - 1


@pytest.mark.skipif(not AIRFLOW.exists(), reason="the Airflow environment is not built; run `make setup`")
def test_same_launch_through_the_dag(tmp_path: Path, forked: Forked) -> None:
    file = write_launch(tmp_path)
    installed(tmp_path, "tiny-clients")
    airflow_home = tmp_path / "airflow"
    settings = subprocess.run(
        ["bash", "-c", "set -a; . dags/airflow.env; env -0"],
        cwd=ROOT,
        env={},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    shared = dict(line.split("=", 1) for line in settings.split("\0") if line.startswith("AIRFLOW__"))
    variables = environment(
        tmp_path,
        **shared,
        AIRFLOW_HOME=str(airflow_home),
        AIRFLOW__CORE__DAGS_FOLDER=str(ROOT / "dags"),
        TACIT_LAUNCHES=str(file),
        TACIT_BIN=str(forked.tacit),
    )

    pools = str(ROOT / "dags" / "pools.json")
    commands = [["db", "migrate"], ["pools", "import", pools], ["dags", "test", "tiny"]]
    done = subprocess.run(
        [AIRFLOW.with_name("python"), "-c", _IN_TURN, json.dumps(commands)],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    console = done.stdout + done.stderr
    assert done.returncode == 0, console[-8000:]

    run_id = launch_id(load_launch(file))
    decision = json.loads((tmp_path / "runs" / run_id / "public" / "decide" / "result.json").read_text())["result"]
    with sqlite3.connect(airflow_home / "airflow.db") as database:
        values = dict(database.execute("select task_id, value from xcom").fetchall())
    assert decision["decision"] in values["decide"]
    assert not any(word in "".join(values.values()) for word in SHARED_NEW), "XCom carries numbers, not words"

    shutil.rmtree(tmp_path / "runs" / run_id / "private")
    file.unlink()
    (tmp_path / "clients.parquet").unlink()
    assert not leaks([tmp_path], {"console": console}, NEEDLES)
