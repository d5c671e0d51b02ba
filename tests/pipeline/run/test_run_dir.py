"""Paths, digests and locks."""

import multiprocessing
import os
import shutil
from pathlib import Path

import pytest

from pipeline.ground.errors import StageBusy, StageInputMissing
from pipeline.run.known import as_it_lies
from pipeline.run.run_dir import RESULT, RunDir, StageRecord, record_digest, record_text
from pretrain.files import write_bytes, write_text


def finish(run: RunDir, stage: str, **changes: object) -> StageRecord:
    """Write a stage's record over whatever files it has."""
    record = StageRecord(
        launch_id=run.launch_id,
        stage=stage,
        config_digest="c",
        inputs={},
        outputs=run.manifest(stage),
        private_outputs=False,
        started_at="2026-11-21T00:00:00+00:00",
        seconds=1.0,
        processor="any",
        result={"value": 3},
    ).model_copy(update=changes)
    write_text(run.public(stage) / RESULT, record_text(record))
    return record


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "runs", "trial-0123abcd", as_it_lies)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_private_folders_are_closed_whatever_the_umask(run: RunDir):
    old = os.umask(0)
    try:
        folder = run.private("fine_tune")
    finally:
        os.umask(old)
    assert mode(folder) == mode(folder.parent) == 0o700
    folder.chmod(0o755)
    assert mode(run.private("fine_tune")) == 0o700


def test_the_root_of_a_volume_keeps_its_mode(run: RunDir):
    """Kubernetes gives every file of a volume to a group anew once the mode of its root differs (docker/kubernetes)."""
    run.root.mkdir()
    run.root.chmod(0o2770)
    run.secret("fine_tune")
    run.public("fine_tune")
    assert run.root.stat().st_mode & 0o7777 == 0o2770
    assert mode(run.private("fine_tune")) == 0o700


def test_a_key_is_drawn_once_and_kept_closed(run: RunDir):
    key = run.secret("fine_tune")
    assert len(key) == 32
    assert run.secret("fine_tune") == key
    assert run.secret("discover") != key
    assert mode(run.private("fine_tune") / "key") == 0o600
    (run.private("fine_tune") / "key").write_bytes(b"short")
    with pytest.raises(ValueError, match="5 bytes, but a key has 32"):
        run.secret("fine_tune")


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "-x", "a b"])
def test_a_launch_id_cannot_leave_the_runs_folder(tmp_path: Path, name: str):
    with pytest.raises(ValueError, match="is not a launch id"):
        RunDir(tmp_path, name)


def test_manifest_holds_what_is_finished_and_public(run: RunDir):
    write_text(run.public("plan") / "a.txt", "a")
    write_text(run.public("plan") / "deep" / "b.txt", "b")
    (run.public("plan") / ".a.txt.12.tmp").write_text("half")
    finish(run, "plan")
    assert list(run.manifest("plan")) == ["a.txt", "deep/b.txt"]


def test_a_link_cannot_carry_private_bytes_out(run: RunDir):
    secret = run.private("plan") / "secret"
    secret.write_text("private")
    (run.public("plan") / "innocent.txt").symlink_to(secret)
    with pytest.raises(ValueError, match="symbolic link"):
        run.manifest("plan")


def test_input_checks_bytes_and_notes_what_was_used(run: RunDir):
    write_text(run.public("plan") / "deep" / "b.txt", "b")
    record = finish(run, "plan")
    assert run.input("plan", "deep/b.txt").read_text() == "b"
    assert run.input("plan", "deep").is_dir()
    assert run.result("plan") == {"value": 3}
    assert run.used == {"plan/deep/b.txt": record.outputs["deep/b.txt"], f"plan/{RESULT}": record_digest(record)}
    (run.public("plan") / "deep" / "b.txt").write_text("changed")
    with pytest.raises(StageInputMissing, match="neither on this machine nor in MLflow"):
        run.input("plan", "deep/b.txt")
    with pytest.raises(StageInputMissing, match=r"wrote no 'c\.txt'; it wrote deep/b\.txt"):
        run.input("plan", "c.txt")
    with pytest.raises(StageInputMissing, match="has not finished"):
        run.result("adapt")


def test_missing_files_are_fetched_and_checked(run: RunDir, tmp_path: Path):
    write_text(run.public("plan") / "deep" / "b.txt", "b")
    finish(run, "plan")
    store = tmp_path / "store"
    shutil.move(run.path / "public", store)
    asked = []

    def fetch(stage: str, filename: str, destination: Path) -> bool:
        asked.append(filename)
        if (store / stage / filename).exists():
            write_bytes(destination, (store / stage / filename).read_bytes())
            return True
        return False

    remote = RunDir(run.root, run.launch_id, as_it_lies, fetch)
    assert remote.input("plan", "deep/b.txt").read_text() == "b"
    assert remote.record("adapt") is None
    assert asked == [RESULT, "deep/b.txt", RESULT]
    (remote.public("plan") / "deep" / "b.txt").unlink()
    (store / "plan" / "deep" / "b.txt").write_text("not what was logged")
    with pytest.raises(StageInputMissing):
        remote.input("plan", "deep/b.txt")


def test_record_digest_ignores_times_and_curves_but_not_results(run: RunDir):
    record = finish(run, "plan", result={"value": 3, "curve": [{"step": 1, "seconds": 0.5}]})
    again = record.model_copy(update={"seconds": 9.0, "result": {"curve": [{"step": 1, "seconds": 0.7}], "value": 3}})
    assert record_digest(again) == record_digest(record)
    assert record_digest(record.model_copy(update={"result": {"value": 4}})) != record_digest(record)
    assert record_digest(record.model_copy(update={"outputs": {"x": "y"}})) != record_digest(record)


def test_a_broken_record_says_what_to_do(run: RunDir):
    write_text(run.public("plan") / RESULT, "{}")
    with pytest.raises(ValueError, match="delete it and run the stage again"):
        run.record("plan")


def _hold(root: Path, held, release) -> None:
    with RunDir(root, "trial-0123abcd").lock("plan"):
        held.set()
        release.wait()


def test_one_process_at_a_time_and_a_dead_one_holds_nothing(run: RunDir):
    context = multiprocessing.get_context("fork")
    held, release = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(run.root, held, release))
    other.start()
    assert held.wait(300)
    with pytest.raises(StageBusy, match=f"process {other.pid}"), run.lock("plan"):
        pass
    with run.lock("adapt"):
        pass
    other.kill()
    other.join(300)
    with run.lock("plan"):
        pass


def test_a_folder_that_was_opened_without_a_ledger_shows_no_record(run: RunDir):
    finish(run, "plan")
    with pytest.raises(ValueError, match=r"trial-0123abcd/plan: .* without a ledger .* known.run_folder"):
        RunDir(run.root, run.launch_id).record("plan")


def test_a_record_that_is_not_believed_counts_as_absent(run: RunDir):
    finish(run, "plan")
    unknown = RunDir(run.root, run.launch_id, lambda record: False)
    assert unknown.record("plan") is None
    with pytest.raises(StageInputMissing, match=r"does not match the ledger .* run stage 'plan' again"):
        unknown.result("plan")
    with pytest.raises(StageInputMissing, match="'adapt' has not finished"):
        unknown.result("adapt")
