"""The context of training, for the tests in this folder."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.helpers.launches.training_context import training_context


@pytest.fixture
def ctx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    return training_context(tmp_path, monkeypatch)
