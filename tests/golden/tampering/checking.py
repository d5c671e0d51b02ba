"""What ``tacit verify`` says of a launch that was tampered with."""

import warnings

from pipeline.config import LaunchConfig
from pipeline.verify.check import Check
from pipeline.verify.launch import SUBJECTS, verify
from tests.golden.tampering.edits import Launch


def checks(launch: Launch, only: tuple[str, ...] = SUBJECTS) -> dict[str, Check]:
    config = LaunchConfig.model_validate_json(
        (launch.settings.runs_dir / launch.run.launch_id / "public" / "launch" / "launch.json").read_bytes()
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {check.id: check for check in verify(config, launch.run, launch.settings, only)}


def not_passed(launch: Launch, *only: str) -> set[str]:
    return {name for name, check in checks(launch, only or SUBJECTS).items() if check.passed is not True}
