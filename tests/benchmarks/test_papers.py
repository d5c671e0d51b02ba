"""The pure parts of benchmarks/papers: prices against dense matrices, verdicts, pages, pictures, the index."""

import math
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg

from benchmarks.papers import paper, runs
from benchmarks.papers.blt import band_mf, cost, strategies
from benchmarks.papers.blt.strategies import Run
from benchmarks.papers.ramaswamy import ablations
from tests.helpers.audits.strategies import pattern_sensitivity_squared, random_banded

FOLDER = Path(paper.__file__).parent
COMMANDS = sorted(
    path for path in FOLDER.glob("*/*.py") if "__main__" in path.read_text(encoding="utf-8")
)  # one a figure
SMALL = Run(24, 5)


def dense_losses(strategy_NN: np.ndarray, run: Run) -> tuple[float, float]:
    """MaxLoss and RmsLoss by the definition."""
    error_N = np.linalg.norm(np.tril(np.ones(strategy_NN.shape)) @ np.linalg.inv(strategy_NN), axis=1)
    sensitivity = pattern_sensitivity_squared(strategy_NN, run.min_sep, run.most) ** 0.5
    return float(error_N.max()) * sensitivity, float((error_N**2).mean()) ** 0.5 * sensitivity


def toeplitz(column_N: np.ndarray) -> np.ndarray:
    return np.tril(scipy.linalg.toeplitz(column_N))


@pytest.mark.slow
@pytest.mark.parametrize("met", [Run(24, 5), Run(24, 9), Run(12, 3)])
def test_a_mechanism_made_for_one_run_is_priced_on_another(met: Run) -> None:
    made = strategies.blt(SMALL, 2)
    priced = strategies.blt_losses(made, met)
    assert (priced.max_loss, priced.rms_loss) == pytest.approx(
        dense_losses(toeplitz(made.coefficients(met.rounds)), met)
    )
    coefficients = strategies.bands(SMALL, 5)
    column_N = np.zeros(met.rounds)
    column_N[:5] = coefficients
    priced = strategies.banded_losses(coefficients, met)
    assert (priced.max_loss, priced.rms_loss) == pytest.approx(dense_losses(toeplitz(column_N), met))


def test_bands_that_overlap_cost_more_than_their_norms() -> None:
    coefficients, met = strategies.bands(SMALL, 5), Run(24, 2)
    column_N = np.zeros(24)
    column_N[:5] = coefficients
    sensitivity = pattern_sensitivity_squared(toeplitz(column_N), 2, 4) ** 0.5
    assert sensitivity > 4**0.5 * np.linalg.norm(coefficients)
    wide = strategies.banded_losses(coefficients, met)
    assert wide.rms_loss > strategies.banded_losses(coefficients, Run(24, 5)).rms_loss


def test_fresh_noise_is_the_identity() -> None:
    priced = strategies.independent_losses(SMALL)
    assert (priced.max_loss, priced.rms_loss) == pytest.approx(dense_losses(np.eye(24), SMALL))


def test_a_tree_with_later_nodes_is_below_the_streamed_one() -> None:
    full, streamed = strategies.full_tree_losses(SMALL), strategies.tree_losses(SMALL)
    assert full.rms_loss < streamed.rms_loss


def test_the_worst_pattern_of_banded_columns_that_differ_is_found() -> None:
    strategy_NN = random_banded(14, 4, seed=3)
    for min_sep, most in [(2, 5), (3, 3), (6, 3)]:
        assert band_mf.matrix_sensitivity_squared(strategy_NN, 4, min_sep, most) == pytest.approx(
            pattern_sensitivity_squared(strategy_NN, min_sep, most)
        )
    with pytest.raises(ValueError, match="min_sep"):
        band_mf.matrix_sensitivity_squared(strategy_NN, 4, 1, 3)


def test_both_ways_to_the_inverse_agree_with_a_dense_one() -> None:
    decays_Q = np.array([0.99, 0.9, 0.5, 0.2])
    column_N = cost.of_blt(decays_Q, 30)
    dense_N = np.linalg.inv(toeplitz(column_N))[:, 0]
    np.testing.assert_allclose(cost.solved(column_N), dense_N, atol=1e-12)
    np.testing.assert_allclose(cost.of_blt(np.roll(decays_Q, -1), 30), dense_N, atol=1e-12)


def test_the_share_clipped_is_read_from_the_estimate() -> None:
    """Ten rounds with 80% of the updates below the norm, then ten with 30%."""
    below = {0: 0.0, 10: 8.0, 20: 11.0}
    points = tuple(
        {"round": number, "clip": 0.3, "estimate": 0.3 * math.exp(-ablations.STEP * (total - 0.5 * number))}
        for number, total in below.items()
    )
    rounds, shares = ablations.clipped(runs.Run(points, 0.0, 0.0, 0, {}))
    assert rounds == [10, 20]
    assert shares == pytest.approx([20.0, 70.0])


CLAIMS = (paper.Claim("it rains", "it pours", True), paper.Claim("it snows", "it does not", False))


@pytest.mark.slow
def test_a_page_says_what_agrees_and_what_does_not(tmp_path: Path) -> None:
    line = paper.lines([paper.Line("rain", [1, 10], [2.0, 3.0])], "day", "mm", "xy")
    result = paper.Result(
        "rain", "Rain", "Nobody 2020, figure 1", "Here.", [["day", "mm"], [1, 2.34567]], CLAIMS, [line] * 3
    )
    paper.write(result, "python -m rain", tmp_path)
    page = (tmp_path / "rain.md").read_text(encoding="utf-8")
    assert "**Agrees:** it rains (here it pours)." in page
    assert "**Does not:** it snows (here it does not)." in page
    assert "`python -m rain`" in page
    assert "| 1 | 2.346 |" in page
    assert paper.EXPECTED in page
    picture = (tmp_path / "rain.svg").read_text(encoding="utf-8")
    assert picture == paper.picture(result)  # the same bytes every time
    described = ElementTree.fromstring(picture).find("{http://www.w3.org/2000/svg}desc")
    assert described is not None
    assert "it snows" in (described.text or "")


def test_a_claim_that_numpy_judged_is_told_too() -> None:
    judged = [paper.Claim("it is warm", "20 degrees", holds) for holds in (np.float64(20) > 15, np.float64(20) > 25)]
    agrees, does_not = paper.verdicts(judged)
    assert agrees.count("it is warm") == does_not.count("it is warm") == 1


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_each_figure_teaches_and_has_its_result_and_its_row(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    module = f"benchmarks.papers.{path.parent.name}.{path.stem}"
    assert f".venv/stages/bin/python -m {module}" in text.split('"""')[1]
    name = re.search(r'name="([a-z-]+)"', text)
    assert name is not None
    page = (FOLDER / "results" / f"{name[1]}.md").read_text(encoding="utf-8")
    assert f"`python -m {module}" in page
    assert (FOLDER / "results" / f"{name[1]}.svg").exists()
    assert f"(results/{name[1]}.md)" in (FOLDER / "README.md").read_text(encoding="utf-8")
