"""Every printed number that follows from its inputs, and that the comparison can say no.

Rows that take minutes are computed by ``tacit account --paper --slow`` alone; 20 steps of their search are tested
with ``optimise_banded``.
"""

import dataclasses
import math
import re

import pytest

from federated.accounting import published
from federated.accounting.published import ROWS, Row, check

# Half a second to a second of CPU each.
SEARCHED = ("tree-full", "blt-one-start", "without-replacement-2020")
FAST = [
    pytest.param(row, id=row.name, marks=[pytest.mark.slow] * (row.recipe in SEARCHED))
    for row in ROWS
    if row.follows and not row.slow
]


@pytest.mark.parametrize("row", FAST)
def test_a_printed_number_follows_from_its_inputs(row: Row) -> None:
    done = check(row)
    assert done.match, f"printed {row.printed}, ours {done.ours}, accepted {row.accepted}"


def test_how_many_there_are() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert sum(row.follows for row in ROWS) == 118
    assert {row.row for row in ROWS if row.slow} == {"BandMF band=342"}
    assert [row.name for row in ROWS if not row.follows and not row.note] == []
    assert all(row.note for row in ROWS if row.allowed and row.source != published.NOTEBOOK)


@pytest.mark.parametrize(
    ("part", "ours"),
    [("pt-PT TreeAgg-7, rho", 0.43878), ("pt-PT TreeAgg-7, epsilon", 6.0959), ("es-ES BandMF-1.411, rho", None)],
)
def test_what_does_not_follow_is_computed_and_not_faked(part: str, ours: float | None) -> None:
    (row,) = (row for row in ROWS if row.name.endswith(part))
    done = check(row)
    assert (not done.match, done.fine) == (True, True)
    assert done.ours == (None if ours is None else pytest.approx(ours, abs=1e-4))
    assert done.match is (None if ours is None else False)


def _first(recipe: str) -> Row:
    return next(row for row in ROWS if row.recipe == recipe)


@pytest.mark.parametrize(
    ("recipe", "name", "change"),
    [
        ("tree", "noise_multiplier", lambda value: 1.02 * value),
        ("tree", "max_participations", lambda value: value - 1),
        ("blt", "noise_multiplier", lambda value: 0.9 * value),
        ("blt", "preset", lambda _: "min-sep-1000"),
        ("unit-columns", "max_participations", lambda value: value - 1),
        ("printed-rho", "rho", lambda value: 0.99 * value),
        ("renyi-of-rho", "delta", lambda value: 2 * value),
        ("moments-2018", "rate", lambda value: 1.2 * value),
        pytest.param("without-replacement-2020", "report_goal", lambda value: value - 50, marks=pytest.mark.slow),
        pytest.param("tree-full", "max_participations", lambda value: value - 1, marks=pytest.mark.slow),
        ("blt-optimised", "min_sep", lambda value: value + 2),
        pytest.param("blt-one-start", "buffers", lambda _: 2, marks=pytest.mark.slow),
    ],
)
def test_another_input_would_not_have_been_printed_so(recipe: str, name: str, change) -> None:
    row = _first(recipe)
    fields = {name: change(None)} if name == "preset" else {"inputs": {**row.inputs, name: change(row.inputs[name])}}
    wrong = dataclasses.replace(row, **fields)
    assert check(row).match
    assert not check(wrong).match
    assert not check(wrong).fine


def test_separations_are_not_mixed_up() -> None:
    row = next(row for row in ROWS if row.row == "NWP en-IN")
    # Taken for a min_sep, the paper's 170 would be a MinS of 169.
    wrong = dataclasses.replace(row, inputs={**row.inputs, "mins": 169})
    assert check(wrong).ours == pytest.approx(116 / 98)
    assert not check(wrong).match


def test_rounding_is_that_of_the_paper() -> None:
    row = _first("tree")
    for rounding, least, most in (("nearest", 0.475, 0.485), ("up", 0.47, 0.48), ("down", 0.48, 0.49)):
        accepted = dataclasses.replace(row, printed="0.48", rounding=rounding).accepted
        assert accepted == pytest.approx((least, most), abs=1e-7)
        assert accepted[0] < least
    assert dataclasses.replace(row, printed="2.23e-2").accepted == pytest.approx((0.02225, 0.02235), abs=1e-9)
    # Both numbers of the BLT paper's table 4 are rounded up: nearest would have printed 0.15 and 8.18.
    nearest = [dataclasses.replace(row, rounding="nearest") for row in ROWS if row.source == published.BLT]
    table_4 = [check(row) for row in nearest if row.table == "4" and row.follows]
    assert {done.row.name for done in table_4 if not done.match} >= {
        "McMahan et al. 2024 (BLT), table 4, es-ES BLT-7.379, rho",
        "McMahan et al. 2024 (BLT), table 4, pt-PT BLT-5.5, epsilon",
    }


def test_every_recipe_is_computed_and_none_is_a_copy() -> None:
    for row in ROWS:
        assert not any(math.isclose(row.published, value) for value in row.inputs.values() if isinstance(value, float))
        assert re.fullmatch(r"[0-9.]+(e-[0-9]+)?", row.printed)
