"""The notebooks of the documents run, and show what they show."""

import re
from pathlib import Path

import pytest

from tests.helpers.launches.checkout import ROOT
from tests.helpers.text.notebooks import load, outputs

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def shown(found: list[dict], *, numbers: bool) -> list[object]:
    """Text of outputs, and the kind of each picture. Seconds and, where training rounds, other numbers may differ."""
    texts = []
    for output in found:
        data = output.get("data", {})
        text = "".join(output.get("text") or data.get("text/plain") or ())
        text = re.sub(r"[0-9.]+ s of CPU", "", text) if numbers else re.sub(r"[0-9.,%]+|(?<=  ).*", "", text)
        texts.append((sorted(data), text))
    return texts


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
# MLflow's own code uses what SQLAlchemy 2.1 deprecates, and warns about type hints of its own.
@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")
def test_a_notebook_shows_what_it_was_committed_with(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("TACIT_HOME", "")  # the notebook sets its own; restored after the test
    notebook = load(path)
    kept = [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    made, numbers = outputs(notebook), path.stem == "accounting"
    assert [shown(each, numbers=numbers) for each in made] == [shown(each, numbers=numbers) for each in kept]
    assert sum("image/png" in output.get("data", {}) for found in kept for output in found) == 2


def test_a_cell_that_fails_is_an_error() -> None:
    with pytest.raises(ZeroDivisionError):
        outputs({"cells": [{"cell_type": "code", "source": ["1 / 0"]}]})
