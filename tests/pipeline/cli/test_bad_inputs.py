"""Every bad input of ``tests/bad_inputs`` ends soon, with the right exit code, and with words that help."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline.stages.graph import STAGES
from pipeline.tracking import mlflow_tracker
from tests.bad_inputs import bundles, cases, rows
from tests.bad_inputs.cases import Case

ROWS, BUNDLES = rows.of_rows(), bundles.of_bundles()
# To be refused, they must first be unpacked as far as anybody allows.
LARGE = ("a hundred million spaces", "one letter many million times", "twenty megabytes", "unpack to much")
FIELDS, DOCUMENTS, COMMANDS = cases.of_fields(), cases.of_documents(), cases.of_commands()


def marked(given: Sequence[Case]) -> list[object]:
    """Cases, slow ones marked; most files are damaged in the same way as private text and as public."""

    def slow(name: str) -> bool:
        return name.endswith(LARGE) or name.startswith("public: ")

    return [pytest.param(case, marks=pytest.mark.slow) if slow(str(case)) else case for case in given]


@pytest.mark.parametrize("case", [*FIELDS, *DOCUMENTS, *COMMANDS], ids=str)
def test_ends_as_it_must(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert cases.complaint(case, cases.run(case, tmp_path, monkeypatch)) == ""


@pytest.fixture(scope="module")
def _imported() -> None:
    """Torch and its like, once and before a clock runs."""
    for stage in STAGES.values():
        assert callable(stage.function), "its module is imported with it"


@pytest.mark.usefixtures("_imported")
@pytest.mark.parametrize("case", marked(ROWS), ids=str)
def test_text_that_somebody_damaged(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mlflow_tracker, "MlflowTracker", rows.NoTracker)
    assert cases.complaint(case, cases.run(case, tmp_path, monkeypatch)) == ""


@pytest.mark.usefixtures("_imported")
@pytest.mark.parametrize("case", marked(BUNDLES), ids=str)
def test_bundles_that_somebody_damaged(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert cases.complaint(case, cases.run(case, tmp_path, monkeypatch)) == ""


def test_there_are_enough_of_them():
    assert sum(map(len, (FIELDS, DOCUMENTS, COMMANDS, ROWS, BUNDLES))) >= 600
