"""The pure parts of benchmarks/papers: prices against dense matrices, verdicts, pages, pictures, the index."""

import math
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg

from benchmarks.papers import paper, printed, runs
from benchmarks.papers.blt import band_mf, cost, strategies
from benchmarks.papers.blt.strategies import Run
from benchmarks.papers.ramaswamy import ablations, secret_sharer
from benchmarks.papers.xu import pretraining
from federated.accounting.published_rows import BLT, ROWS, agrees
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


def number(printed: str, here: float | None, why: str = "as it rains") -> paper.Number:
    return paper.Number("Nobody 2020, table 1", f"rain {printed}", printed, here, why)


def test_a_number_is_judged_by_its_last_printed_digit() -> None:
    rows = [number("4.54", 4.5451).row, number("4.54", 4.5347).row, number("637e3", 425_848.0).row]
    assert [row[3:] for row in rows] == [
        ["4.5451", "**no**", "as it rains"],
        ["4.5347", "**no**", "as it rains"],
        ["425848", "**no**", "as it rains"],
    ]
    assert number("4.54", 4.5449).row[3:] == ["4.5449", "yes", ""]
    assert number("4.54", None).row[3:] == ["", "**not computed**", "as it rains"]


def test_numbers_of_a_figure_are_read_from_its_page(tmp_path: Path) -> None:
    figure = paper.Result(
        "rain", "Rain", "Nobody 2020", "Here.", [["mm"], [1]], (), numbers=[number("1.5", 1.52), number("2.0", 2.7)]
    )
    paper.write(figure, "python -m rain", tmp_path)
    assert paper.EXPECTED not in (tmp_path / "rain.md").read_text(encoding="utf-8")
    assert list(printed.of_figures(tmp_path).values()) == [one.row for one in figure.numbers]


def rows_of_the_page() -> list[list[str]]:
    """Cells of every number on the committed page."""
    text = (FOLDER / "results" / "printed.md").read_text(encoding="utf-8").partition("## No row")[0]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.count("|") == 7]
    return [line for line in lines if line[0] not in ("where", "---")]


def test_the_page_of_printed_numbers_judges_each_by_itself() -> None:
    page = (FOLDER / "results" / "printed.md").read_text(encoding="utf-8")
    rows = rows_of_the_page()
    for where, what, as_printed, here, verdict, why in rows:
        if here:
            assert verdict == ("yes" if agrees(as_printed, float(here)) else "**no**"), (where, what)
        else:
            assert verdict == "**not computed**"
        assert (verdict == "yes") is not bool(why), (where, what)
    counted = [sum(row[4] == each for row in rows) for each in ("yes", "**no**", "**not computed**")]
    assert f"| all | {len(rows)} | {' | '.join(map(str, counted))} |" in page


def test_no_number_of_the_papers_is_left_out_of_the_page() -> None:
    rows = {(row[0], row[1]): row for row in rows_of_the_page()}
    assert {(row.where, f"{row.row}, {row.quantity}") for row in ROWS} <= rows.keys()
    figures = printed.of_figures(FOLDER / "results")
    assert {name: row for name, row in figures.items() if not row[1].endswith(", epsilon")}.items() <= rows.items()
    by_table = {where: [row for row in rows.values() if row[0] == where] for where, _ in rows}
    assert {where.partition(", ")[2]: len(listed) for where, listed in by_table.items() if "Ramaswamy" in where} == {
        "table 3": 9, "table 4": 36, "table 5": 5, "table 6": 12, "table 7": 7, "table 8": 7, "section III-A": 1,
    }  # fmt: skip
    assert len(by_table["McMahan et al. 2018, table 2"]) == 10
    assert len(by_table[f"{BLT}, table 2"]) == 9
    assert len(by_table[f"{BLT}, table 3"]) == 16
    assert ("Xu et al. 2023, section 2.3", "rounds that pretraining saves, about") in rows


def test_rounds_saved_are_counted_to_the_best_of_a_run_from_scratch() -> None:
    def run(*recalls: float) -> runs.Run:
        points = tuple({"round": 4.0 * place, "recall": value} for place, value in enumerate(recalls))
        return runs.Run(points, 0.0, 0.0, 0, {})

    assert pretraining.rounds_saved(run(9.0, 9.5, 10.0), run(1.0, 2.0, 5.0)) == 8
    assert pretraining.rounds_saved(run(1.0, 4.0, 10.0), run(1.0, 5.0, 3.0)) == -4


@pytest.mark.parametrize(("outside", "last"), [(200, 391), (999, 700)])
def test_the_edge_of_a_lead_is_found(outside: int, last: int) -> None:
    assert band_mf.edge(lambda min_sep: 391 <= min_sep <= 700, 400, outside) == last


def test_a_canary_of_ours_stands_beside_each_of_three() -> None:
    ranks = {cell: [5.0] for cell in secret_sharer.CELLS}
    attack = type("Attack", (), {"ranks": ranks, "completed": dict.fromkeys(secret_sharer.CELLS, 1)})()
    numbers = secret_sharer.numbers(attack, 1)
    assert len(numbers) == 45
    assert all(one.agrees for one in numbers if one.where.endswith("table 3"))
    last = [one for one in numbers if one.what.startswith("16 x 200")][1:]
    assert [(one.printed, one.here) for one in last] == [("1", 5.0)] * 3 + [("3", 3.0)]
