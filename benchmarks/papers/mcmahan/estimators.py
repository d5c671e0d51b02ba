"""Accuracy by estimator of the mean and by the weight of a device.

    .venv/stages/bin/python -m benchmarks.papers.mcmahan.estimators                 packaged chat; one to two minutes
    .venv/stages/bin/python -m benchmarks.papers.mcmahan.estimators FOLDER          FOLDER/users/en_blogs.parquet
    .venv/stages/bin/python -m benchmarks.papers.mcmahan.estimators FOLDER --full --device cuda

McMahan et al. 2018, figure 5 and section 2: dividing by the expected weight (sensitivity
S / (q W)) or by the weight that arrived if it is more (2 S / (q W_min)); every device alike, or by its words up to a
cap. At one noise multiplier per sensitivity the clipped estimator therefore carries twice the noise.
"""

from benchmarks.papers import paper, training
from benchmarks.papers.lab import CHANCE, Lab
from benchmarks.papers.mcmahan import setting
from benchmarks.papers.runs import each_trained

TIMES, CAP = 64.0, 60
ARMS = {
    "fixed, equal weights": {},
    "fixed, weights by words": {"weight_words": CAP},
    "clipped, equal weights": {"estimator": "clipped"},
    "clipped, weights by words": {"estimator": "clipped", "weight_words": CAP},
}
LOOKS = ((0, "-"), (1, "-"), (0, "--"), (1, "--"))


def figure(lab: Lab) -> paper.Result:
    """Train, judge, draw."""
    groups = {
        times: each_trained(lab, (setting.arm(lab, name, times, **block) for name, block in ARMS.items()))
        for times in (0.0, TIMES)
    }
    quiet, loud = groups.values()
    means = {kind: sum(loud[name].top1 for name in ARMS if name.startswith(kind)) / 2 for kind in ("fixed", "clipped")}
    spread = max(run.top1 for run in quiet.values()) - min(run.top1 for run in quiet.values())
    claims = [
        paper.Claim(
            "without noise the estimators and weights make little difference", f"{spread:.2f} points", spread < CHANCE
        ),
        paper.Claim(
            "with noise the fixed denominator is better, as its sensitivity is half",
            f"{means['fixed']:.2f}% against {means['clipped']:.2f}%",
            means["fixed"] > means["clipped"] + CHANCE,
        ),
    ]
    runs = {
        f"{name}, {setting.noise_name(times)}": run for times, group in groups.items() for name, run in group.items()
    }
    panels = [training.curves(group, LOOKS) for group in groups.values()]
    low = min(min(line.y) for lines in panels for line in lines)
    high = max(max(line.y) for lines in panels for line in lines)
    limits = low - 0.1, high + 0.1
    return paper.Result(
        name="mcmahan-estimators",
        title="Accuracy by estimator and weights",
        paper=f"{setting.PAPER}, figure 5: estimators, and section 2: weights",
        setting=f"{lab.said} {lab.size.rounds} rounds of {lab.size.goal} on average; weights by words are capped at "
        f"{CAP}. Left without noise, right with {TIMES:g} times the paper's.",
        table=training.table(runs),
        claims=claims,
        draws=[
            paper.lines(panels[0], "round, no noise", training.RECALL, y_limits=limits),
            paper.lines(panels[1], f"round, noise x{TIMES:g}", training.RECALL, y_limits=limits),
        ],
    )


if __name__ == "__main__":
    training.carry_out(__doc__, "mcmahan.estimators", figure)
