"""Loss of mechanisms that stay as they are while the min separation changes.

    .venv/stages/bin/python -m benchmarks.papers.blt.min_sep    twenty seconds of CPU

Each mechanism is made once, for 2,000 rounds at min separation 400, and then priced at every other separation, with
as many participations as that separation allows. Below all of them: what the same mechanism reaches when it is made
again for each separation. Privacy accounting alone: no text, no model, no noise.

Read it as: at one rho, how much noise does the model carry if devices come back sooner or later than was planned?
"""

from collections.abc import Mapping, Sequence

from benchmarks.papers import paper
from benchmarks.papers.blt import strategies
from benchmarks.papers.blt.strategies import Run

COMMAND = "python -m benchmarks.papers.blt.min_sep"
ROUNDS, PLANNED, BUFFERS = 2000, 400, (2, 3, 4, 5)
SEPARATIONS = (25, 50, 75, 100, 150, 200, 250, 300, 350, 400, 450, 500, 667, 800, 1000, 1500, 2000)
LOOKS = {
    "tree": (0, "-"),
    "tree, later nodes too": (6, "-"),
    "BLT, 2 buffers": (1, "-"),
    "BLT, 3 buffers": (2, "-"),
    "banded, 400 bands": (5, "-"),
    "fresh noise": (7, "-"),
    "BLT made again": (2, ":"),
    "banded made again": (5, ":"),
}


def losses(separations: Sequence[int]) -> dict[str, list[float]]:
    """RmsLoss by separation of mechanisms made for the planned one, and of those made again for each."""
    plan, runs = Run(ROUNDS, PLANNED), [Run(ROUNDS, separation) for separation in separations]
    priced = {
        "tree": [strategies.tree_losses(run) for run in runs],
        "tree, later nodes too": [strategies.full_tree_losses(run) for run in runs],
        **{
            f"BLT, {buffers} buffers": [strategies.blt_losses(strategies.blt(plan, buffers), run) for run in runs]
            for buffers in BUFFERS
        },
        "banded, 400 bands": [strategies.banded_losses(strategies.bands(plan, PLANNED), run) for run in runs],
        "fresh noise": [strategies.independent_losses(run) for run in runs],
        "BLT made again": [strategies.blt_losses(strategies.blt(run, 3), run) for run in runs],
        "banded made again": [strategies.banded_losses(strategies.bands(run, run.min_sep), run) for run in runs],
    }
    return {name: [one.rms_loss for one in values] for name, values in priced.items()}


def claims(separations: Sequence[int], rms: Mapping[str, Sequence[float]]) -> list[paper.Claim]:
    """Statements of the BLT paper beside these numbers."""
    again = strategies.ratios(rms["tree, later nodes too"], rms["BLT made again"])
    tree = strategies.ratios(rms["tree"], rms["BLT, 3 buffers"])
    full = strategies.ratios(rms["tree, later nodes too"], rms["BLT, 3 buffers"])
    behind = strategies.ratios(rms["BLT made again"], rms["banded made again"])
    stale = strategies.ratios(rms["BLT, 3 buffers"], rms["BLT made again"])
    near = [ratio for separation, ratio in zip(separations, stale, strict=True) if 200 <= separation <= 1000]
    return [
        paper.Claim(
            "tree aggregation is far from the best trade",
            f"even with nodes of later rounds {min(again):.2f} to {max(again):.2f} times the RmsLoss of a BLT made "
            "for the run",
            min(again) > 1.1,
        ),
        paper.Claim(
            "a BLT that stays as it was made beats the tree at every separation",
            f"the streamed tree has {min(tree):.2f} to {max(tree):.2f} times its RmsLoss, one with later nodes "
            f"{min(full):.2f} to {max(full):.2f}",
            min(full) > 1,
        ),
        paper.Claim(
            "a BLT made for the run essentially matches the banded mechanism",
            f"{min(behind):.3f} to {max(behind):.3f} times its RmsLoss",
            max(behind) < 1.1,
        ),
        paper.Claim(
            "a BLT needs no good guess of the separation",
            f"made for 400, it gives away at most {100 * (max(near) - 1):.1f}% from 200 to 1,000, and "
            f"{100 * (max(stale) - 1):.0f}% at a sixteenth of the guess",
            max(near) < 1.1,
        ),
    ]


def main() -> None:
    """Price, judge, write."""
    chosen = paper.parser(__doc__).parse_args()
    rms = losses(SEPARATIONS)
    best = [min(values) for values in zip(*rms.values(), strict=True)]

    def panel(y_label: str, base: Sequence[float], log: str, without: str) -> paper.Draw:
        kept = {name: look for name, look in LOOKS.items() if name != without}
        return paper.lines(
            (paper.Line(name, SEPARATIONS, strategies.ratios(rms[name], base), *look) for name, look in kept.items()),
            "min separation of the run",
            y_label,
            log,
            PLANNED,
        )

    rows = [
        [f"{separation:,}", Run(ROUNDS, separation).most, *(values[place] for values in rms.values())]
        for place, separation in enumerate(SEPARATIONS)
    ]
    result = paper.Result(
        name="blt-min-sep",
        title="Loss of fixed mechanisms over the min separation",
        paper="McMahan et al. 2024 (BLT), fixed mechanisms over min-sep",
        setting=f"{ROUNDS:,} rounds; every mechanism was made for min separation {PLANNED} (dashed line) and least "
        "RmsLoss. 'Made again' (dotted) is made for the separation that it meets. RmsLoss in the table.",
        table=[["min separation", "participations", *rms], *rows],
        claims=claims(SEPARATIONS, rms),
        draws=[
            panel("RmsLoss", [1.0] * len(SEPARATIONS), "xy", ""),
            panel("RmsLoss, times the best", best, "x", "fresh noise"),
        ],
    )
    paper.write(result, COMMAND, chosen.results)


if __name__ == "__main__":
    main()
