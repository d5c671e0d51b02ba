"""All audits of one run as rows: the same verdicts as their parts, and public numbers only."""

import numpy as np
import pytest

from evaluation.audit.directions import Directions
from evaluation.audit.noise import projection_rows
from evaluation.audit.released.rows import AuditRow
from tests.helpers.audits.noise_run import PARAMETERS, HalfNoise, ReusedNoise, blt, claim, honest_run, run


def audited(seen: tuple[np.ndarray, np.ndarray, np.ndarray], seed: int = 0) -> tuple[AuditRow, ...]:
    directions = Directions((PARAMETERS,), 500, seed)
    return projection_rows(seen[0], seen[1], directions, claim(blt()))


@pytest.mark.slow
def test_an_honest_run_passes_every_row() -> None:
    found = audited(honest_run(blt(), 0))
    rows = {row.type: row for row in found}
    assert set(rows) == {
        "matched_filter",
        "noise_scale",
        "clip_norm",
        "noise_whiteness",
        "records",
    }
    assert all(row.passed for row in found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "kinds"), [(HalfNoise, {"matched_filter", "noise_scale"}), (ReusedNoise, {"noise_whiteness"})]
)
def test_a_bug_fails_its_rows_and_says_why(broken: type[HalfNoise], kinds: set[str]) -> None:
    found = audited(run(broken(blt()), 0))
    failed = {row.type: row.reason for row in found if not row.passed}
    assert set(failed) == kinds
    assert all(failed.values())


def test_canaries_that_never_had_a_round_are_left_out() -> None:
    projections_TN, joined_TN, _ = honest_run(blt(), 0)
    directions = Directions((PARAMETERS,), 500, 0)
    fewer_TN = joined_TN.copy()
    fewer_TN[:, ~directions.included_N & (np.arange(500) < 250)] = False
    found = projection_rows(projections_TN, fewer_TN, directions, claim(blt()))
    assert fewer_TN.any(axis=0).sum() < 500
    assert all(row.passed for row in found)


def test_rows_say_the_least_fault_that_they_would_notice() -> None:
    rows = {row.type: row for row in audited(honest_run(blt(), 0))}
    assert 0.9 < rows["noise_scale"].least_noise < 1
    assert 1 < rows["clip_norm"].least_clip < 1.5
    assert 1 < rows["matched_filter"].least_clip < 3
    assert rows["matched_filter"].least_noise == pytest.approx(1 / rows["matched_filter"].least_clip)
    assert rows["records"].least_noise is rows["records"].least_clip is None
