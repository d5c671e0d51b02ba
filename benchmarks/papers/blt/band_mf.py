"""BLT against BandMF, both made for one min separation, at the others.

    .venv/stages/bin/python -m benchmarks.papers.blt.band_mf    forty seconds of CPU, nearly all BandMF's search

McMahan et al. 2024 (BLT), figures 3 and 4: 2,000 rounds; three participations at any separation, or as many as an
exact division of the rounds allows. Mechanisms are made for a separation of 400 and least RmsLoss. The sensitivity of
BandMF, whose columns all differ, is exact: from half its bands on only neighbouring participations share a row, and a
program over (participations, last round) finds the worst pattern.
"""

from collections.abc import Callable, Sequence

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.papers import paper
from benchmarks.papers.blt import strategies
from benchmarks.papers.blt.strategies import Run
from federated.accounting.published_rows import BLT
from federated.mechanisms.blt import Blt, errors, inverse_coefficients
from federated.mechanisms.optimise_banded import optimise_banded
from federated.mechanisms.optimise_blt import optimise_blt

COMMAND = "python -m benchmarks.papers.blt.band_mf"
ROUNDS, PLANNED, BUFFERS, FEW = 2000, 400, 3, 3
ANY = (200, 250, 300, 350, 399, 400, 450, 500, 600, 700, 800, 900, 990, 999)
EXACT = (200, 250, 400, 500, 1000, 2000)


def matrix_sensitivity_squared(strategy_NN: np.ndarray, bands: int, min_sep: int, most: int) -> float:
    """The largest ``||C 1_P||^2`` of a banded C of no negative entry."""
    if min_sep < bands / 2 or strategy_NN.min() < 0:
        raise ValueError(
            f"min_sep: got {min_sep}, expected at least half of the {bands} bands and no negative entry; below that "
            "participations share rows with others than their neighbours"
        )
    gram_NN = strategy_NN.T @ strategy_NN
    best_N = answer_N = np.diag(gram_NN).copy()
    for _ in range(most - 1):
        following_N = np.full(len(best_N), -np.inf)
        for last in range(min_sep, len(best_N)):
            before = slice(0, last - min_sep + 1)
            following_N[last] = gram_NN[last, last] + np.max(best_N[before] + 2 * gram_NN[before, last])
        best_N, answer_N = following_N, np.maximum(answer_N, following_N)
    return float(answer_N.max())


def blt_loss(made: Blt, min_sep: int, most: int) -> float:
    """RmsLoss of a BLT."""
    return errors(inverse_coefficients(made, ROUNDS))[1] * made.sensitivity_squared(ROUNDS, min_sep, most) ** 0.5


def claims(few: Sequence[Sequence[float]], exact: Sequence[Sequence[float]]) -> list[paper.Claim]:
    """Statements of the BLT paper beside these numbers."""
    at_any = dict(zip(ANY, strategies.ratios(few[1], few[0]), strict=True))
    at_exact = dict(zip(EXACT, strategies.ratios(exact[1], exact[0]), strict=True))
    return [
        paper.Claim(
            "where the separation is the planned one, BandMF is slightly better (figures 3 and 4)",
            f"BandMF has {at_any[PLANNED]:.3f} and {at_exact[PLANNED]:.3f} times the BLT's RmsLoss at {PLANNED}",
            0.9 < at_exact[PLANNED] < 1 and at_any[PLANNED] < 1,
        ),
        paper.Claim(
            "well below it the BLT is better (figure 3)",
            ", ".join(f"{at_any[place]:.3f} times at {place}" for place in ANY if place < PLANNED),
            min(at_any[place] for place in ANY if place < 0.9 * PLANNED) > 1,
        ),
        paper.Claim(
            "BandMF degrades more rapidly below it (figure 4)",
            f"from {PLANNED} to 200 it gains {at_exact[200] / at_exact[PLANNED] - 1:.1%} on the BLT's RmsLoss",
            at_exact[200] > at_exact[PLANNED],
        ),
        paper.Claim(
            "at 999, where three participations fit only at the run's ends, BandMF is much worse, as it cannot use "
            "that a Toeplitz strategy's last columns are short (figure 3)",
            f"{at_any[999]:.3f} times the BLT's RmsLoss, {at_any[900]:.3f} at 900",
            at_any[999] > at_any[900] + 0.05,
        ),
    ]


def edge(ahead: Callable[[int], bool], inside: int, outside: int) -> int:
    """The last separation on the way from ``inside`` to ``outside`` at which BandMF is ahead."""
    while abs(outside - inside) > 1:
        middle = (inside + outside) // 2
        inside, outside = (middle, outside) if ahead(middle) else (inside, middle)
    return inside


def main() -> None:
    """Make, price, judge, write."""
    chosen = paper.parser(__doc__).parse_args()
    with threadpool_limits(1, user_api="blas"):
        matrix = optimise_banded(ROUNDS, PLANNED, ROUNDS // PLANNED, PLANNED)
        dense_NN, error = matrix.strategy.matrix(), matrix.losses.rms_loss / matrix.sensitivity_squared**0.5
        best = optimise_blt(ROUNDS, PLANNED, FEW, BUFFERS, "rms")
        made_few = Blt(1.0, best.theta, best.omega)
        made_exact = strategies.blt(Run(ROUNDS, PLANNED), BUFFERS)

        def band_mf(min_sep: int, most: int) -> float:
            return error * matrix_sensitivity_squared(dense_NN, PLANNED, min_sep, most) ** 0.5

        def ahead(min_sep: int) -> bool:
            return band_mf(min_sep, FEW) < blt_loss(made_few, min_sep, FEW)

        edges = edge(ahead, PLANNED, PLANNED // 2), edge(ahead, PLANNED, ROUNDS // 2 - 1)
        few = [blt_loss(made_few, place, FEW) for place in ANY], [band_mf(place, FEW) for place in ANY]
        exact = (
            [blt_loss(made_exact, place, ROUNDS // place) for place in EXACT],
            [band_mf(place, ROUNDS // place) for place in EXACT],
        )
    draws = [
        paper.lines(
            [paper.Line("BLT", places, values[0], 2), paper.Line("BandMF", places, values[1], 4)],
            f"min separation, {name}",
            "RmsLoss",
            log,
            PLANNED,
        )
        for places, values, name, log in (
            (ANY, few, "three participations", ""),
            (EXACT, exact, "rounds / separation participations", "xy"),
        )
    ]
    rows = [
        [f"{place:,}", most, one, other, other / one]
        for places, values, most_of in ((ANY, few, None), (EXACT, exact, ROUNDS))
        for place, one, other in zip(places, *values, strict=True)
        for most in [most_of // place if most_of else FEW]
    ]
    result = paper.Result(
        name="blt-band-mf",
        title="BLT and BandMF at separations that neither was made for",
        paper="McMahan et al. 2024 (BLT), figures 3 and 4",
        setting=f"{ROUNDS:,} rounds; BLTs of {BUFFERS} buffers and BandMF of {PLANNED} bands, made for min separation "
        f"{PLANNED} (dashed line). Left {FEW} participations, right rounds / separation.",
        table=[["min separation", "participations", "BLT", "BandMF", "BandMF over BLT"], *rows],
        claims=claims(few, exact),
        numbers=[
            paper.Number(
                f"{BLT}, section 4.2",
                f"separation {where} which a BLT is ahead of BandMF (figure 2)",
                printed,
                here,
                f"participations and buffers are not in the text; {FEW} and {BUFFERS} here",
            )
            for where, printed, here in zip(("below", "above"), ("390", "700"), edges, strict=True)
        ],
        draws=draws,
    )
    paper.write(result, COMMAND, chosen.results)


if __name__ == "__main__":
    main()
