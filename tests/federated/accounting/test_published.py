"""Every printed number that follows from its inputs, those that do not, and that the comparison can say no.

Rows that take minutes are computed by ``tacit account --paper --slow`` alone; 20 steps of their search are tested
with ``optimise_banded``.
"""

import dataclasses
import math
import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

import numpy as np
import pytest
from scipy.optimize import minimize

from federated.accounting.published import ROWS, Row, check, recompute
from federated.accounting.published_rows import ALONE, BLT, CUT, UP, agrees
from federated.mechanisms.blt import Blt, errors, inverse_coefficients
from federated.mechanisms.optimise_blt import decays, objective, scales, starts

# Half a second to a second of CPU each.
SEARCHED = ("tree-full", "without-replacement-2020")


def slowly(row: Row) -> bool:
    return row.recipe in SEARCHED or row.inputs.get("buffers", 0) > 2


FAST = [pytest.param(row, id=row.name, marks=[pytest.mark.slow] * slowly(row)) for row in ROWS if not row.slow]


@pytest.mark.parametrize("row", FAST)
def test_a_printed_number_is_ours_unless_a_reason_is_stated(row: Row) -> None:
    done = check(row)
    assert bool(done.match) is not bool(row.departs), f"printed {row.printed}, ours {done.ours}: {row.departs!r}"
    if row.departs in (UP, ALONE, CUT):
        last = Decimal((0, (1,), int(Decimal(row.printed).as_tuple().exponent)))
        rounding = ROUND_FLOOR if row.departs == CUT else ROUND_CEILING
        assert Decimal(done.ours).quantize(last, rounding) == Decimal(row.printed)


def test_how_many_there_are() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS) == 128
    assert {row.row for row in ROWS if row.slow} == {"BandMF band=342"}
    assert sum(not row.departs for row in ROWS) == 104
    # All rows of table 3 are there, and three of the eight differ.
    table = [row for row in ROWS if (row.source, row.table) == (BLT, "3")]
    assert len(table) == 16
    assert {row.row for row in table if row.departs} == {"BLT* nbuf=3", "BLT* nbuf=4", "BLT* nbuf=5"}


def test_a_number_agrees_within_half_a_unit_of_its_last_digit() -> None:
    for printed, least, most in (("0.48", 0.475, 0.485), ("2.23e-2", 0.02225, 0.02235), ("637e3", 636.5e3, 637.5e3)):
        middle, hair = (least + most) / 2, (most - least) * 1e-6
        for ours, inside in ((least - hair, False), (least + hair, True), (middle, True), (most + hair, False)):
            assert agrees(printed, ours) is inside, (printed, ours)
    assert not agrees("4.54", 4.5347)


@pytest.mark.slow
def test_a_search_from_one_start_ends_where_the_paper_s_did() -> None:
    """The known reason of BLT table 3, three buffers: least MaxLoss from decays of ``1 - 1 / (2 min_sep)`` to 0.05."""
    rounds, min_sep, most = 2052, 342, 6
    options = {"maxiter": 600, "maxcor": 20, "ftol": 1e-11, "gtol": 1e-8}
    begin_Q = starts(rounds, min_sep, 3)[5]
    end = minimize(objective, begin_Q, (np.ones(rounds), min_sep, most), "L-BFGS-B", jac=True, options=options)
    decays_Q, _ = decays(end.x)
    blt = Blt(1.0, tuple(map(float, decays_Q[::2])), tuple(map(float, scales(decays_Q)[0])))
    sensitivity = blt.sensitivity_squared(rounds, min_sep, most) ** 0.5
    largest, rms = errors(inverse_coefficients(blt, rounds))
    assert agrees("10.79", largest * sensitivity)
    assert agrees("9.33", rms * sensitivity)


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
    row = next(row for row in ROWS if row.recipe == recipe)
    # Where the first was not rounded to the nearest, ours with its digits stands for it.
    return dataclasses.replace(row, printed=f"{recompute(row):.3g}", departs="") if row.departs else row


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


def test_every_recipe_is_computed_and_none_is_a_copy() -> None:
    for row in ROWS:
        assert not any(math.isclose(row.published, value) for value in row.inputs.values() if isinstance(value, float))
        assert re.fullmatch(r"[0-9.]+(e-[0-9]+)?", row.printed)
