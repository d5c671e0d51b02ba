"""A gate's value is rounded once: its evidence and every page state the same digits."""

import pytest

from pipeline.publication.gates.gate import at_least, at_most, rounded
from reports.losses import up


@pytest.mark.parametrize(
    ("value", "threshold", "passed", "shown"),
    [
        (0.500011, 1.0, True, "0.5001"),  # at most: up, towards the threshold
        (1.000001, 1.0, False, "1.001"),  # not 1, which would look like a pass
        (0.0264399, 0.0, True, "0.02643"),  # at least: down
        (-0.0264391, 0.0, False, "-0.02644"),
        (748642.0, 1000.0, True, "748,642"),
        (None, 1.0, False, "missing"),
    ],
)
def test_values_round_against_the_launch(value: float | None, threshold: float, passed: bool, shown: str) -> None:
    assert rounded(value, threshold, passed=passed) == shown


@pytest.mark.parametrize("value", [12.8844991, 0.4999921, 129.1201])
def test_a_loss_is_the_one_that_every_page_states(value: float) -> None:
    """Evidence said 12.8845, the report 12.89 and MLflow 12.8845 of one loss."""
    for places in (2, 4):
        made = at_most("total", "total", value, 1e3, "epsilon", places=places)
        assert made.shown == up(value, places)
        assert made.evidence == f"epsilon is {up(value, places)}, at most 1,000 allowed"
        assert made.value == value, "the gate itself judges what was not rounded"


def test_evidence_states_the_shown_value() -> None:
    for made in (at_least("utility", "gain", 0.0264399, 0.0, "gain"), at_most("pooled", "p", None, 1.0, "p")):
        assert f" is {made.shown}, " in made.evidence
