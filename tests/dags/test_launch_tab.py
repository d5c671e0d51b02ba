"""The tab on a run: who may see it, what it shows, and that it sends nothing else."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from fastapi.testclient import TestClient

from .conftest import ROOT

pytestmark = pytest.mark.timeout(300)

LAUNCH = "demo-0123abcd"
PAGE = "/demo/runs/manual__1/"
GATE = {"id": "utility", "title": "gain in top-1 recall", "evidence": "0 of <b>1</b>", "passed": False}
SPENT = {"rho": 0.0938, "epsilon": 9.93, "delta": 1.25e-6, "guarantee": "9.93 (local words 8.00)"}
SPENT["loss"] = "epsilon 9.93 (local words 8.00) at delta 1.25e-06"
RESULTS = {
    "fine_tune": {"rho": 0.09375, "epsilon": 1.92535, "delta": 1e-6},
    "decide": {"decision": "hold", "reasons": ["no gain"], "gates": [GATE], "headline": SPENT | {"decision": "hold"}},
    "ab_test": {
        "champion": {"arm": "champion", "version": 3, "launch_id": "demo-89abcdef"},
        "differences": [
            {"metric": "prate", "candidate": "private", "baseline": arm, "value": value, "low": -0.01, "high": 0.02}
            for arm, value in (("start", 0.5), ("champion", 0.0125))
        ],
    },
    "report": {},
}


@pytest.fixture(scope="module")
def tab(database) -> ModuleType:
    spec = importlib.util.spec_from_file_location("launch_tab", ROOT / "dags" / "plugins" / "launch_tab.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    """The launch's own folder, with a report of one page."""
    monkeypatch.setenv("TACIT_RUNS_DIR", str(tmp_path))
    files = {f"public/{stage}/result.json": json.dumps({"result": result}) for stage, result in RESULTS.items()}
    files["public/report/result.json"] = json.dumps(
        {"result": {}, "outputs": dict.fromkeys(("report.html", "link.html", "appendix/gates.csv"), "")}
    )
    files |= {
        "public/report/appendix/gates.csv": "gate,value",
        "public/report/report.html": "the report",
        "public/report/notes.html": "named by nobody",
    }
    files |= {"public/launch/state.svg": "<svg/>", "public/launch/launch.json": "{}", "private/plan/key.json": "secret"}
    for name, text in files.items():
        (tmp_path / LAUNCH / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / LAUNCH / name).write_text(text, encoding="utf-8")
    (tmp_path / LAUNCH / "public/report/link.html").symlink_to(tmp_path / LAUNCH / "private/plan/key.json")
    return tmp_path / LAUNCH


@pytest.fixture
def client(tab: ModuleType, folder: Path, monkeypatch) -> TestClient:
    """Somebody who may see DAG demo, and no other."""
    from airflow.api_fastapi.core_api import security

    def may(*, details, **_: object) -> bool:
        return details.id == "demo"

    monkeypatch.setattr(security, "get_auth_manager", lambda: SimpleNamespace(is_authorized_dag=may))
    monkeypatch.setattr(tab, "launch_of", lambda dag_id, run_id: LAUNCH)
    monkeypatch.setitem(tab.app.dependency_overrides, security.get_user, lambda: SimpleNamespace())
    return TestClient(tab.app)


def test_who_may_not_see_the_run_sees_nothing(tab: ModuleType, client: TestClient):
    assert client.get(PAGE).status_code == 200
    for path in ("/other/latest", "/other/runs/manual__1/", "/other/runs/manual__1/report/report.html"):
        assert client.get(path).status_code == 403
    tab.app.dependency_overrides.clear()
    for path in ("/demo/latest", PAGE, f"{PAGE}report/report.html"):
        assert client.get(path).status_code == 401


def test_the_page_shows_gates_and_the_difference_to_what_users_have(client: TestClient):
    page = client.get(PAGE).text
    assert "Gates: 0 of 1 passed" in page
    assert "0 of &lt;b&gt;1&lt;/b&gt;" in page
    assert "version 3, launch demo-89abcdef" in page
    assert "+1.25 points" in page
    assert "+50.00" not in page
    assert SPENT["loss"] in page, "as the record has it, delta too"
    assert "1.93" not in page, "the loss to training alone"
    assert f"tacit status {LAUNCH}" in page


def test_only_what_the_record_names_is_sent(client: TestClient, folder: Path):
    sent = client.get(f"{PAGE}report/report.html")
    assert (sent.status_code, sent.text) == (200, "the report")
    assert "default-src 'none'" in sent.headers["content-security-policy"]
    assert client.get(f"{PAGE}launch/state.svg").text == "<svg/>"
    table = client.get(f"{PAGE}report/appendix/gates.csv")
    assert (table.text, table.headers["content-type"].split(";")[0]) == ("gate,value", "text/csv")
    refused = ("report/notes.html", "report/link.html", "report/result.json", "launch/launch.json", "plan/key.json")
    climbing = ("report/..%2F..%2Fprivate%2Fplan%2Fkey.json", "..%2Fprivate/plan/key.json", "report/%2Fetc%2Fhosts.md")
    for name in (*refused, *climbing):
        assert client.get(PAGE + name).status_code == 404, name


def test_a_launch_whose_files_are_elsewhere_says_where_to_look(client: TestClient, monkeypatch, tmp_path: Path):
    monkeypatch.setenv("TACIT_RUNS_DIR", str(tmp_path / "elsewhere"))
    page = client.get(PAGE)
    assert (page.status_code, "artifact of its run in MLflow" in page.text) == (200, True)


def test_airflow_loads_the_tab(database):
    from airflow import plugins_manager

    apps, _ = plugins_manager.get_fastapi_plugins()
    assert [each["url_prefix"] for each in apps if each["name"] == "Launches of tacit"] == ["/tacit"]


@pytest.mark.parametrize(
    ("partition", "conf", "date"),
    [
        ("20261101", None, "2026-11-01"),
        (None, {"date": "2026-10-01"}, "2026-10-01"),
        ("undated", {"date": None}, "undated"),
        (None, {}, "undated"),
        ("it-IT-0123abcd", {}, "it-IT-0123abcd"),
        (None, {"launch": "it-IT-0123abcd"}, "it-IT-0123abcd"),
    ],
)
def test_a_run_is_named_by_locale_features_and_what_it_is_about(dagbag, partition, conf, date):
    import run_names

    dag = dagbag.dags["scheduled"]
    run = SimpleNamespace(dag=dag, note=None, partition_key=partition, conf=conf)
    run_names.on_dag_run_running(run, "")
    assert run.note == f"it-IT NWP: scheduled, {date}"
    run.note = "a person's words"
    run_names.on_dag_run_running(run, "")
    assert run.note == "a person's words"
