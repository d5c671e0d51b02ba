"""A launch's disclosure is derived again, and every kind of change shows."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from federated import mechanisms
from federated.accounting import guarantees as accounting
from federated.devices import store as population
from federated.mechanisms import mechanism_file as files
from federated.participation.observation import Observation, observe
from federated.participation.records import no_records, save_records
from federated.rounds.rule import RoundRule
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id
from pipeline.ledger.entries import Spend
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.gates.decide import decide as decided
from pipeline.run.known import run_folder
from pipeline.run.run_dir import RESULT
from pipeline.run.stage import SOURCES, Stage, StageContext
from pipeline.stages.decide import evidence
from pipeline.stages.fine_tune import observed
from pipeline.stages.fine_tune import participation as participation_shown
from pipeline.stages.graph import STAGES
from pipeline.stages.launch import run_stages
from pipeline.verify.launch import verify
from pretrain.files import sha256, write_text
from tests.helpers.launches.decided import Discovered
from tests.helpers.launches.installed import installed
from tests.helpers.launches.pipeline_launch import Counted, launch_config, stand_in
from tests.helpers.launches.stages import stages_of

DEVICES, SYNTHETIC = 60, 3
# What needs no trained model; ``tests/golden/tampering`` has the rest, on a real launch.
SUBJECTS = ("files", "ledger", "guarantee", "participation")


@stand_in
class Result(Counted):
    model_config = Counted.model_config | {"extra": "allow"}


def spent(rho: float, epsilon: float) -> Spend:
    return Spend(unit="device", adjacency="zero-out", rho=rho, epsilon=epsilon, delta=1e-6)


def rounds(config: LaunchConfig, directory: Path, train: int, key: bytes) -> tuple[Observation, list[int]]:
    """Draw real cohorts and keep their records, as fine-tuning does."""
    mechanism = config.mechanism
    synthetic_D = np.arange(train + SYNTHETIC) >= train
    cohorts = RoundRule(mechanism, config.seed, key).cohorts(synthetic_D)
    state, records = cohorts.init(), no_records()
    for number in range(mechanism.rounds):
        ids, state = cohorts.draw(state, number)
        records = records.add(number, ids)
    directory.mkdir()
    save_records(records, directory / "participation.parquet", mechanism.rounds)
    joined = records.participations(train + SYNTHETIC)[synthetic_D].tolist()
    return observe(records, mechanism.rounds, cohorts, synthetic_D), joined


def ingest_private(ctx: StageContext) -> Result:
    population.build_store(ctx.config.private_text, ctx.config.locale, ctx.config.seed, ctx.private / "store")
    return Result(value=1)


def fine_tune(ctx: StageContext) -> Result:
    store = population.open_store(ctx.run.private("ingest_private") / "store")
    seen, joined = rounds(ctx.config, ctx.private / "rounds", int((store.split_D == 0).sum()), ctx.noise_key)
    reached = accounting.from_records(ctx.config.mechanism, seen)
    epsilon = reached.epsilon[1e-6]
    return Result(
        value=1,
        rho=reached.rho,
        epsilon=epsilon,
        epsilon_pld=reached.epsilon_pld[1e-6],
        mu=reached.mu,
        delta=1e-6,
        rounds=seen.rounds,
        **dict(participation_shown(seen)),
        synthetic_participations=joined,
        secagg=None,
        amplified=None,
        spend=spent(reached.rho, epsilon),
    )


def plan(ctx: StageContext) -> Result:
    files.save(mechanisms.build(ctx.config.mechanism), ctx.public / "mechanism.json")
    return Result(value=1)


def decide(ctx: StageContext) -> Result:
    return Result(value=1, **decided(evidence(ctx), ctx.config.policy).model_dump(mode="json"))


def report(ctx: StageContext) -> Result:
    write_text(
        ctx.public / "disclosure.json", json.dumps({"accounting": [{"rho": ctx.run.result("fine_tune")["rho"]}]})
    )
    return Result(value=1, disclosure_sha256=sha256(ctx.public / "disclosure.json"))


def other(ctx: StageContext) -> Result:
    return Result(value=1)


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> tuple[LaunchConfig, Path]:
    """A launch whose stages do no training but whose records, ledger and accounting are real."""
    from pipeline.ground import settings as settings_module

    home = tmp_path_factory.mktemp("verify")
    rows = [{"client_id": f"c{number}", "text": "see you soon"} for number in range(DEVICES)]
    pq.write_table(pa.Table.from_pylist(rows), home / "clients.parquet")
    text = {"source": "files", "name": "people", "paths": [str(home / "clients.parquet")], "max_words_per_device": 9}
    config = LaunchConfig.model_validate(launch_config().model_dump() | {"private_text": text})
    special = {"ingest_private": ingest_private, "plan": plan, "fine_tune": fine_tune}
    special |= {"decide": decide, "report": report, "discover": lambda ctx: Discovered.example()}
    stages = stages_of(
        {name: special.get(name, other) for name in STAGES},
        Stage("ingest_private", "", private=(SOURCES,)),
        Stage(
            "fine_tune",
            "",
            needs=("ingest_private",),
            private=("ingest_private/store",),
            planned=lambda config, run: spent(0.5, 9.0),
        ),
    )
    here = settings_module.load({"TACIT_HOME": str(home)})
    installed(home, "people")
    run_stages(config, launch_id(config), here, stages)
    return config, home


@pytest.fixture
def failed(launched: tuple[LaunchConfig, Path], settings: Settings) -> Callable[[], list[str]]:
    """A copy of the launch in ``settings``; calling it gives the ids of the checks that fail."""
    config, home = launched
    shutil.copytree(home / "runs", settings.runs_dir, dirs_exist_ok=True)
    run = run_folder(settings, launch_id(config))

    def check() -> list[str]:
        return [item.id for item in verify(config, run, settings, SUBJECTS) if item.passed is False]

    return check


def edit(settings: Settings, stage: str, **changes: object) -> None:
    """Change a stage's stated result."""
    (path,) = settings.runs_dir.glob(f"*/public/{stage}/{RESULT}")
    record = json.loads(path.read_text(encoding="utf-8"))
    record["result"] |= changes
    path.write_text(json.dumps(record), encoding="utf-8")


def test_an_honest_launch_verifies(failed: Callable[[], list[str]], settings: Settings):
    assert failed() == []
    (records,) = settings.runs_dir.glob("*/private/fine_tune/rounds/participation.parquet")
    assert pq.read_table(records).num_rows > 0


@pytest.mark.slow
@pytest.mark.parametrize("lose", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:-30])])
def test_records_that_are_missing_or_cut_are_found(
    failed: Callable[[], list[str]], settings: Settings, lose: Callable[[Path], None]
):
    (part,) = settings.runs_dir.glob("*/private/fine_tune/rounds/participation.parquet/*.parquet")
    lose(part)
    assert {"private:fine_tune", "participation"} <= set(failed())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "changes", "expected"),
    [
        ("fine_tune", {"rho": 0.01}, {"rho", "bound:fine_tune"}),
        ("fine_tune", {"epsilon": 0.5}, {"epsilon"}),
        ("fine_tune", {"observed_max_participations": 1}, {"participation", "rho"}),
        ("fine_tune", {"violations": 2}, {"participation"}),
        ("fine_tune", {"spend": spent(0.01, 0.5).model_dump()}, {"spend:fine_tune"}),
        ("decide", {"decision": "launch"}, {"bound:decide"}),
        ("report", {"disclosure_sha256": "0" * 64}, {"bound:report"}),
    ],
)
def test_a_changed_statement_is_found(
    failed: Callable[[], list[str]], settings: Settings, stage: str, changes: dict, expected: set[str]
):
    edit(settings, stage, **changes)
    assert expected <= set(failed())


def test_changed_files_are_found(failed: Callable[[], list[str]], settings: Settings):
    (disclosure,) = settings.runs_dir.glob("*/public/report/disclosure.json")
    disclosure.write_text("{}", encoding="utf-8")
    (record,) = settings.runs_dir.glob(f"*/public/adapt/{RESULT}")
    record.unlink()
    assert {"files:report", "files:adapt"} <= set(failed())


def test_a_forgotten_spend_is_found(failed: Callable[[], list[str]], settings: Settings):
    (settings.runs_dir / "ledger.db").unlink()
    PrivacyLedger.create(settings)
    assert {"ledger", "spend:fine_tune"} <= set(failed())


def test_another_machine_says_what_it_could_not_check(launched: tuple[LaunchConfig, Path], settings: Settings):
    config, home = launched
    shutil.copytree(home / "runs", settings.runs_dir, dirs_exist_ok=True)
    run = run_folder(settings, launch_id(config))
    shutil.rmtree(run.path / "private")
    checks = {check.id: check.passed for check in verify(config, run, settings, SUBJECTS)}
    assert checks["participation"] is None
    assert checks["private:fine_tune"] is None
    assert checks["rho"] is True


def test_observed_keeps_devices_that_joined_once():
    stated = {
        "rounds": 4,
        "observed_min_sep": None,
        "observed_max_participations": 1,
        "participation_histogram": {"1": 4},
        "separation_histogram": {},
        "violations": 0,
        "synthetic_devices": 0,
    }
    assert observed(stated).mins is None
