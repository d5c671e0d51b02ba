"""Loss of mechanisms that stay as they are while the run gets longer or shorter.

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
ROUNDS = (250, 500, 1000, 1500, 2000, 3000, 4000, 8000, 16_000)
LOOKS = {
    "tree": (0, "-"),
    "BLT, 2 buffers": (1, "-"),
    "BLT, 3 buffers": (2, "-"),
    "banded, 400 bands": (5, "-"),
    "BLT made again": (2, ":"),
    "banded made again": (5, ":"),
}


def losses(rounds: Sequence[int]) -> dict[str, list[float]]:
    """RmsLoss by rounds of mechanisms made for the planned run, and of those made again for each."""
    plan, runs = Run(PLANNED, MIN_SEP), [Run(number, MIN_SEP) for number in rounds]
    priced = {
        "tree": [strategies.tree_losses(run) for run in runs],
        **{
            f"BLT, {buffers} buffers": [strategies.blt_losses(strategies.blt(plan, buffers), run) for run in runs]
            for buffers in (2, 3)
        },
        "banded, 400 bands": [strategies.banded_losses(strategies.bands(plan, MIN_SEP), run) for run in runs],
        "BLT made again": [strategies.blt_losses(strategies.blt(run, 3), run) for run in runs],
        "banded made again": [strategies.banded_losses(strategies.bands(run, MIN_SEP), run) for run in runs],
    }
    return {name: [one.rms_loss for one in values] for name, values in priced.items()}


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
    rms = losses(ROUNDS)
    best = [min(values) for values in zip(*rms.values(), strict=True)]

    def panel(y_label: str, base: Sequence[float], log: str) -> paper.Draw:
        drawn = (paper.Line(name, ROUNDS, strategies.ratios(rms[name], base), *look) for name, look in LOOKS.items())
        return paper.lines(drawn, "rounds of the run", y_label, log, PLANNED)

    rows = [
        [f"{number:,}", Run(number, MIN_SEP).most, *(values[place] for values in rms.values())]
        for place, number in enumerate(ROUNDS)
    ]
    result = paper.Result(
        name="blt-rounds",
        title="Loss of fixed mechanisms over the rounds",
        paper="McMahan et al. 2024 (BLT), fixed mechanisms over rounds",
        setting=f"Min separation {MIN_SEP}; every mechanism was made for {PLANNED:,} rounds (dashed line) and least "
        "RmsLoss. 'Made again' (dotted) is made for the rounds that it runs. RmsLoss in the table.",
        table=[["rounds", "participations", *rms], *rows],
        claims=claims(ROUNDS, rms),
        draws=[panel("RmsLoss", [1.0] * len(ROUNDS), "xy"), panel("RmsLoss, times the best", best, "x")],
    )
    paper.write(result, COMMAND, chosen.results)


if __name__ == "__main__":
    main()
