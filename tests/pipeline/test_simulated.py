"""A simulated report goal gets past no door: check, plan, ledger, gates, verify."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from federated.accounting import guarantees as accounting
from federated.participation.cohorts import Observed
from pipeline import gate_evidence, runner
from pipeline.cli.app import app
from pipeline.config import LaunchConfig, launch_id, simulation
from pipeline.errors import NotPrivate, exit_code
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run_dir import RunDir
from pipeline.settings import Settings
from pipeline.stage import StageContext, StageSpend
from pipeline.stages import gates, spends
from tests.helpers.pipeline_launch import RAW, Calls, Counted, launch_config

SIMULATED = 50
OBSERVED = Observed(8, 2, 1, 2, {2: 10}, {2: 10}, 0, 0)


class Stated(Counted):
    """Results with whatever a test wants to state."""

    model_config = Counted.model_config | {"extra": "allow"}


def simulated() -> LaunchConfig:
    return launch_config(mechanism={"simulated_report_goal": SIMULATED})


def launched(config: LaunchConfig, settings: Settings, *, bypass: bool, told: str | None = None) -> RunDir:
    """Plan and training as the stages state them; ``bypass`` hides from the ledger what is simulated."""

    def plan(ctx: StageContext) -> Stated:
        worst = accounting.from_records(ctx.config.mechanism, OBSERVED, hypothetical=True)
        return Stated(value=1, rho=worst.rho, epsilon=worst.epsilon[1e-6], delta=1e-6, hypothetical=worst.hypothetical)

    def fine_tune(ctx: StageContext) -> Stated:
        reached = accounting.from_records(ctx.config.mechanism, OBSERVED, hypothetical=True)
        spend = spends.training(reached, 1e-6, "observed")
        spend = spend.model_copy(update={"hypothetical": ""}) if bypass else spend
        said = reached.hypothetical if told is None else told
        return Stated(value=1, rho=reached.rho, hypothetical=said, spend=spend)

    def planned(config: LaunchConfig, run: RunDir) -> spends.Spend:
        found = spends.planned_training(config, run)
        return found.model_copy(update={"hypothetical": ""}) if bypass else found

    functions = {"ingest_private": Calls().ingest_private, "plan": plan, "fine_tune": fine_tune}
    stages = runner.Stages(functions=functions, spends={"fine_tune": StageSpend(planned=planned, inputs=("plan",))})
    for name in functions:
        runner.run_stage(name, config, launch_id(config), settings, stages)
    return RunDir(settings.runs_dir, launch_id(config))


def gate(config: LaunchConfig, run: RunDir, settings: Settings) -> gates.Gate:
    evidence = gate_evidence.for_gates(StageContext(config, run, settings, "decide", None))
    decision = gates.decide(evidence, config.policy)
    assert decision.decision == "hold"
    return next(gate for gate in decision.gates if gate.id == "simulated")


def test_the_ledger_refuses_it_before_any_noise_is_drawn(settings: Settings):
    with pytest.raises(NotPrivate, match=r"simulated_report_goal: 50 is for research .* remove it") as refused:
        launched(simulated(), settings, bypass=False)
    assert exit_code(refused.value) == 65
    assert PrivacyLedger(settings.ledger_url).entries() == []


@pytest.mark.parametrize("told", [None, ""])
def test_the_gates_hold_it_even_if_the_ledger_did_not(settings: Settings, told: str | None):
    run = launched(simulated(), settings, bypass=True, told=told)
    found = gate(simulated(), run, settings)
    assert not found.passed
    assert ("NOT PRIVATE" in found.evidence) == (told is None)
    assert "50" in found.evidence


def test_a_real_launch_passes_both(settings: Settings):
    config = launch_config()
    assert simulation(config) == ""
    run = launched(config, settings, bypass=False)
    assert gate(config, run, settings).passed
    assert [entry.kind for entry in PrivacyLedger(settings.ledger_url).entries()] == ["reserve", "commit"]


def test_it_is_another_launch():
    assert launch_id(simulated()) != launch_id(launch_config())


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TACIT_HOME", str(tmp_path))
    path = tmp_path / "launch.yaml"
    path.write_text(yaml.safe_dump(RAW | {"mechanism": RAW["mechanism"] | {"simulated_report_goal": SIMULATED}}))
    return path


@pytest.mark.parametrize("command", ["check", "launch"])
def test_check_and_launch_say_so(file: Path, command: str):
    done = CliRunner().invoke(app, ["--quiet", command, str(file), "--json"])
    assert done.exit_code == 65
    assert "it protects nobody and no launch passes with it; remove it" in done.stdout


def test_plan_says_so(file: Path):
    done = CliRunner().invoke(app, ["--quiet", "plan", str(file), "--devices", "1000", "--json"])
    answer = json.loads(done.stdout)
    assert not answer["feasible"]
    assert answer["hypothetical"].startswith("NOT PRIVATE, a simulation: rounds of 50 devices")
    assert answer["alternatives"] == []
    text = CliRunner().invoke(app, ["--quiet", "plan", str(file), "--devices", "1000"]).stdout
    assert text.startswith("NOT PRIVATE, a simulation")
    assert "simulated_report_goal is for research in Python, no launch runs with it: remove it" in text
