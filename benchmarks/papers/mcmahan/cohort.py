"""Accuracy by number of devices per round, at one noise multiplier and without noise.

    .venv/stages/bin/python -m benchmarks.papers.mcmahan.cohort                 packaged chat; one to two minutes
    .venv/stages/bin/python -m benchmarks.papers.mcmahan.cohort FOLDER          FOLDER/users/en_blogs.parquet
    .venv/stages/bin/python -m benchmarks.papers.mcmahan.cohort FOLDER --full --device cuda

McMahan et al. 2018, figure 6: users per round without noise; beside it section 2: at one noise multiplier larger rounds
average noise away and cost computation, not privacy, while sampling stays rare. Figure 7, rounds of different sizes
with the same noise in the mean, is what ``xu.report_goal`` shows of DP-FTRL.
"""

from benchmarks.papers import paper, training
from benchmarks.papers.lab import CHANCE, FULL, Lab
from benchmarks.papers.mcmahan import setting
from benchmarks.papers.runs import trained

GOALS, FULL_GOALS, LOUD = (25, 100, 400), (100, 250, 500, 1000), 64.0


def figure(lab: Lab) -> paper.Result:
    """Train, judge, draw."""
    goals = FULL_GOALS if lab.size is FULL else GOALS
    one = setting.multiplier(goals[-1], LOUD)
    quiet = {goal: trained(lab, setting.arm(lab, "quiet", report_goal=goal)) for goal in goals}
    loud = {goal: trained(lab, setting.arm(lab, "loud", report_goal=goal, noise_multiplier=one)) for goal in goals}
    runs = {f"{goal:,} devices, no noise": run for goal, run in quiet.items()}
    runs |= {f"{goal:,} devices, multiplier {one:.3g}": run for goal, run in loud.items()}
    without, noised = ([run.top1 for run in group.values()] for group in (quiet, loud))
    claims = [
        paper.Claim(
            "with noise, more devices in a round help",
            f"{noised[0]:.2f}% with {goals[0]}, {noised[-1]:.2f}% with {goals[-1]:,}",
            noised[-1] > noised[0] + CHANCE,
        ),
        paper.Claim(
            "without noise they matter less",
            f"{without[0]:.2f}% with {goals[0]}, {without[-1]:.2f}% with {goals[-1]:,}",
            abs(without[-1] - without[0]) < abs(noised[-1] - noised[0]),
        ),
    ]
    ends = [
        paper.Line("no noise", goals, without, 0),
        paper.Line(f"noise multiplier {one:.3g}", goals, noised, 1),
    ]
    curves = [
        paper.Line(f"{goal:,} devices, with noise", *run.curve(), 2 + number)
        for number, (goal, run) in enumerate(loud.items())
    ]
    return paper.Result(
        name="mcmahan-cohort",
        title="Accuracy by devices in a round",
        paper=f"{setting.PAPER}, figure 6 and section 2: users per round",
        setting=f"{lab.said} {lab.size.rounds} rounds.",
        table=training.table(runs),
        claims=claims,
        draws=[
            paper.lines(ends, "devices in a round", training.LAST, "x"),
            paper.lines(curves, "round", training.RECALL),
        ],
    )


if __name__ == "__main__":
    training.carry_out(__doc__, "mcmahan.cohort", figure)
