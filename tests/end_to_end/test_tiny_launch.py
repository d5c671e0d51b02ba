"""A whole launch through the command line and through Airflow; nothing private leaves its folder."""

import json
import re
import sqlite3
import subprocess
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

import tacit as library
from discovery.participation import group_sizes
from evaluation.audit import canaries
from federated.devices import store as population
from federated.participation.records import by_the_rule, load_records
from federated.rounds.rule import RoundRule
from federated.rounds.state import RECORDS
from pipeline.ground.errors import HELD, PERMANENT
from pipeline.launch.config import launch_id, load_launch
from pipeline.stages.graph import STAGES
from pipeline.telemetry.allowed import ATTRIBUTES, METRICS
from pretrain.text import vocabulary
from tests.helpers.launches.command import AIRFLOW, ROOT, Launched, answered, environment, ledger_entries, tacit
from tests.helpers.launches.installed import keyed
from tests.helpers.launches.tiny_launch import CLIENTS, SHARED_NEW, client_id, leaks, planted
from tests.helpers.processes.forked import Forked
from tests.helpers.processes.telemetry_console import signals_on

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
    assert launched.answer["rho"] is None, "words found locally have none"
    assert launched.answer["epsilon"] > 0
    # Counts were not asked for.
    for stage in set(STAGES) - {"count"}:
        record = json.loads((launched.run / "public" / stage / "result.json").read_text(encoding="utf-8"))
        assert record["launch_id"] == launched.run_id
    report = launched.run / "public" / "report"
    assert (report / "report.html").exists()
    assert (report / "report.pdf").read_bytes().startswith(b"%PDF")
    if launched.answer["decision"] == "launch":
        record = yaml.safe_load((report / "opendp_registry.yaml").read_text(encoding="utf-8"))
        assert record["url_slug"] == launched.run_id
        card = launched.run / "public" / "publish" / "bundle" / "README.md"
        assert card.read_bytes() == (report / "README.md").read_bytes()
    spent = {entry["stage"] for entry in ledger_entries(launched.home) if entry["kind"] == "commit"}
    assert spent == {"discover", "fine_tune"}


def test_second_run_redoes_nothing_and_spends_nothing(launched: Launched, forked: Forked) -> None:
    before = {path: path.stat().st_mtime_ns for path in (launched.run / "public").rglob("*") if path.is_file()}
    entries = ledger_entries(launched.home)
    again = tacit(launched.home, "launch", str(launched.file), "--json", program=forked.tacit)
    assert again.returncode == (HELD if launched.answer["decision"] == "hold" else 0), again.stderr
    assert json.loads(again.stdout) == launched.answer
    after = {path: path.stat().st_mtime_ns for path in (launched.run / "public").rglob("*") if path.is_file()}
    assert after == before
    assert ledger_entries(launched.home) == entries


def test_the_library_reads_resumes_and_simulates_without_a_spend(
    launched: Launched, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(launched.home).items():
        monkeypatch.setenv(name, value)
    before = ledger_entries(launched.home)
    audited, compared = library.audit(launched.run_id), library.compare(launched.file)
    assert str(audited).startswith("canaries among")
    assert "not inferior" in str(compared)
    # A second call on the launch's own people finds the stages done.
    ended = library.launch(launched.file)
    assert ended.value.launch_id == launched.run_id
    found, trained = library.discover(launched.file), library.fine_tune(launched.file)
    assert found.value["words_found"] >= len(found.words) == 0
    assert (trained.curve[0][0], trained.model) == (0, None)
    people = launched.home / "clients.parquet"
    guessed, again = (library.discover(launched.file, people, seed=seed) for seed in (1, 1))
    assert str(guessed).startswith("Simulation")
    assert guessed == again
    assert {word for word, *_ in guessed.words} & set(SHARED_NEW)
    played = library.fine_tune(launched.file, pd.read_parquet(people), seed=1)
    assert played.curve[-1][0] == trained.curve[-1][0]
    assert f"rho {played.value['rho']:.4g}" in str(played)
    for each in (audited, compared, ended, trained, guessed, played):
        assert each.plot().figure.axes
    assert ledger_entries(launched.home) == before


def test_audit_and_ab_show_what_was_found(launched: Launched, forked: Forked) -> None:
    def shown(name: str, *more: str) -> subprocess.CompletedProcess:
        return tacit(launched.home, name, launched.run_id, *more, program=forked.tacit)

    audited, compared = shown("audit"), shown("ab")
    assert (audited.returncode, compared.returncode) == (0, 0), audited.stderr + compared.stderr
    assert "compliant: obey the timer" in audited.stdout
    assert "stress: always available, under no guarantee; on a twin that never ships" in audited.stdout
    assert "control without noise, 10 copies: 2 of 2 found" in audited.stdout
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
    assert rows["verdict"] == "passed"
    assert result("decide")["not_repeated"] == ["ingest_public", "audit: twin"]


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
    assert '"name": "tacit.stage"' in launched.console, "spans and metrics, too"
    lines = [json.loads(line) for line in launched.console.splitlines() if line.startswith('{"')]
    assert {"ingest_public", "fine_tune", "publish"} <= {line.get("stage") for line in lines}, "and log lines"
    assert not leaks(places, files | {"console": launched.console}, NEEDLES)


def test_exact_numbers_follow_from_nothing_that_leaves(launched: Launched) -> None:
    """By somebody who has the launch file and its seed, every public file, the log, the spans and MLflow's database."""
    config, public = load_launch(launched.file), launched.run / "public"

    def result(stage: str) -> dict:
        return json.loads((public / stage / "result.json").read_text(encoding="utf-8"))["result"]

    store = population.open_store(launched.run / "private" / "ingest_private" / "store")
    train, synthetic = len(store.devices("train")), result("fine_tune")["synthetic_devices"]
    tens = result("ingest_private")["devices_by_split"]["train"]
    assert tens == train // 10 * 10 != train
    # The seed does not draw who took part, so no number of devices is found by drawing again.
    rule = RoundRule(config.mechanism.model_copy(update={"randomness": "seeded"}), config.seed)
    synthetic_D = np.arange(train + synthetic) >= train
    by_the_seed, _ = by_the_rule(rule.cohorts(synthetic_D), config.mechanism.rounds)
    recorded = load_records(launched.run / "private" / "fine_tune" / "rounds" / RECORDS)
    rounds = zip(by_the_seed.cohorts, recorded.cohorts, strict=True)
    assert not any(np.array_equal(drawn, joined) for (_, drawn), (_, joined) in rounds)
    known = frozenset(vocabulary.load(public / "ingest_public" / "vocabulary.json").words)
    (sizes,) = {tuple(group_sizes(devices, config.discovery, known)) for devices in range(tens, tens + 10)}
    messages = config.discovery.messages_per_device
    rows = result("discover")["layers"]
    assert [row["messages"] for row in rows] == [size // 10 * 10 * messages for size in sizes][: len(rows)]

    # Exact numbers that are too large to stand there by chance, wherever somebody could read them.
    split_N = np.repeat(store.split_D, np.diff(store.words.offsets_D1))
    folder = launched.run / "private" / "ingest_private" / "store"
    exact = {"rows": 12 * CLIENTS, "words": len(split_N), "words that train": int(np.sum(split_N == 0))}
    exact |= {f"bytes of {path.name}": path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    read = [launched.console, *(path.read_text("utf-8", "replace") for path in public.rglob("*") if path.is_file())]
    with sqlite3.connect(launched.home / "runs" / "mlflow.db") as database:
        read += [f" {value:.0f} " for (value,) in database.execute("select value from metrics")]
        read += [f" {value} " for (value,) in database.execute("select value from params")]
    seen = {number.replace(",", "") for text in read for number in re.findall(r"(?<![\w.,-])\d[\d,]*(?![\w.])", text)}
    assert {str(tens), "15"} <= seen, "the search finds what is there"
    found = {name for name, number in exact.items() if number >= 500 and str(number) in seen}
    assert not found
    assert len(exact) - len(found) >= 5
    lines = [json.loads(line) for line in launched.console.splitlines() if line.startswith('{"')]
    assert all(datetime.fromisoformat(line["time"]).microsecond == 0 for line in lines if "time" in line)


def test_spans_and_metrics_are_those_on_the_list(launched: Launched) -> None:
    seen = signals_on(launched.console)
    # Counts were not asked for.
    assert [span["stage"] for span in seen.spans] == [name for name in STAGES if name != "count"]
    beside = {"trace_id", "span_id", "status", "microseconds"}
    assert {name for span in seen.spans for name in span} - ATTRIBUTES.keys() == beside
    assert {name for name, _, _ in seen.metrics} <= METRICS.keys()
    done = [value for name, value, labels in seen.metrics if name == "tacit.rounds.done"]
    assert max(done) == 3
    (lost,) = {value for name, value, _ in seen.metrics if name == "tacit.loss.epsilon"}
    assert lost == launched.answer["epsilon"]
    assert "tacit.loss.rho" not in {name for name, _, _ in seen.metrics}, "words found locally have none"


@pytest.mark.usefixtures("forked_python")
def test_all_but_a_changed_report_verifies(launched: Launched, monkeypatch: pytest.MonkeyPatch) -> None:
    disclosure = launched.run / "public" / "report" / "disclosure.json"
    paper = disclosure.with_name("report.pdf")
    original, printed = disclosure.read_text(encoding="utf-8"), paper.read_bytes()
    # To print takes a quarter of a launch; tests/reports/test_paper.py sees that it gives the same bytes again.
    monkeypatch.setattr("pipeline.verify.report.printed", lambda *_: printed)
    try:
        disclosure.write_text(original.replace('"rho"', '"rho" ', 1), encoding="utf-8")
        paper.write_bytes(printed + b"\n")
        verified = answered(launched.home, "verify", launched.run_id, code=PERMANENT)
        assert not verified["ok"]
        wrong = {check["id"] for check in verified["checks"] if not check["passed"]}
        # MLflow's copy on this file system is the same file.
        same = {"tracked:report"}
        assert wrong == {"files:report", "disclosure", "rendered:pdf", "proof:statement", "sources:report"} | same
        # Other fonts would print otherwise, too.
        assert [check["passed"] for check in verified["checks"] if check["id"] == "rendered:pdf"] == [None]
    finally:
        disclosure.write_text(original, encoding="utf-8")
        paper.write_bytes(printed)


def count(home: Path, table: str) -> int:
    """Rows of a table of MLflow's."""
    with sqlite3.connect(home / "runs" / "mlflow.db") as database:
        return database.execute(f"select count(*) from {table}").fetchone()[0]


def held_through_airflow(home: Path, file: Path, forked: Forked) -> str:
    """Launch a file by its DAG, without a server; what Airflow wrote to its console. A held run is not green."""
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
        home,
        **shared,
        AIRFLOW_HOME=str(home / "airflow"),
        AIRFLOW__CORE__DAGS_FOLDER=str(ROOT / "dags"),
        TACIT_LAUNCHES=str(file),
        TACIT_BIN=str(forked.tacit),
    )
    pools = str(ROOT / "dags" / "pools.json")
    commands = [["db", "migrate"], ["pools", "import", pools], ["dags", "test", file.stem]]
    done = subprocess.run(
        [AIRFLOW.with_name("python"), "-c", _IN_TURN, json.dumps(commands)],
        cwd=home,
        env=variables,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 1, (done.stdout + done.stderr)[-8000:]
    return done.stdout + done.stderr


@pytest.mark.skipif(not AIRFLOW.exists(), reason="the Airflow environment is not built; run `make setup`")
def test_changed_privacy_parameter_is_a_new_launch_that_spends_on_training_alone_and_is_held(
    launched: Launched, forked: Forked
) -> None:
    """Through the DAG, which carries nothing private either."""
    content = yaml.safe_load(launched.file.read_text(encoding="utf-8"))
    content["mechanism"]["noise_multiplier"] *= 2
    content["policy"]["min_top1_gain"] = 0.99
    changed = launched.home / "changed.yaml"
    changed.write_text(yaml.safe_dump(content), encoding="utf-8")
    keyed(launched.home / "runs", changed)
    before, run_id = ledger_entries(launched.home), launch_id(load_launch(changed))
    registered = count(launched.home, "model_versions")
    assert run_id != launched.run_id
    told = answered(launched.home, "check", str(changed))["reuse"]
    # The store of devices too; but to say so would say that no device typed a word since.
    expected = {"ingest_public", "pretrain", "discover", "build_vocabulary", "adapt"}
    assert {(each["stage"], each["launch_id"], each["problem"]) for each in told} == {
        (stage, launched.run_id, "") for stage in expected
    }

    console = held_through_airflow(launched.home, changed, forked)
    added = ledger_entries(launched.home)[len(before) :]
    spent = {(entry["stage"], entry["kind"]) for entry in added if entry["kind"] in ("reserve", "commit", "reuse")}
    assert spent == {("fine_tune", "reserve"), ("fine_tune", "commit"), ("discover", "reuse")}
    assert {entry["launch_id"] for entry in added} == {run_id}
    public = launched.home / "runs" / run_id / "public"
    records = {path.parent.name: json.loads(path.read_text("utf-8")) for path in public.glob("*/result.json")}
    assert {stage for stage, record in records.items() if "reused_from" in record} == expected
    report = (public / "report" / "report.md").read_text(encoding="utf-8")
    assert f"is reused from launch `{launched.run_id}`" in report
    stated = json.loads((public / "report" / "disclosure.json").read_text(encoding="utf-8"))
    assert [row["launch_id"] for row in stated["reused"]] == [launched.run_id]
    (words,) = (release for release in stated["releases"] if release["name"] == "local_words")
    assert words["epsilon0"] == content["discovery"]["epsilon0"] == stated["reused"][0]["epsilon"]

    decision = records["decide"]["result"]
    assert decision["decision"] == "hold"
    assert "gain in top-1 recall" in " ".join(decision["reasons"])
    page = (public / "report" / "report.html").read_text(encoding="utf-8")
    assert "on hold. Nothing was published" in page
    assert "Under stress" in page
    assert not list(public.glob("publish/bundle*"))
    assert count(launched.home, "model_versions") == registered
    verified = json.loads(tacit(launched.home, "verify", run_id, "--json", program=forked.tacit).stdout)
    assert verified["ok"], [check for check in verified["checks"] if not check["passed"]]
    assert "reuse:discover" in {check["id"] for check in verified["checks"]}

    with sqlite3.connect(launched.home / "airflow" / "airflow.db") as database:
        values = dict(database.execute("select task_id, value from xcom").fetchall())
    assert decision["decision"] in values["decide"]
    assert not any(word in "".join(values.values()) for word in SHARED_NEW), "XCom carries numbers, not words"
    runs = launched.home / "runs"
    places = [launched.home / "airflow", public, *runs.glob("mlflow-artifacts*")]
    files = {path.name: path.read_bytes().decode("latin-1") for path in runs.iterdir() if path.is_file()}
    assert not leaks(places, files | {"console": console}, NEEDLES)
