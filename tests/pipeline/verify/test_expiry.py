"""Text goes when its window is over, whatever else is wrong with its launch; one launch keeps no other from it."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from unittest import mock

import pytest

from pipeline.ground import clock
from pipeline.ground.errors import PERMANENT, TEMPORARY, PermanentError
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id
from pipeline.ledger.budget import Rules
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.log.tiles import Log
from pipeline.run.bookkeeping import PARTS, WINDOW
from pipeline.run.known import run_folder
from pipeline.run.run_dir import ERASED, RESULT, RunDir
from pipeline.run.runner import run_stage
from pipeline.run.stage import StageContext
from pipeline.verify.erase import UNTRIED
from pipeline.verify.expiry import Sweep, sweep
from pipeline.verify.launch import verify
from pretrain.files import sha256, write_text
from tests.helpers.launches.command import answered
from tests.helpers.launches.installed import registered
from tests.helpers.launches.pipeline_launch import Counted, launch_config
from tests.helpers.launches.spends import budget
from tests.helpers.launches.stages import running, stages_of
from tests.helpers.text.people import NOW, STAGES, people

LAST = timedelta(days=31) - timedelta(hours=12)  # the end of the 30th day after the 15th
Damage = Callable[[RunDir, Settings], None]


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[timedelta], None]:
    """Sets the clock to so long after a launch."""

    def move(after: timedelta) -> None:
        monkeypatch.setattr(clock, "now", lambda: NOW + after)

    move(timedelta())
    return move


@pytest.fixture
def config(settings: Settings, at: Callable, tmp_path: Path) -> LaunchConfig:
    registered(PrivacyLedger.of(settings), "real", budget=budget(max_rho=1.0, window_days=30))
    return people(tmp_path)


@pytest.fixture
def run(config: LaunchConfig, settings: Settings) -> RunDir:
    """A launch that has read its text and spent; it has not ended."""
    for name in ("ingest_private", "fine_tune"):
        run_stage(name, config, launch_id(config), settings, STAGES)
    return run_folder(settings, launch_id(config))


def text_left(run: RunDir) -> list[str]:
    private = run.path / "private"
    return [path.name for path in private.rglob("*") if path.is_file() and not path.name.startswith(".")]


def stated(run: RunDir) -> dict:
    return json.loads((run.path / "public" / "launch" / ERASED).read_text(encoding="utf-8"))


def damaged_record(run: RunDir, _: Settings) -> None:
    (run.path / "public" / "ingest_private" / RESULT).write_text("{", encoding="utf-8")


def damaged_launch_file(run: RunDir, _: Settings) -> None:
    write_text(run.path / "public" / "launch" / "launch.json", "{")


def no_public_folder(run: RunDir, _: Settings) -> None:
    shutil.rmtree(run.path / "public")


def no_ledger(_: RunDir, settings: Settings) -> None:
    (settings.runs_dir / "ledger.db").unlink()


def unreadable_ledger(_: RunDir, settings: Settings) -> None:
    (settings.runs_dir / "ledger.db").write_bytes(b"not a database" * 100)


def half_deleted(run: RunDir, _: Settings) -> None:
    shutil.rmtree(run.path / "private" / "fine_tune")
    (run.path / "private" / "ingest_private" / "store" / "store.json").unlink()


def no_window(run: RunDir, _: Settings) -> None:
    """Its record says it too."""
    (run.path / "private" / "ingest_private" / WINDOW).unlink()


def neither_window_nor_record(run: RunDir, settings: Settings) -> None:
    """Then by the launch file, from the newest file of text."""
    no_window(run, settings)
    (run.path / "public" / "ingest_private" / RESULT).unlink()
    for path in (run.path / "private").rglob("*"):
        os.utime(path, (NOW.timestamp(), NOW.timestamp()))


DAMAGES = (
    lambda run, settings: None,
    damaged_record,
    damaged_launch_file,
    no_public_folder,
    no_ledger,
    unreadable_ledger,
    half_deleted,
    no_window,
    neither_window_nor_record,
)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__.strip("<>"))
def test_text_goes_with_its_window_whatever_is_wrong(run: RunDir, settings: Settings, at: Callable, damage: Damage):
    damage(run, settings)
    at(LAST - timedelta(seconds=1))
    assert sweep(settings).erased == []
    assert text_left(run)
    at(LAST)
    done = sweep(settings)
    assert text_left(run) == []
    said = stated(run)
    assert (said["verified"], said["not_verified"]) == (False, list(UNTRIED))
    assert "30 days after 2026-03-15" in said["because"]
    ledger_is_whole = damage not in (no_ledger, unreadable_ledger)
    assert (done.erased == [run.launch_id]) == (done.exit_code == 0) == ledger_is_whole
    assert (run.path / "private").exists() != ledger_is_whole, "kept empty until the ledger can be told"


def rewrite_window(run: RunDir, **changes: object) -> None:
    path = run.path / "private" / "ingest_private" / WINDOW
    write_text(path, json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"days": 36_500},
        {"days": None},
        {"as_of": "2126-01-01"},
        {"days": None, "as_of": None},
        {"days": 10**30},
        {"days": 36_500, "as_of": "2125-01-01"},
    ],
    ids=str,
)
@pytest.mark.parametrize("damage", [lambda run, settings: None, no_public_folder], ids=["whole", "no public folder"])
def test_a_file_does_not_extend_the_retention(
    run: RunDir, settings: Settings, at: Callable, changes: dict[str, object], damage: Damage
):
    damage(run, settings)
    rewrite_window(run, **changes)
    at(LAST - timedelta(seconds=1))
    assert sweep(settings).erased == []
    at(LAST)
    assert sweep(settings).erased == [run.launch_id]


def test_a_file_shortens_the_retention(run: RunDir, settings: Settings, at: Callable):
    rewrite_window(run, days=3)
    at(timedelta(days=5))
    assert sweep(settings).erased == [run.launch_id]


def test_a_registration_that_changes_its_retention_decides(run: RunDir, settings: Settings, at: Callable):
    ledger = PrivacyLedger.of(settings)
    fewer = Rules(retention_days=7)
    ledger.change_budget("real", ledger.population("real").budget, "tests", "a new policy", fewer)
    at(timedelta(days=7))
    assert sweep(settings).erased == []
    at(timedelta(days=8))
    assert sweep(settings).erased == [run.launch_id]


def test_a_ledger_that_could_not_be_told_is_told_later(run: RunDir, settings: Settings, at: Callable):
    at(LAST)
    elsewhere = replace(settings, ledger_url=f"sqlite:///{settings.runs_dir / 'gone.db'}")
    assert sweep(elsewhere).exit_code == PERMANENT
    assert text_left(run) == []
    before = stated(run)
    assert sweep(settings).erased == [run.launch_id]
    digest = sha256(run.path / "public" / "launch" / ERASED)
    assert PrivacyLedger.of(settings).bound_results(run.launch_id)[ERASED][0] == digest
    assert stated(run) == before
    assert sweep(settings) == Sweep()


@pytest.mark.parametrize("left", [("store", WINDOW), (WINDOW,), ("store",), ()])
def test_an_erasure_that_was_killed_is_finished(run: RunDir, settings: Settings, left: tuple[str, ...]):
    """The statement is there, and of the text any part; the window, which is not over, may be what went first."""
    content = {"launch_id": run.launch_id, "erased_at": "2026-04-15T00:00:00+00:00", "files": 9}
    content |= {"because": "its window", "verified": False, "not_verified": []}
    write_text(run.path / "public" / "launch" / ERASED, json.dumps(content))
    for path in (run.path / "private" / "ingest_private").iterdir():
        if path.name not in left:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert sweep(settings).erased == [run.launch_id]
    assert not (run.path / "private").exists()
    assert stated(run) == content


def test_text_of_an_ingestion_that_was_killed_goes_too(config: LaunchConfig, settings: Settings, at: Callable):
    """No record, no store: a window, and parts that workers had read."""
    run = run_folder(settings, launch_id(config))
    path = Path(config.private_text.paths[0])
    path.write_text(
        path.read_text(encoding="utf-8") + '{"client_id": null, "text": "x", "ts": "2026-03-01T00:00:00Z"}\n' * 200
    )
    with pytest.raises(ValueError, match="client_id"):
        run_stage("ingest_private", config, run.launch_id, settings, STAGES)
    write_text(run.path / "private" / "ingest_private" / PARTS / "1" / "0" / "words.bin", "typed")
    at(LAST)
    assert sweep(settings).erased == [run.launch_id]
    assert not (run.path / "private").exists()


def test_a_store_that_was_taken_over_has_the_window_of_its_text(
    run: RunDir, config: LaunchConfig, settings: Settings, at: Callable
):
    other = config.model_copy(update={"name": "other"})
    with mock.patch("federated.devices.store.build_store", side_effect=AssertionError("it reads the text again")):
        run_stage("ingest_private", other, launch_id(other), settings, STAGES)
    taken = run_folder(settings, launch_id(other))
    (taken.path / "public" / "ingest_private" / RESULT).unlink()
    at(LAST)
    assert sorted(sweep(settings).erased) == sorted([run.launch_id, taken.launch_id])


def test_one_launch_that_cannot_be_erased_keeps_no_other(run: RunDir, settings: Settings, at: Callable):
    for name, place in (("aaa", "private"), ("zzz", "private")):
        write_text(settings.runs_dir / name / place / "ingest_private" / "store" / "words.bin", "typed")
    (settings.runs_dir / "bbb").mkdir()
    (settings.runs_dir / "bbb" / "private").symlink_to(settings.runs_dir / "aaa", target_is_directory=True)
    write_text(settings.runs_dir / " no id " / "private" / "text", "typed")
    at(LAST)
    done = sweep(settings)
    assert done.erased == [run.launch_id]
    assert {failure.launch_id for failure in done.kept} == {"aaa", "bbb", "zzz", " no id "}
    assert all("damaged or gone" in failure.why for failure in done.kept if failure.launch_id in ("aaa", "zzz"))
    assert done.exit_code == PERMANENT


def test_a_stage_that_runs_is_waited_for(run: RunDir, settings: Settings, at: Callable):
    at(LAST)
    with run.lock("fine_tune"):
        done = sweep(settings)
        assert (done.erased, done.exit_code) == ([], TEMPORARY)
        assert text_left(run)
    assert sweep(settings).erased == [run.launch_id]


@pytest.mark.slow
def test_what_is_nobody_s_is_kept(settings: Settings, at: Callable):
    chat = launch_config()
    run_stage("ingest_private", chat, launch_id(chat), settings, STAGES)
    run = run_folder(settings, launch_id(chat))
    at(timedelta(days=10_000))
    assert sweep(settings) == Sweep()
    (run.path / "public" / "ingest_private" / RESULT).unlink()
    (run.path / "private" / "ingest_private" / WINDOW).unlink()
    assert sweep(settings) == Sweep()
    assert text_left(run)


def test_an_expired_launch_cannot_be_checked_and_makes_nothing_more(
    run: RunDir, config: LaunchConfig, settings: Settings, at: Callable
):
    at(LAST)
    sweep(settings)
    found = {check.id: check for check in verify(config, run, settings, ("files",))}
    assert found["private:ingest_private"].passed is None
    assert "cannot be checked: erased on" in found["private:ingest_private"].detail
    assert found["files"].passed
    with pytest.raises(PermanentError, match=r"discover: the private files .* were erased"):
        run_stage("discover", config, run.launch_id, settings, stages_of({"discover": lambda ctx: Counted(value=1)}))
    assert run_stage("ingest_private", config, run.launch_id, settings, STAGES).skipped
    assert not run_stage("decide", config, run.launch_id, settings, STAGES).skipped
    assert sweep(settings).exit_code == 0


@pytest.mark.slow
def test_the_command_says_what_was_kept_and_ends_with_its_code(run: RunDir, settings: Settings, at: Callable):
    at(LAST)
    with run.lock("ingest_private"):
        said = answered(settings.home, "erase", "--expired", code=TEMPORARY)
    assert said["erased"] == []
    assert [each["launch_id"] for each in said["kept"]] == [run.launch_id]
    assert answered(settings.home, "erase", "--expired") == {"erased": [run.launch_id], "kept": []}
    assert answered(settings.home, "erase", "--expired") == {"erased": [], "kept": []}


def test_a_person_erases_a_launch_of_which_nothing_can_be_read(settings: Settings):
    write_text(settings.runs_dir / "lost" / "private" / "ingest_private" / "store" / "words.bin", "typed")
    assert answered(settings.home, "erase", "lost", "--unverified")["files"] == 1
    assert not (settings.runs_dir / "lost" / "private").exists()


@pytest.mark.slow
def test_reading_text_and_beginning_a_launch_erase_what_is_over(
    run: RunDir, config: LaunchConfig, settings: Settings, at: Callable, tmp_path: Path
):
    """Though that launch then fails itself."""
    at(LAST)
    other = tmp_path / "other.yaml"
    write_text(other, json.dumps(config.model_dump(mode="json") | {"name": "other"}))
    answered(settings.home, "stage", "ingest_private", str(other), "--date", "20260101", code=PERMANENT)
    assert not (run.path / "private").exists()


def test_the_leaf_of_a_spend_outlives_the_launch_that_made_it(
    config: LaunchConfig, settings: Settings, at: Callable, tmp_path: Path
):
    """Without it a ledger of before the spend would have room again."""
    before = tmp_path / "before.db"
    run_stage("ingest_private", config, launch_id(config), settings, STAGES)
    shutil.copy(settings.runs_dir / "ledger.db", before)

    def killed(ctx: StageContext) -> Counted:
        raise OSError("the machine went away")

    with pytest.raises(OSError, match="went away"):
        run_stage("fine_tune", config, launch_id(config), settings, running(STAGES, fine_tune=killed))
    (reserved,) = PrivacyLedger.of(settings).spends()
    at(LAST)
    assert sweep(settings).erased == [launch_id(config)]
    log = Log(settings.log_dir)
    assert any(reserved.hash.encode() in leaf for leaf in log.leaves(log.size))
    shutil.copy(before, settings.runs_dir / "ledger.db")
    assert PrivacyLedger.of(settings).verify()
