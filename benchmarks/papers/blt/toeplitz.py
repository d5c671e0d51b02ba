"""BLT against banded Toeplitz strategies: searched for (BandToep), or the square root of A cut off (BandFHU).

    .venv/stages/bin/python -m benchmarks.papers.blt.toeplitz    ten seconds of CPU

McMahan et al. 2024 (BLT), figure 6: RmsLoss by min separation, 2,000 rounds with as many participations as the
separation allows; bands are as many as the separation. Left, mechanisms made for the separation they meet; right, those
made for 400. Privacy accounting alone.
"""

from collections.abc import Mapping, Sequence

from threadpoolctl import threadpool_limits

from benchmarks.papers import paper
from benchmarks.papers.blt import strategies
from benchmarks.papers.blt.strategies import Run
from federated.mechanisms.optimise_banded import fhu_coefficients

COMMAND = "python -m benchmarks.papers.blt.toeplitz"
ROUNDS, PLANNED, BUFFERS = 2000, 400, 3
SEPARATIONS = (50, 100, 200, 250, 300, 400, 500, 667, 800, 1000, 2000)
LOOKS = {"BLT": 2, "BandToep": 5, "BandFHU": 6}


def losses(made_for: int, met: int) -> dict[str, float]:
    """RmsLoss of mechanisms made for one separation at another."""
    plan, run = Run(ROUNDS, made_for), Run(ROUNDS, met)
    return {
        "BLT": strategies.blt_losses(strategies.blt(plan, BUFFERS), run).rms_loss,
        "BandToep": strategies.banded_losses(strategies.bands(plan, made_for), run).rms_loss,
        "BandFHU": strategies.banded_losses(tuple(fhu_coefficients(made_for).tolist()), run).rms_loss,
    }


def claims(
    again: Mapping[str, Sequence[float]], fixed: Mapping[str, Sequence[float]], separations: Sequence[int]
) -> list[paper.Claim]:
    """Statements of the BLT paper beside these numbers."""
    searched, cut = (strategies.ratios(again["BLT"], again[name]) for name in ("BandToep", "BandFHU"))
    unsearched = strategies.ratios(again["BandFHU"], again["BandToep"])
    fixed_searched = strategies.ratios(fixed["BLT"], fixed["BandToep"])
    off = [ratio for place, ratio in zip(separations, fixed_searched, strict=True) if place != PLANNED]
    return [
        paper.Claim(
            "a BLT is comparable to BandToep",
            f"{min(searched):.3f} to {max(searched):.3f} times its RmsLoss where both are made for the separation",
            max(searched) < 1.1,
        ),
        paper.Claim(
            "and comparable to BandFHU or better",
            f"{min(cut):.3f} to {max(cut):.3f} times its RmsLoss",
            max(cut) < 1.05,
        ),
        paper.Claim(
            "BandFHU, which needs no search, is likely to be worse than BandToep",
            f"{min(unsearched):.4f} to {max(unsearched):.3f} times its RmsLoss",
            min(unsearched) > 0.999,
        ),
        paper.Claim(
            "a BLT made for another separation is comparable or better",
            f"{min(off):.3f} to {max(off):.3f} times the RmsLoss of BandToep made for {PLANNED}",
            max(off) < 1.05,
        ),
    ]


def main() -> None:
    """Price, judge, write."""
    chosen = paper.parser(__doc__).parse_args()
    with threadpool_limits(1, user_api="blas"):
        listed = [losses(place, place) for place in SEPARATIONS], [losses(PLANNED, place) for place in SEPARATIONS]
    again, fixed = ({name: [one[name] for one in rows] for name in LOOKS} for rows in listed)
    draws = [
        paper.lines(
            [
                paper.Line(name, SEPARATIONS, strategies.ratios(values, rms["BLT"]), LOOKS[name])
                for name, values in rms.items()
            ],
            f"min separation, {made}",
            "RmsLoss, times the BLT's",
            "x",
            planned,
        )
        for rms, made, planned in ((again, "made for it", None), (fixed, f"made for {PLANNED}", PLANNED))
    ]
    heads = [f"{name}, {made}" for made in ("made for it", f"made for {PLANNED}") for name in LOOKS]
    rows = [
        [f"{place:,}", *(rms[name][number] for rms in (again, fixed) for name in LOOKS)]
        for number, place in enumerate(SEPARATIONS)
    ]
    result = paper.Result(
        name="blt-toeplitz",
        title="BLT and banded Toeplitz strategies",
        paper="McMahan et al. 2024 (BLT), figure 6",
        setting=f"{ROUNDS:,} rounds, BLTs of {BUFFERS} buffers, bands as many as the separation that a strategy was "
        "made for. RmsLoss in the table.",
        table=[["min separation", *heads], *rows],
        claims=claims(again, fixed, SEPARATIONS),
        draws=draws,
    )
    paper.write(result, COMMAND, chosen.results)


if __name__ == "__main__":
    main()
