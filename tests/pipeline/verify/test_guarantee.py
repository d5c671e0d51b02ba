"""The one number is derived again from what layers and releases show, and any other one is no proof."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.covered.together import composed, together
from pipeline.verify.guarantee import whole
from reports.disclosure.together import Together
from tests.helpers.launches.pipeline_launch import launch_config
from tests.helpers.reports.reports_example import block, example
from tests.helpers.reports.spent import DELTA, discovered

WORDS = discovered((2_000_000, 30))
COUNTS = {"noise_multiplier": 2.0, "model": "start-mixture"}


def checked(
    tmp_path: Path, stated: Together | None, words: dict = WORDS, version: str = "1.2"
) -> dict[str, bool | None]:
    """What verifying says of a launch that ships counts, by check; its disclosure states this one number."""
    report = tmp_path / "public" / "report"
    report.mkdir(parents=True)
    accounting = block("accounting", delta=DELTA, together=stated and stated.model_dump())
    hidden = block("discovery", device_epsilon_central=None)
    text = example(accounting=accounting, discovery=hidden, schema_version=version).model_dump_json()
    (report / "disclosure.json").write_text(text, encoding="utf-8")
    records = {name: SimpleNamespace(result=words) for name in ("fine_tune", "plan", "discover")}
    checks = whole(launch_config(counts=COUNTS), SimpleNamespace(path=tmp_path), records)  # type: ignore[arg-type]
    return {check.id: check.passed for check in checks}


def right() -> Together:
    spend = {"unit": "device", "adjacency": "zero-out", "epsilon": 1.0, "delta": DELTA, "rho": 0.125}
    results = {"discover": WORDS, "count": {"spend": spend}, "fine_tune": {"spend": spend | {"rho": 0.0}}}
    bound = together(launch_config(counts=COUNTS), SimpleNamespace(result=results.__getitem__))  # type: ignore[arg-type]
    assert bound is not None
    return bound


@pytest.mark.slow
def test_the_one_number_is_derived_again(tmp_path: Path) -> None:
    assert checked(tmp_path, right())["one_number"] is True


@pytest.mark.slow
@pytest.mark.parametrize("words", [0.5, 1.5])
def test_another_number_of_words_is_noticed(tmp_path: Path, words: float) -> None:
    bound = right()
    other = composed(words * bound.words_epsilon, bound.noised_epsilon, DELTA)
    assert checked(tmp_path, other)["one_number"] is False


@pytest.mark.slow
def test_a_number_that_is_missing_or_worth_nothing_is_noticed(tmp_path: Path) -> None:
    demo = block("discovery")
    assert checked(tmp_path / "missing", None)["one_number"] is False
    assert checked(tmp_path / "weak", right(), demo)["one_number"] is False
    assert checked(tmp_path / "none", None, demo)["one_number"] is True
    assert "one_number" not in checked(tmp_path / "before", None, version="1.1")  # which stated none
