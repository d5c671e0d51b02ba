"""Records from a tracking server count only if the ledger holds their digest; damaged ones come back from it."""

import json
import shutil
import sqlite3
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from pipeline.ground import settings as settings_module
from pipeline.ground.errors import LedgerMissing, StageInputMissing
from pipeline.ground.settings import Settings
from pipeline.launch.config import launch_id
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run import runner
from pipeline.run.known import run_folder
from pipeline.run.run_dir import RESULT, RunDir, StageRecord, receipt_digest, record_text
from pipeline.run.stage import Stage
from tests.helpers.launches.pipeline_launch import Calls, launch_config
from tests.helpers.launches.stages import stages_of

CONFIG = launch_config()
ID = launch_id(CONFIG)
NAMES = ("ingest_private", "plan", "fine_tune")


class Shelf:
    """A tracking server that anybody may write to: a folder of logged stages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def log_stage(self, run: RunDir, record: StageRecord, fields: Collection[str]) -> None:
        shutil.copytree(run.public(record.stage), self.folder / record.stage, dirs_exist_ok=True)
        (self.folder / record.stage / RESULT).write_text(record_text(record), encoding="utf-8")

    def fetch(self, stage: str, filename: str, destination: Path) -> bool:
        source = self.folder / stage / filename
        if not source.is_file():
            return False
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, destination)
        return True

    def identical(self, stage: str, content: str):
        path = self.folder / stage / RESULT
        if path.is_file():
            record = StageRecord.model_validate_json(path.read_bytes())
            if record.content == content:
                yield record, lambda name, destination: self.fetch(stage, name, destination)

    def checkpoints(self) -> dict[str, str]:
        return {}

    def keep_checkpoint(self, note: str) -> None:
        pass

    def forge(self, stage: str, **changes: object) -> None:
        path = self.folder / stage / RESULT
        record = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps(record | changes), encoding="utf-8")


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "shelf")


@pytest.fixture
def run(settings: Settings, shelf: Shelf) -> Callable[[], list[bool]]:
    """Run three stages and say which were skipped."""

    def once() -> list[bool]:
        calls = Calls()
        return [runner.run_stage(name, CONFIG, ID, settings, calls.stages, shelf).skipped for name in NAMES]

    return once


def test_a_record_comes_back_only_as_the_ledger_knows_it(run, settings: Settings, shelf: Shelf):
    run()
    opened = runner.open_run(CONFIG, ID, settings, shelf)
    (opened.public("plan") / RESULT).unlink()
    shelf.forge("plan", result={"value": 99, "text": "forged"})
    assert opened.record("plan") is None
    assert not (opened.public("plan") / RESULT).exists()
    with pytest.raises(StageInputMissing, match="has not finished"):
        opened.result("plan")


def test_the_record_that_the_ledger_knows_comes_back(run, settings: Settings, shelf: Shelf):
    run()
    opened = runner.open_run(CONFIG, ID, settings, shelf)
    record = opened.record("plan")
    for damage in (lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:40])):
        damage(opened.public("plan") / RESULT)
        assert opened.record("plan") == record


def test_a_server_is_asked_only_for_stages_of_which_the_ledger_holds_a_record(run, settings: Settings, shelf: Shelf):
    run()
    asked: list[str] = []

    def fetch(stage: str, filename: str, destination: Path) -> bool:
        asked.append(stage)
        return shelf.fetch(stage, filename, destination)

    opened = run_folder(settings, ID, fetch)
    shutil.copytree(shelf.folder / "plan", shelf.folder / "publish")
    assert opened.record("publish") is None
    assert asked == []
    (opened.path / "public" / "plan" / RESULT).unlink()
    assert opened.record("plan")
    assert asked == ["plan"]


def test_another_launch_s_record_is_not_this_one_s(run, settings: Settings, shelf: Shelf):
    run()
    opened = runner.open_run(CONFIG, ID, settings, shelf)
    shelf.fetch("plan", RESULT, shelf.folder / "fine_tune" / RESULT)
    (opened.public("fine_tune") / RESULT).unlink()
    assert opened.record("fine_tune") is None


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [b"", b"rounds", b"rounds 9\n"])
def test_a_damaged_file_comes_back_by_its_digest(run, settings: Settings, shelf: Shelf, damaged: bytes):
    run()
    opened = runner.open_run(CONFIG, ID, settings, shelf)
    path = opened.input("plan", "numbers/plan.txt")
    path.write_bytes(damaged)
    assert run() == [True, True, True], "nothing was made again"
    assert path.read_text(encoding="utf-8") == "rounds 8\n"


def test_what_the_server_holds_does_not_replace_a_file_unless_it_has_the_digest(run, settings: Settings, shelf: Shelf):
    run()
    opened = runner.open_run(CONFIG, ID, settings, shelf)
    path = opened.input("plan", "numbers/plan.txt")
    path.write_text("damaged here", encoding="utf-8")
    (shelf.folder / "plan" / "numbers" / "plan.txt").write_text("forged there", encoding="utf-8")
    with pytest.raises(StageInputMissing, match="neither on this machine nor in MLflow"):
        opened.input("plan", "numbers/plan.txt")
    assert path.read_text(encoding="utf-8") == "damaged here"
    assert [entry.name for entry in path.parent.iterdir()] == ["plan.txt"]


@pytest.mark.slow
def test_a_public_stage_of_another_machine_counts_only_as_the_ledger_knows_it(settings: Settings, shelf: Shelf):
    calls = Calls()
    public = Stage("plan", "", reads=lambda config: ("mechanism.rounds",), code=("pretrain",))
    stages = stages_of({"plan": calls.plan}, public)
    runner.run_stage("plan", CONFIG, ID, settings, stages, shelf)
    shutil.rmtree(settings.runs_dir / ID)
    original, (third, other) = shelf.folder / "plan", (launch_config(name=name) for name in ("third", "other"))
    kept = shutil.copytree(original, shelf.folder.with_name("kept"))
    assert runner.run_stage("plan", third, launch_id(third), settings, stages, shelf).record.reused_from == ID
    assert calls.made == ["plan"]
    shutil.rmtree(settings.runs_dir / launch_id(third))
    shutil.rmtree(original)
    shutil.copytree(kept, original)
    shelf.forge("plan", seconds=3.5)
    made = runner.run_stage("plan", other, launch_id(other), settings, stages, shelf).record
    assert made.reused_from is None
    assert calls.made == ["plan", "plan"]


def test_a_stage_run_again_is_bound_anew_and_the_old_record_no_longer_counts(run, settings: Settings, shelf: Shelf):
    run()
    opened = runner.open_run(CONFIG, ID, settings, shelf)
    first = opened.record("plan")
    text_before = (opened.public("plan") / RESULT).read_text(encoding="utf-8")
    ledger = PrivacyLedger.of(settings)
    receipt = ledger.bind_result(ID, "plan", "f" * 64)
    assert ledger.bound_results(ID)["plan"] == ("f" * 64, receipt)
    assert receipt != first.ledger["result"]
    assert ledger.verify([receipt, first.ledger["result"]]) == []
    (opened.public("plan") / RESULT).unlink()
    (shelf.folder / "plan" / RESULT).write_text(text_before, encoding="utf-8")
    assert opened.record("plan") is None


def test_the_same_result_is_written_down_once(settings: Settings):
    ledger = PrivacyLedger.of(settings)
    assert ledger.bound_results(ID) == {}
    assert ledger.verify() == []
    assert ledger.bind_result(ID, "plan", "a" * 64) == ledger.bind_result(ID, "plan", "a" * 64)
    assert ledger.bind_result(ID, "plan", "b" * 64) != ledger.bind_result(f"{ID}-2", "plan", "b" * 64)
    assert ledger.bound_results(ID)["plan"][0] == "b" * 64
    assert ledger.entries() == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE privacy_ledger SET binding = replace(binding, 'a', 'c') WHERE seq = 1",
        "DELETE FROM privacy_ledger WHERE seq = 2",
        "DELETE FROM privacy_ledger WHERE seq = 1",
    ],
)
def test_results_in_the_ledger_cannot_be_changed_unnoticed(settings: Settings, statement: str):
    ledger = PrivacyLedger.of(settings)
    receipts = [ledger.bind_result(ID, stage, "a" * 64) for stage in ("plan", "decide")]
    with sqlite3.connect(settings.runs_dir / "ledger.db", isolation_level=None) as database:
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            database.execute(statement)
        found = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        triggers = database.execute(found).fetchall()
        for name, _ in triggers:
            database.execute(f"DROP TRIGGER {name}")
        assert len(ledger.verify(receipts)) == len(triggers)
        database.execute(statement)
        for _, body in triggers:
            database.execute(body)
    assert ledger.verify(receipts), statement


@pytest.mark.slow
def test_a_receipt_leaves_out_only_receipts(run, settings: Settings, shelf: Shelf):
    run()
    record = runner.open_run(CONFIG, ID, settings, shelf).record("plan")
    digest = receipt_digest(record)
    assert receipt_digest(record.model_copy(update={"ledger": {}})) == digest
    for name, value in {
        "seconds": 9.0,
        "private_outputs": True,
        "result": {},
        "outputs": {},
        "inputs": {"a": "b"},
    }.items():
        assert receipt_digest(record.model_copy(update={name: value})) != digest


def test_a_stage_without_a_ledger_is_refused_before_it_runs(tmp_path: Path):
    """Nothing could say afterwards that its record counts."""
    here, calls = settings_module.load({"TACIT_HOME": str(tmp_path)}), Calls()
    with pytest.raises(LedgerMissing, match="tacit ledger init"):
        runner.run_stage("plan", CONFIG, ID, here, calls.stages)
    assert calls.made == []
