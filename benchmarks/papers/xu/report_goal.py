"""The report-goal hypothesis: utility stays the same if noise multiplier and report goal grow together.

    .venv/stages/bin/python -m benchmarks.papers.xu.report_goal                 packaged chat; three minutes
    .venv/stages/bin/python -m benchmarks.papers.xu.report_goal FOLDER          FOLDER/users/en_blogs.parquet
    .venv/stages/bin/python -m benchmarks.papers.xu.report_goal FOLDER --full --device cuda

Xu et al. 2023, section 2.2: rounds of 500 devices at noise multiplier 0.54 stand for rounds of 6,500 at 7, because the
noise of the mean update, clip norm * multiplier / goal, is the same. Here rounds of different sizes at that ratio, and
beside them rounds at one multiplier, whose ratio is not the same. 6,500 itself needs more devices than the text has.
"""

from benchmarks.papers import paper, training
from benchmarks.papers.lab import FULL, Lab
from benchmarks.papers.runs import Arm, each_trained

RATIO = 7.0 / 6500
GOALS, FULL_GOALS = (25, 100, 500), (100, 500, 1000, 2000)
LOUD = 64.0  # times the paper's noise, where noise is what limits


def arms(lab: Lab) -> dict[str, list[Arm]]:
    """Rounds of different sizes: at the paper's ratio, at more of it, and at the multiplier of the largest."""
    goals = FULL_GOALS if lab.size is FULL else GOALS

    def arm(goal: int, multiplier: float, kind: str) -> Arm:
        tree = {"kind": "tree", "report_goal": goal, "noise_multiplier": multiplier}
        return Arm(f"{kind}, {goal:,} devices at {multiplier:.3g}", tree)

    return {
        "ratio of 7 / 6,500": [arm(goal, RATIO * goal, "same ratio") for goal in goals],
        f"{LOUD:g} times that ratio": [arm(goal, LOUD * RATIO * goal, "same, louder") for goal in goals],
        f"multiplier of {goals[-1]:,} devices at {LOUD:g} times": [
            arm(goal, LOUD * RATIO * goals[-1], "same multiplier") for goal in goals
        ],
    }


def figure(lab: Lab) -> paper.Result:
    """Train, judge, draw."""
    groups = {name: each_trained(lab, listed) for name, listed in arms(lab).items()}
    goals = [arm.mechanism["report_goal"] for arm in next(iter(arms(lab).values()))]
    top1 = {name: [run.top1 for run in runs.values()] for name, runs in groups.items()}
    equal, loud, unequal = top1.values()

    def spread(values: list[float]) -> float:
        return max(values) - min(values)

    small, large = 0.54 / 500, 7.0 / 6500
    claims = [
        paper.Claim(
            "500 devices at 0.54 have the noise of 6,500 at 7",
            f"{1e3 * small:.4f} and {1e3 * large:.4f} thousandths of the clip norm",
            abs(small / large - 1) < 0.01,
        ),
        paper.Claim(
            "so small rounds predict the accuracy of large ones",
            f"goals {goals[0]} to {goals[-1]:,} differ by {spread(equal):.2f} points at the paper's ratio and by "
            f"{spread(loud):.2f} at {LOUD:g} times",
            max(spread(equal), spread(loud)) < 0.5,
        ),
        paper.Claim(
            "at one multiplier a larger goal is what helps",
            f"{unequal[0]:.2f}% with {goals[0]} devices, {unequal[-1]:.2f}% with {goals[-1]:,}",
            unequal[-1] - unequal[0] > 2 * spread(loud),
        ),
    ]
    curve_looks = [(number, "-") for number in range(len(goals))]
    drawn = [
        paper.Line(f"{goal:,} devices", *run.curve(), *look)
        for goal, run, look in zip(goals, list(groups.values())[1].values(), curve_looks, strict=True)
    ]
    ends = [paper.Line(name, goals, values, 4 + number) for number, (name, values) in enumerate(top1.items())]
    rows = [
        [name, goal, arm.mechanism["noise_multiplier"], run.top1, run.top3]
        for (name, listed), runs in zip(arms(lab).items(), groups.values(), strict=True)
        for goal, arm, run in zip(goals, listed, runs.values(), strict=True)
    ]
    return paper.Result(
        name="xu-report-goal",
        title="Report goal and noise multiplier grown together",
        paper="Xu et al. 2023, section 2.2: 500 devices at 0.54 against 6,500 at 7",
        setting=f"{lab.said} {lab.size.rounds} rounds. Left: recall by round at {LOUD:g} times the paper's ratio.",
        table=[["noise", "report goal", "noise multiplier", "top-1 %", "top-3 %"], *rows],
        claims=claims,
        numbers=[
            paper.Number(
                "Xu et al. 2023, section 2.2",
                "noise multiplier of 500 devices with the noise of 6,500 at 7",
                "0.54",
                500 * RATIO,
            )
        ],
        draws=[
            paper.lines(drawn, "round", training.RECALL),
            paper.lines(ends, "report goal", training.LAST, "x"),
        ],
    )


if __name__ == "__main__":
    training.carry_out(__doc__, "xu.report_goal", figure)
