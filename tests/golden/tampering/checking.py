"""Verdicts of ``tacit verify`` on a launch that was tampered with."""

import warnings

from pipeline.launch.config import LaunchConfig
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.verify import replay
from pipeline.verify.check import Check
from pipeline.verify.launch import SUBJECTS, verify
from pipeline.verify.report import of_this_code
from tests.golden.tampering.edits import Launch


def checks(launch: Launch, only: tuple[str, ...] = SUBJECTS) -> dict[str, Check]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {check.id: check for check in verify(_config(launch), launch.run, launch.settings, only)}


def not_passed(launch: Launch, *only: str) -> set[str]:
    return {name for name, check in checks(launch, only or SUBJECTS).items() if check.passed is not True}


def again(launch: Launch, stage: str) -> Check:
    """One check of the subject "again": a stage made once more, without all others that would be."""
    record = launch.run.record(stage)
    assert record is not None, stage
    ours = of_this_code(launch.run, launch.settings, PrivacyLedger.of(launch.settings))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return replay.replay_one(stage, _config(launch), launch.run, launch.settings, record, ours)


def _config(launch: Launch) -> LaunchConfig:
    path = launch.settings.runs_dir / launch.run.launch_id / "public" / "launch" / "launch.json"
    return LaunchConfig.model_validate_json(path.read_bytes())
