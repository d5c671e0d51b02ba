"""A stage that does not come out the same is called wrong only where it should have."""

from pathlib import Path

import pytest

from pipeline.ground.settings import load, processor
from pipeline.run.run_dir import RunDir, StageRecord
from pipeline.verify import replay
from tests.helpers.launches.pipeline_launch import launch_config

ELSEWHERE = "Another Processor 9000, torch 2.13.0"


def checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, made_on: str, wrong: list[str], of_this_code: bool
) -> replay.Check:
    monkeypatch.setattr(replay, "second_run_differences", lambda *_: iter(wrong))
    monkeypatch.setattr(replay, "is_gone", lambda *_: False)
    run = RunDir(tmp_path / "runs", "trial-1")
    run.public(stage)
    record = StageRecord(
        launch_id="trial-1",
        stage=stage,
        config_digest="",
        inputs={},
        outputs={},
        private_outputs=False,
        started_at="",
        seconds=0,
        processor=made_on,
        result={},
    )
    settings = load({"TACIT_HOME": str(tmp_path)})
    return replay.replay_one(stage, launch_config(), run, settings, record, of_this_code)


@pytest.mark.parametrize(
    ("stage", "made_on", "wrong", "passed"),
    [
        ("pretrain", None, [], True),
        ("pretrain", None, ["validation_loss"], False),
        ("pretrain", ELSEWHERE, [], True),
        ("pretrain", ELSEWHERE, ["validation_loss"], None),
        ("audit", ELSEWHERE, ["canaries[3].rank"], None),
        # Words, stores and decisions are the same on every processor.
        ("discover", ELSEWHERE, ["words_found"], False),
        ("decide", ELSEWHERE, ["decision"], False),
    ],
)
def test_only_what_another_kind_of_processor_may_have_moved_is_not_called_wrong(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stage: str,
    made_on: str | None,
    wrong: list[str],
    passed: bool | None,
) -> None:
    check = checked(tmp_path, monkeypatch, stage, made_on or processor(), wrong, of_this_code=True)
    assert check.passed is passed
    if passed is None:
        assert check.detail.startswith(f"made on {ELSEWHERE}; this is {processor()}, whose last digits may differ: ")


def test_training_that_several_processors_did_is_not_called_wrong_on_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = f"{ELSEWHERE}; {processor()}"
    assert checked(tmp_path, monkeypatch, "adapt", both, ["curve"], of_this_code=True).passed is None


def test_a_processor_is_named_with_its_libraries_and_what_they_are_told() -> None:
    here = processor({})
    assert "torch " in here
    assert "llvmlite " in here
    assert processor({"MKL_CBWR": "COMPATIBLE", "HOME": "/"}) == f"{here}, MKL_CBWR=COMPATIBLE"
