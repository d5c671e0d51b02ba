"""Permitted differences between a stage and its second run."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from pipeline.run.run_dir import RunDir, StageRecord
from pipeline.run.second_run import file_differences

FILES = {"mechanism.json": '{"lags": [[1.0, 0.25]], "kind": "banded"}', "model.bin": "0.25", "words.txt": "0.25"}


def run(root: Path, files: Mapping[str, str]) -> RunDir:
    made = RunDir(root, "launch-1")
    for name, content in files.items():
        (made.public("plan") / name).write_text(content)
    return made


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"mechanism.json": '{"kind": "banded", "lags": [[1, 0.2500000000000004]]}'}, []),
        ({"mechanism.json": '{"kind": "banded", "lags": [[1, 0.2501]]}'}, ["mechanism.json was changed"]),
        ({"mechanism.json": '{"kind": "tree", "lags": [[1, 0.25]]}'}, ["mechanism.json was changed"]),
        ({"mechanism.json": '{"kind": "banded", "lags": [[1, 0.25, 0]]}'}, ["mechanism.json was changed"]),
        ({"model.bin": "0.2500000000000004"}, ["model.bin was changed"]),
        ({"words.txt": "0.2500000000000004"}, ["words.txt was changed"]),
        ({"more.json": "1"}, ["more.json was added"]),
    ],
)
def test_numbers_may_differ_in_their_last_digits_and_nothing_else(
    tmp_path: Path, changes: Mapping[str, str], expected: list[str]
) -> None:
    before, again = run(tmp_path / "before", FILES), run(tmp_path / "again", {**FILES, **changes})
    record = StageRecord(
        launch_id="launch-1",
        stage="plan",
        config_digest="",
        inputs={},
        outputs=before.manifest("plan"),
        private_outputs=False,
        started_at="",
        seconds=0,
        processor="any",
        result={},
    )
    assert list(file_differences(record, before, again)) == expected
    (again.public("plan") / "model.bin").unlink()
    left = [line for line in expected if not line.startswith("model.bin")]
    assert sorted(file_differences(record, before, again)) == sorted([*left, "model.bin is lost"])
