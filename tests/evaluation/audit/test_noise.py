"""All audits of one run as rows: the same verdicts as their parts, and public numbers only."""

import numpy as np
import pytest

from evaluation.audit.directions import Directions
from evaluation.audit.matched_filter import Claim
from evaluation.audit.noise import FAMILIES, projection_rows
from evaluation.audit.released.rows import AuditRow
from evaluation.config import ALPHA
from tests.helpers.audits.noise_run import PARAMETERS, HalfNoise, ReusedNoise, blt, claim, final_change, honest_run, run


def audited(seen: tuple[np.ndarray, np.ndarray, np.ndarray], seed: int = 0) -> tuple[AuditRow, ...]:
    directions = Directions((PARAMETERS,), 500, seed)
    change_P = final_change(seen[0], directions)
    np.testing.assert_allclose(directions.project(change_P), seen[0].sum(axis=0), atol=1e-4)
    return projection_rows(seen[0], seen[1], directions, change_P, claim(blt()))


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
        "one_shot",
        "lower_bound",
    }
    for row in found:
        assert row.passed is (None if row.type == "one_shot" else True)
        assert not row.reason
        assert row.low <= row.estimate <= row.high
    # The final model tells less than the whole run, and the bound is far below both; it has no claim beside it.
    assert rows["lower_bound"].estimate < rows["one_shot"].estimate < rows["matched_filter"].estimate
    assert rows["lower_bound"].claim is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "kinds"), [(HalfNoise, {"matched_filter", "noise_scale"}), (ReusedNoise, {"noise_whiteness"})]
)
def test_a_bug_fails_its_rows_and_says_why(broken: type[HalfNoise], kinds: set[str]) -> None:
    found = audited(run(broken(blt()), 0))
    failed = {row.type: row.reason for row in found if row.passed is False}
    assert set(failed) == kinds
    assert all(failed.values())


def test_canaries_that_never_had_a_round_are_left_out() -> None:
    projections_TN, joined_TN, _ = honest_run(blt(), 0)
    directions = Directions((PARAMETERS,), 500, 0)
    fewer_TN = joined_TN.copy()
    fewer_TN[:, ~directions.included_N & (np.arange(500) < 250)] = False
    change_P = final_change(projections_TN, directions)
    found = projection_rows(projections_TN, fewer_TN, directions, change_P, claim(blt()))
    assert found[0].n == fewer_TN.any(axis=0).sum() < 500
    assert all(row.passed is not False for row in found)


def test_a_one_run_bound_above_the_claim_refutes_it() -> None:
    directions, rng = Directions((4096,), 200, 3), np.random.default_rng(4)
    # Every canary that was put in stands out by far more than the claimed mu would let it.
    seen_TN = rng.standard_normal((4, 200)) + 5.0 * directions.included_N
    joined_TN, claimed = np.ones((4, 200), dtype=bool), Claim(np.eye(4), 1.0, 0.1, 1e-6)
    found = projection_rows(seen_TN, joined_TN, directions, rng.standard_normal(4096), claimed)
    (bound,) = (row for row in found if row.type == "lower_bound")
    (matched,) = (row for row in found if row.type == "matched_filter")
    assert bound.estimate > matched.claim
    assert bound.passed is False
    assert "is refuted" in bound.reason


@pytest.mark.slow
def test_families_share_the_chance_of_a_false_alarm() -> None:
    found = audited(honest_run(blt(), 0))
    rows = {row.type: row for row in found}
    assert rows["noise_scale"].confidence == pytest.approx(1 - ALPHA / FAMILIES)
    assert rows["lower_bound"].confidence == pytest.approx(1 - ALPHA / FAMILIES)


def test_rows_say_the_least_fault_that_they_would_notice() -> None:
    rows = {row.type: row for row in audited(honest_run(blt(), 0))}
    assert 0.9 < rows["noise_scale"].least_noise < 1
    assert 1 < rows["clip_norm"].least_clip < 1.5
    assert 1 < rows["matched_filter"].least_clip < 3
    assert rows["matched_filter"].least_noise == pytest.approx(1 / rows["matched_filter"].least_clip)
    assert rows["records"].least_noise is rows["records"].least_clip is None
