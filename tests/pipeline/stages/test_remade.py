"""Fields of a result are compared with what public files give, by their declared sources."""

import pytest

from pipeline.run.public_fields import Source
from pipeline.stages.remade import Elsewhere, fields
from reports.disclosure.guarantee import Gain
from reports.disclosure.releases import Counts
from reports.disclosure.total import Part, Total

STATED = {
    "name": "counts",
    "noise_multiplier": 2.0,
    "clip_norm": 5.0,
    "start_weight": 2.0,
    "cells": 12,
    "contexts": 3,
    "rho": 0.125,
    "epsilon": 2.0,
}


def compared(**changes: object) -> list[str]:
    made = {name: value for name, value in (STATED | changes).items() if value is not None}
    return list(fields(Counts.model_validate(STATED), STATED, made))


def test_equal_figures_pass_up_to_their_last_digits() -> None:
    assert compared() == compared(rho=0.125 * (1 + 1e-9)) == []


@pytest.mark.parametrize("changes", [{"cells": 13}, {"rho": 0.1251}, {"name": "count"}])
def test_another_value_is_named(changes: dict[str, object]) -> None:
    (name,) = changes
    assert compared(**changes) == [f"{name}: public files give another value"]


def test_a_figure_that_nothing_gives_is_named_with_its_source() -> None:
    (leak,) = compared(cells=None)
    assert leak.startswith("cells: nothing public gives it again")
    assert Source.RELEASED.value in leak


def test_a_figure_of_another_source_in_this_row_is_not_asked_for() -> None:
    assert compared(cells=Elsewhere(Source.LEDGER)) == []
    assert compared(cells=Elsewhere(Source.STORE)) == ["cells: a count of devices must be whole tens"]


def test_all_of_a_block_may_be_of_another_source() -> None:
    """The loss of an earlier launch is the ledger's, where a loss of this one is accounted again."""
    part = Part(releases=("training",), split="train", epsilon=4.9, delta=1e-6, rho=0.5, how="noise")
    loss = Total(epsilon=4.9, delta=1e-6, parts=(part,))
    stated = loss.model_dump(mode="json")
    assert list(fields(loss, stated, None))
    assert list(fields(loss, stated, Elsewhere(Source.LEDGER))) == []


def test_a_block_that_nothing_gives_is_named_field_by_field() -> None:
    stated = {"points": 5.4, "error": 1.4}
    assert len(list(fields(Gain.model_validate(stated), stated, None))) == 2
