"""The key of a release's noise: drawn, never derived, and never one that anyone can make."""

import hashlib
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.ground.errors import PermanentError
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run import runner
from pipeline.run.known import run_folder
from pipeline.run.run_dir import RunDir
from pipeline.run.stage import release_key
from tests.helpers.launches.pipeline_launch import Calls, launch_config

CONFIG = launch_config(mechanism={"randomness": "secure"})
ID = launch_id(CONFIG)
DERIVED: dict[str, Callable[[RunDir, str], bytes]] = {
    "launch and stage": lambda run, stage: hashlib.sha256(f"v2/{run.launch_id}{stage}".encode()).digest(),
    "a long constant and the launch": lambda run, stage: hashlib.blake2s(f"{run.launch_id}.7f3a".encode()).digest(),
    "the stage alone": lambda run, stage: hashlib.sha3_256(f"pepper|{stage}".encode()).digest(),
    "one key for everything": lambda run, stage: hashlib.sha256(b"chosen once, and named by no launch").digest(),
}


def run_all(settings: Settings, calls: Calls, config: LaunchConfig = CONFIG) -> None:
    for name in ("ingest_private", "plan", "fine_tune"):
        runner.run_stage(name, config, launch_id(config), settings, calls.stages)


def test_a_key_is_what_the_system_gave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = bytes(range(7, 39))
    monkeypatch.setattr(secrets, "token_bytes", lambda size: given[:size])
    assert RunDir(tmp_path, "launch-1").secret("count") == given


def test_the_same_launch_elsewhere_has_another_key(tmp_path: Path) -> None:
    keys = {release_key(CONFIG, RunDir(tmp_path / place, ID), "count") for place in ("one", "other")}
    assert len(keys) == 2


@pytest.mark.parametrize("way", DERIVED)
def test_a_key_that_is_derived_reserves_nothing(settings: Settings, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setattr(RunDir, "secret", DERIVED[way])
    calls = Calls()
    with pytest.raises(PermanentError, match="fine_tune/key: anyone could make this key"):
        run_all(settings, calls)
    assert PrivacyLedger.of(settings).reserved(ID, "fine_tune") is None
    assert "fine_tune" not in calls.made


@pytest.mark.parametrize(
    "key",
    [
        bytes(32),
        (7).to_bytes(32, "big"),
        hashlib.sha256(b"11").digest(),
        hashlib.sha256(ID.encode()).digest(),
        hashlib.sha256(f"v2/{ID}fine_tune".encode()).digest(),
        ID.encode()[:32].ljust(32, b"\0"),
    ],
)
def test_a_key_that_anyone_can_make_reserves_nothing(settings: Settings, key: bytes) -> None:
    """Planted in its file, whatever draws."""
    (run_folder(settings, ID).private("fine_tune") / "key").write_bytes(key)
    with pytest.raises(PermanentError, match="fine_tune/key: anyone could make this key") as refused:
        run_all(settings, Calls())
    assert key.hex() not in str(refused.value)
    assert PrivacyLedger.of(settings).reserved(ID, "fine_tune") is None


def test_a_seeded_key_is_public_as_its_launch_file_says(tmp_path: Path) -> None:
    seeded = launch_config(mechanism={"randomness": "seeded"})
    keys = {release_key(seeded, RunDir(tmp_path / place, ID), "count") for place in ("one", "other")}
    assert keys == {hashlib.sha256(f"tacit seeded {seeded.seed} count".encode()).digest()}


def test_a_key_copied_into_another_launch_reserves_nothing(settings: Settings) -> None:
    run_all(settings, Calls())
    other = launch_config(name="other", mechanism={"randomness": "secure"})
    folder = run_folder(settings, launch_id(other)).private("fine_tune")
    (folder / "key").write_bytes((run_folder(settings, ID).private("fine_tune") / "key").read_bytes())
    calls = Calls()
    with pytest.raises(PermanentError, match=f"{ID}/fine_tune has this key"):
        run_all(settings, calls, other)
    assert "fine_tune" not in calls.made
    (folder / "key").unlink()
    run_all(settings, calls, other)
    assert PrivacyLedger.of(settings).verify() == []
