"""Erasure of a launch's private half; earlier verdicts stay."""

import dataclasses
import json

import pytest

from pipeline.ground.errors import PermanentError
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run.run_dir import ERASED
from pipeline.run.runner import find_done
from pipeline.verify.erase import erase
from pipeline.verify.expiry import sweep
from tests.golden.tampering.checking import checks, not_passed
from tests.golden.tampering.edits import Launch, removed, stated

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
]


def config_of(launch: Launch) -> LaunchConfig:
    return LaunchConfig.model_validate_json(launch.file("public/launch/launch.json").read_bytes())


def test_nothing_private_is_left_and_the_launch_still_verifies(launch: Launch) -> None:
    done = erase(config_of(launch), launch.run, launch.settings)
    assert done.verified
    assert done.files > 10
    assert not launch.file("private").exists()
    found = checks(launch)
    assert {name: check.detail for name, check in found.items() if check.passed is not True} == {}
    assert "the whole launch had verified before" in found["private:fine_tune"].detail
    assert erase(config_of(launch), launch.run, launch.settings) == done, "again, it changes nothing"
    for stage in ("ingest_private", "fine_tune", "publish"):
        assert find_done(stage, config_of(launch), launch.run.launch_id, launch.settings), "nothing is redone"


def test_a_statement_that_the_ledger_does_not_know_verifies_nothing(launch: Launch) -> None:
    removed("private")(launch)
    forged = {"erased_at": "2026-11-22T10:00:00+00:00", "verified": True}
    launch.file(f"public/launch/{ERASED}").write_text(json.dumps(forged), encoding="utf-8")
    assert "private:fine_tune" in not_passed(launch, "files")
    assert {"again:audit", "again:ab_test"} <= not_passed(launch, "again")


def test_what_does_not_verify_is_kept_unless_asked(launch: Launch) -> None:
    stated("audit", "worst_rank_single_user", 9_999)(launch)
    with pytest.raises(PermanentError, match=r"does not verify \(bound:audit"):
        erase(config_of(launch), launch.run, launch.settings)
    assert launch.file("private/fine_tune/key").exists() or launch.file("private/fine_tune").is_dir()
    done = erase(config_of(launch), launch.run, launch.settings, unverified=True)
    assert not done.verified
    assert "private:fine_tune" in not_passed(launch, "files")


def test_a_launch_that_is_not_over_is_kept(launch: Launch) -> None:
    removed("public/publish/result.json")(launch)
    with pytest.raises(PermanentError, match="has not ended"):
        erase(config_of(launch), launch.run, launch.settings)


def test_retention(launch: Launch) -> None:
    assert sweep(launch.settings).erased == []
    assert sweep(dataclasses.replace(launch.settings, retention_days=30.0)).erased == []
    assert launch.file("private").is_dir()
    assert sweep(dataclasses.replace(launch.settings, retention_days=0.0)).erased == [launch.run.launch_id]
    assert not launch.file("private").exists()
    assert PrivacyLedger.of(launch.settings).verify() == []
