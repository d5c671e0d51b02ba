"""A launch that covers everything and its experiment, from the launch file to everybody or nobody."""

import json
from pathlib import Path

import pytest
import yaml

from pipeline.ground.errors import HELD
from pipeline.launch.config import launch_id, load_launch
from tests.helpers.launches.command import answered, ledger_entries
from tests.helpers.launches.installed import installed, keyed
from tests.helpers.launches.tiny_launch import POLICY, write_launch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType.*:UserWarning"),
]
# Of two dozen test devices nothing could be told above real noise, nor of a model that differs from its start.
AMPLE = {"max_rho": 1e3, "population_max_rho": 1e3, "max_total_epsilon": 1e4, "population_max_epsilon": 1e5}
EXPERIMENT = {"share": 0.5, "days": 1, "min_gain": -0.5, "noise_multiplier": 1.0}


def test_an_experiment_under_a_budget_is_stated_reserved_and_decided(tmp_path: Path) -> None:
    file = write_launch(
        tmp_path,
        policy=POLICY | AMPLE | {"cover_everything": True},
        evaluation={"noise_multiplier": 0.05},
        experiment=EXPERIMENT,
        ab_test={"buckets": 5, "session_words": 0},
        server={"learning_rate": 0.05},
    )
    launch = yaml.safe_load(file.read_text(encoding="utf-8"))
    launch["private_text"]["source"] = "made_up_files"
    file.write_text(yaml.safe_dump(launch), encoding="utf-8")
    installed(tmp_path, "made_up_files:tiny-clients")
    keyed(tmp_path / "runs", file)
    run_id = launch_id(load_launch(file))
    plan = json.dumps(answered(tmp_path, "check", str(file)))
    assert "live experiment" in plan, "its loss is a part of the planned total"
    done = answered(tmp_path, "launch", str(file))
    assert done["decision"] == "launch", done
    public = tmp_path / "runs" / run_id / "public"
    stated = json.loads((public / "report" / "disclosure.json").read_text(encoding="utf-8"))
    total = {part["split"]: part for part in stated["accounting"]["total"]["parts"] if part["how"] == "noise"}
    assert {split for split, part in total.items() if "live_experiment" in part["releases"]} == {"train", "test"}
    assert total["test"]["rho"] == pytest.approx(1 / (2 * 0.05**2) + 0.5)
    assert "experiment" in {row["stage"] for row in stated["data_accesses"] if row["covered"]}
    assert not [row for row in stated["data_accesses"] if row["data"] == "private" and not row["covered"]]
    assert "in either case, its events in the live experiment" in stated["adjacency"]
    assert "Live experiment, after approval" in (public / "report" / "report.md").read_text(encoding="utf-8")

    answered(tmp_path, "experiment", "simulate", run_id)
    decided = answered(tmp_path, "experiment", "decide", run_id, code=(0, HELD))
    gates = {gate["id"]: gate["passed"] for gate in decided["look"]["gates"]}
    assert gates["live_audit"], decided["look"]["audit"]
    assert all(gates[name] for name in ("live_days", "live_devices", "live_split", "live_control"))
    spends = [entry for entry in ledger_entries(tmp_path) if entry["stage"] == "experiment" and entry["rho"]]
    assert [(entry["kind"], entry["rho"]) for entry in spends] == [("reserve", 0.5), ("commit", 0.5)]
    shown = answered(tmp_path, "ab", run_id, "--logs", "anything")
    assert shown["differences"] == decided["look"]["differences"]
    verified = answered(tmp_path, "verify", run_id)
    assert verified["ok"], [check for check in verified["checks"] if not check["passed"]]
    assert {"spend:experiment", "private:experiment", "live_experiment"} <= {row["id"] for row in verified["checks"]}
