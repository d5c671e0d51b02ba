"""Somebody withdraws: no later launch reads their text, and every launch here that has read it is erased."""

import io
import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from federated.devices import pieces
from pipeline.ground import clock
from pipeline.ground.errors import PERMANENT, TEMPORARY, PermanentError
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run.bookkeeping import PARTS, WINDOW
from pipeline.run.known import run_folder
from pipeline.run.run_dir import ERASED, RESULT, RunDir
from pipeline.run.runner import run_stage
from pipeline.stages.graph import STAGES
from pipeline.verify import withdrawal
from pipeline.verify.erase import ASKED
from pipeline.verify.expiry import Sweep, sweep
from pretrain.files import write_text
from tests.helpers.launches.command import answered, ended
from tests.helpers.launches.installed import registered
from tests.helpers.launches.spends import budget
from tests.helpers.text.people import NOW, people

ANNA = "device 3"


@pytest.fixture
def config(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LaunchConfig:
    monkeypatch.setattr(clock, "now", lambda: NOW)
    registered(PrivacyLedger.of(settings), "real", budget=budget(max_rho=1.0, window_days=30))
    return people(tmp_path)


@pytest.fixture
def ingested(config: LaunchConfig, settings: Settings) -> Callable[..., RunDir]:
    def make(name: str = "trial") -> RunDir:
        named = config.model_copy(update={"name": name})
        run_stage("ingest_private", named, launch_id(named), settings, STAGES)
        return run_folder(settings, launch_id(named))

    return make


def devices(run: RunDir) -> list[str]:
    return pieces.device_ids(run.path / "private" / "ingest_private" / "store")


@pytest.mark.slow
def test_launches_that_read_their_text_are_erased_and_later_ones_do_not(
    ingested: Callable[..., RunDir], settings: Settings, tmp_path: Path
):
    before = ingested()
    assert ANNA in devices(before)
    listed = tmp_path / "withdrawn.txt"
    listed.write_text(ANNA + "\n", encoding="utf-8")
    said = answered(settings.home, "withdraw", "real", "--ids", str(listed))
    assert said == {"population": "real", "seen": "all", "erased": [before.launch_id], "kept": []}
    assert not (before.path / "private").exists()
    after = ingested("later")
    assert len(devices(after)) == 19
    assert ANNA not in devices(after)
    record = after.record("ingest_private")
    assert record is not None
    assert record.reused_from is None, "what was read before they withdrew is other text"
    assert sweep(settings) == Sweep(), "who was left out when it was read is not in it"
    answered(settings.home, "withdraw", "real", "--ids", str(listed))
    assert devices(after), "the same again changes nothing"


def test_a_launch_that_never_had_their_text_is_kept(ingested: Callable[..., RunDir], settings: Settings):
    run = ingested()
    PrivacyLedger.of(settings).withdraw("real", ["device 99"])
    assert sweep(settings) == Sweep()
    assert len(devices(run)) == 20


def test_a_launch_of_another_population_is_kept(ingested: Callable[..., RunDir], settings: Settings):
    run = ingested()
    PrivacyLedger.of(settings).register("others", budget(max_rho=1.0), "owner")
    PrivacyLedger.of(settings).withdraw("others", [ANNA])
    assert sweep(settings) == Sweep()
    write_text(run.path / "public" / "launch" / "launch.json", "{")
    assert sweep(settings).erased == [run.launch_id], "which population's it is cannot be told"


def test_an_unfinished_launch_is_refused_from_then_on(
    ingested: Callable[..., RunDir], config: LaunchConfig, settings: Settings
):
    run = ingested()
    PrivacyLedger.of(settings).withdraw("real", [ANNA])
    sweep(settings)
    with pytest.raises(PermanentError, match="under another name"):
        run_stage("discover", config, run.launch_id, settings, STAGES)


def test_nothing_says_that_somebody_withdrew(
    ingested: Callable[..., RunDir], settings: Settings, caplog: pytest.LogCaptureFixture
):
    run = ingested()
    PrivacyLedger.of(settings).withdraw("real", [ANNA])
    sweep(settings)
    stated = json.loads((run.path / "public" / "launch" / ERASED).read_text(encoding="utf-8"))
    assert stated["because"] == ASKED
    later = ingested("later")
    public = "".join(path.read_text(errors="replace") for path in later.path.joinpath("public").rglob("*.json"))
    for told in (json.dumps(stated), public, caplog.text):
        assert "withdr" not in told
        assert ANNA not in told
    assert later.result("ingest_private")["devices_at_least"] == 10, "rounded down, as ever"


@pytest.mark.parametrize("damage", ["clients.parquet", "whole store", "parts", "leavings"])
def test_where_it_cannot_be_told_whose_text_it_is_it_goes(
    ingested: Callable[..., RunDir], settings: Settings, damage: str
):
    run = ingested()
    folder = run.path / "private" / "ingest_private"
    if damage == "clients.parquet":
        (folder / "store" / "clients.parquet").write_bytes(b"PAR1")
    elif damage == "whole store":
        for path in (folder / "store").glob("clients*"):
            path.unlink()
    elif damage == "parts":
        write_text(folder / PARTS / "1" / "0" / "forms.bin", "typed")
    else:
        write_text(folder / ".taken.4194999.in-abc.tmp" / "words.bin", "typed")
    PrivacyLedger.of(settings).withdraw("real", ["device 99"])
    assert sweep(settings).erased == [run.launch_id]


def test_text_that_was_read_again_and_never_finished_is_no_longer_there(
    ingested: Callable[..., RunDir], config: LaunchConfig, settings: Settings
):
    """The window beside it says who is left out of what is read now, so nothing of before may stay."""
    run = ingested()
    PrivacyLedger.of(settings).withdraw("real", [ANNA])
    (run.path / "public" / "ingest_private" / RESULT).unlink()
    typed = Path(config.private_text.paths[0])
    typed.write_text(typed.read_text(encoding="utf-8") + '{"client_id": null, "text": "x"}\n' * 200, encoding="utf-8")
    with pytest.raises(ValueError, match="client_id"):
        run_stage("ingest_private", config, run.launch_id, settings, STAGES)
    assert not list((run.path / "private" / "ingest_private").rglob("clients.parquet"))


def test_a_withdrawal_that_was_killed_is_finished_by_the_next_sweep(
    ingested: Callable[..., RunDir], settings: Settings
):
    run = ingested()
    PrivacyLedger.of(settings).withdraw("real", [ANNA])  # and no further
    assert answered(settings.home, "erase", "--expired")["erased"] == [run.launch_id]


def test_a_stage_that_runs_is_waited_for(ingested: Callable[..., RunDir], settings: Settings, tmp_path: Path):
    run, listed = ingested(), tmp_path / "withdrawn.txt"
    listed.write_text(ANNA, encoding="utf-8")
    with run.lock("discover"):
        said = answered(settings.home, "withdraw", "real", "--ids", str(listed), code=TEMPORARY)
        assert said["erased"] == []
        assert ANNA not in devices(ingested("later")), "others leave them out already"
    assert answered(settings.home, "withdraw", "real", "--ids", str(listed))["erased"] == [run.launch_id]


def test_windows_do_not_wait_for_the_list(
    ingested: Callable[..., RunDir], settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    run = ingested()
    PrivacyLedger.of(settings).withdraw("real", ["device 99"])
    (settings.runs_dir / "ledger.db").write_bytes(b"not a database" * 100)
    monkeypatch.setattr(clock, "now", lambda: NOW + timedelta(days=31))
    assert sweep(settings).exit_code == PERMANENT
    assert not list((run.path / "private").rglob("*.bin"))


def test_a_launch_without_a_window_beside_its_text_is_asked_for_its_devices(
    ingested: Callable[..., RunDir], settings: Settings
):
    run = ingested()
    (run.path / "private" / "ingest_private" / WINDOW).unlink()
    PrivacyLedger.of(settings).withdraw("real", ["device 99"])
    assert sweep(settings) == Sweep()
    PrivacyLedger.of(settings).withdraw("real", [ANNA])
    assert sweep(settings).erased == [run.launch_id]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a\nb\n", {"a", "b"}),
        (b"a\r\nb", {"a", "b"}),
        (b"\xef\xbb\xbfa\n\n", {"a"}),
        (b" a \n", {" a "}),
        ("\u00e9\n".encode(), {"\u00e9"}),
    ],
)
def test_a_list_is_read_byte_for_byte(tmp_path: Path, content: bytes, expected: set[str]):
    path = tmp_path / "ids.txt"
    path.write_bytes(content)
    assert withdrawal.read_ids(path) == expected


def test_a_list_that_never_ends_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path / "pipe", "a pipe"), (Path("/dev/zero"), "a device"), (tmp_path, "a folder")):
        with pytest.raises(ValueError, match=f"^--ids: .* is {kind}, not a file; give a file, or - for standard input"):
            withdrawal.read_ids(path)
    monkeypatch.setattr(withdrawal, "MOST_BYTES", 10)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\n" * 6)))
    with pytest.raises(ValueError, match="more than 10 bytes on standard input"):
        withdrawal.read_ids(None)


def test_a_list_may_be_a_table_as_the_text_is(tmp_path: Path):
    pq.write_table(pa.table({"client_id": [7, 12], "text": ["x", "y"]}), tmp_path / "ids.parquet")
    assert withdrawal.read_ids(tmp_path / "ids.parquet") == {"7", "12"}
    (tmp_path / "ids.csv").write_text("text,client_id\nx,7\n", encoding="utf-8")
    assert withdrawal.read_ids(tmp_path / "ids.csv") == {"7"}
    (tmp_path / "ids.jsonl").write_text('{"client_id": "a\\nb"}\n', encoding="utf-8")
    assert withdrawal.read_ids(tmp_path / "ids.jsonl") == {"a\nb"}


@pytest.mark.parametrize(("content", "problem"), [(b"\n\r\n", "holds no id"), (b"a\n\xff\n", "line 2 is not UTF-8")])
def test_a_list_that_is_none_is_refused_before_anything_is_written(
    config: LaunchConfig, settings: Settings, tmp_path: Path, content: bytes, problem: str
):
    path = tmp_path / "ids.txt"
    path.write_bytes(content)
    assert problem in answered(settings.home, "withdraw", "real", "--ids", str(path), code=PERMANENT)["error"]
    assert not [entry for entry in PrivacyLedger.of(settings).entries() if entry.kind == "withdrawal"]


def test_ids_never_stand_on_a_command_line():
    ended("withdraw", "real", ANNA, code=2)
