"""Loss that a wrong guess of the min separation costs a BLT and a banded mechanism.

    .venv/stages/bin/python -m benchmarks.papers.blt.guess    fifteen seconds of CPU

Both must be made before the run, and how soon devices come back is known only after it. Each line is a mechanism
made for one guess, over the separation that then was: its RmsLoss as a multiple of what its own kind reaches with the
right guess. A tree has nothing to guess. Privacy accounting alone.
"""

from benchmarks.papers import paper
from benchmarks.papers.blt import strategies
from benchmarks.papers.blt.strategies import Run

COMMAND = "python -m benchmarks.papers.blt.guess"
ROUNDS, BUFFERS = 2000, 3
GUESSES, SEPARATIONS = (100, 200, 400, 1000), (50, 100, 150, 200, 300, 400, 500, 667, 800, 1000, 2000)
KINDS = ("BLT", "banded")


def loss(kind: str, guess: int, separation: int) -> float:
    """RmsLoss of a mechanism made for one separation at another."""
    plan, run = Run(ROUNDS, guess), Run(ROUNDS, separation)
    if kind == "BLT":
        return strategies.blt_losses(strategies.blt(plan, BUFFERS), run).rms_loss
    return strategies.banded_losses(strategies.bands(plan, guess), run).rms_loss


def given_away(kind: str, guess: int) -> list[float]:
    """Loss by separation, as a multiple of the loss with the right guess."""
    return [loss(kind, guess, separation) / loss(kind, separation, separation) for separation in SEPARATIONS]


def claims() -> list[paper.Claim]:
    """Statements of the BLT paper beside these numbers."""

    def worst(kind: str, factor: float) -> float:
        return max(
            loss(kind, guess, separation) / loss(kind, separation, separation)
            for guess in GUESSES
            for separation in SEPARATIONS
            if 1 / factor <= separation / guess <= factor
        )

    near, far = {kind: worst(kind, 2) for kind in KINDS}, {kind: worst(kind, 40) for kind in KINDS}
    return [
        paper.Claim(
            "a BLT stays close to its best when the separation was guessed wrong by a factor of two",
            f"at most {100 * (near['BLT'] - 1):.1f}% more loss",
            near["BLT"] < 1.1,
        ),
        paper.Claim(
            "matrix mechanisms depend on constants that are hard to know in advance, more than a BLT does",
            f"at most {100 * (near['banded'] - 1):.1f}% more loss within a factor of two, against "
            f"{100 * (near['BLT'] - 1):.1f}%; over all guesses {100 * (far['banded'] - 1):.0f}% against "
            f"{100 * (far['BLT'] - 1):.0f}%",
            near["banded"] > near["BLT"] and far["banded"] > far["BLT"],
        ),
    ]


def main() -> None:
    """Price, judge, write."""
    chosen = paper.parser(__doc__).parse_args()
    given = {(kind, guess): given_away(kind, guess) for kind in KINDS for guess in GUESSES}
    top = 0.02 + max(map(max, given.values()))

    def panel(kind: str) -> paper.Draw:
        drawn = [
            paper.Line(f"made for {guess:,}", SEPARATIONS, given[kind, guess], number)
            for number, guess in enumerate(GUESSES)
        ]
        label = f"{kind}: RmsLoss, times\nthat of the right guess"
        return paper.lines(drawn, "min separation of the run", label, "x", y_limits=(0.98, top))

    rows = [[f"{separation:,}", *(given[key][place] for key in given)] for place, separation in enumerate(SEPARATIONS)]
    result = paper.Result(
        name="blt-guess",
        title="Loss that a wrong guess of the min separation costs",
        paper="McMahan et al. 2024 (BLT), after figures 3 and 4: robustness to the min-sep that was planned for",
        setting=f"{ROUNDS:,} rounds; BLTs of {BUFFERS} buffers and banded Toeplitz strategies of as many bands as the "
        "guess. 1 is the loss with the right guess.",
        table=[["min separation", *(f"{kind} for {guess:,}" for kind, guess in given)], *rows],
        claims=claims(),
        draws=[panel(kind) for kind in KINDS],
    )
    paper.write(result, COMMAND, chosen.results)


if __name__ == "__main__":
    main()
