"""Loss of fixed mechanisms as the min separation changes.

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


RUNS = [Run(ROUNDS, separation) for separation in SEPARATIONS]


def losses() -> dict[str, list[float]]:
    """RmsLoss by separation: fixed mechanisms, remade ones, a tree that nobody can stream, and fresh noise."""
    return strategies.fixed_losses(Run(ROUNDS, PLANNED), RUNS, BUFFERS) | {
        "tree, later nodes too": [strategies.full_tree_losses(run).rms_loss for run in RUNS],
        "fresh noise": [strategies.independent_losses(run).rms_loss for run in RUNS],
    }


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
    rms = losses()
    result = paper.Result(
        name="blt-min-sep",
        title="Loss of fixed mechanisms over the min separation",
        paper="McMahan et al. 2024 (BLT), after figures 2 and 4: fixed mechanisms over min-sep",
        setting=f"{ROUNDS:,} rounds; every mechanism was made for min separation {PLANNED} (dashed line) and least "
        "RmsLoss. 'Made again' (dotted) is made for the separation that it meets. RmsLoss in the table.",
        table=strategies.table("min separation", SEPARATIONS, RUNS, rms),
        claims=claims(SEPARATIONS, rms),
        draws=strategies.panels("min separation of the run", SEPARATIONS, rms, LOOKS, PLANNED),
    )
    paper.write(result, COMMAND, chosen.results)


if __name__ == "__main__":
    main()
