"""Loss of fixed mechanisms as the number of rounds changes.

    .venv/stages/bin/python -m benchmarks.papers.blt.rounds    a minute of CPU

Each mechanism is made once, for 2,000 rounds at min separation 400, and then runs for as many rounds as it must: a
BLT and a banded Toeplitz strategy go on past their plan with the numbers they have. Participations are as many as the
rounds allow. Privacy accounting alone.
"""

from collections.abc import Mapping, Sequence

from benchmarks.papers import paper
from benchmarks.papers.blt import strategies
from benchmarks.papers.blt.strategies import Run

COMMAND = "python -m benchmarks.papers.blt.rounds"
PLANNED, MIN_SEP = 2000, 400
ROUNDS = (250, 500, 1000, 1500, 2000, 3000, 4000, 8000)
LOOKS = {
    "tree": (0, "-"),
    "BLT, 2 buffers": (1, "-"),
    "BLT, 3 buffers": (2, "-"),
    "banded, 400 bands": (5, "-"),
    "BLT made again": (2, ":"),
    "banded made again": (5, ":"),
}


RUNS = [Run(number, MIN_SEP) for number in ROUNDS]


def claims(rounds: Sequence[int], rms: Mapping[str, Sequence[float]]) -> list[paper.Claim]:
    """Statements of the BLT paper beside these numbers."""
    stale = strategies.ratios(rms["BLT, 3 buffers"], rms["BLT made again"])
    near = [ratio for number, ratio in zip(rounds, stale, strict=True) if PLANNED / 2 <= number <= 2 * PLANNED]
    tree = strategies.ratios(rms["tree"], rms["BLT, 3 buffers"])
    banded = strategies.ratios(rms["BLT, 3 buffers"], rms["banded, 400 bands"])
    return [
        paper.Claim(
            "a BLT needs no good guess of the rounds",
            f"at half to twice its plan at most {100 * (max(near) - 1):.1f}% more loss than one made for the run, and "
            f"{100 * (max(stale) - 1):.0f}% at worst",
            max(near) < 1.1,
        ),
        paper.Claim(
            "it keeps its lead over the tree", f"tree over BLT {min(tree):.2f} to {max(tree):.2f}", min(tree) > 1.2
        ),
        paper.Claim(
            "and stays with the banded mechanism",
            f"BLT over banded {min(banded):.3f} to {max(banded):.3f}",
            max(banded) < 1.1,
        ),
    ]


def main() -> None:
    """Price, judge, write."""
    chosen = paper.parser(__doc__).parse_args()
    rms = strategies.fixed_losses(Run(PLANNED, MIN_SEP), RUNS, (2, 3))
    result = paper.Result(
        name="blt-rounds",
        title="Loss of fixed mechanisms over the rounds",
        paper="McMahan et al. 2024 (BLT), figure 5: fixed mechanisms over rounds",
        setting=f"Min separation {MIN_SEP}; every mechanism was made for {PLANNED:,} rounds (dashed line) and least "
        "RmsLoss. 'Made again' (dotted) is made for the rounds that it runs. RmsLoss in the table.",
        table=strategies.table("rounds", ROUNDS, RUNS, rms),
        claims=claims(ROUNDS, rms),
        draws=strategies.panels("rounds of the run", ROUNDS, rms, LOOKS, PLANNED),
    )
    paper.write(result, COMMAND, chosen.results)


if __name__ == "__main__":
    main()
