"""Accuracy by round and by noise: private runs against a run without noise.

    .venv/stages/bin/python -m benchmarks.papers.mcmahan.noise                 packaged chat; one to two minutes
    .venv/stages/bin/python -m benchmarks.papers.mcmahan.noise FOLDER          FOLDER/users/en_blogs.parquet
    .venv/stages/bin/python -m benchmarks.papers.mcmahan.noise FOLDER --full --device cuda

McMahan et al. 2018, figures 1 and 3: accuracy of noised training beside the baseline, and how much noise it bears.
Epsilon of the paper's own rounds, its table 2, is computed again beside them.
"""

from benchmarks.papers import paper, training
from benchmarks.papers.lab import CHANCE, Lab
from benchmarks.papers.mcmahan import setting
from benchmarks.papers.mcmahan.setting import noise_name
from benchmarks.papers.runs import Arm, each_trained
from federated.accounting import published
from federated.accounting.published_rows import MCMAHAN, ROWS

TIMES = (0.0, 1.0, 16.0, 64.0, 256.0)
LOOKS = ((0, "-"), (1, "--"), (2, "-"), (3, "-"), (4, "-"))  # the second lies on the first


def arms(lab: Lab) -> list[Arm]:
    """From no noise to more than training bears."""
    return [setting.arm(lab, noise_name(times), times) for times in TIMES]


def figure(lab: Lab) -> paper.Result:
    """Train, judge, draw."""
    runs = each_trained(lab, arms(lab))
    base, private, loudest = (runs[noise_name(times)] for times in (0.0, 1.0, TIMES[-1]))
    rows = [published.check(row) for row in ROWS if row.source == MCMAHAN and row.table == "2"]
    claims = [
        paper.Claim(
            "private models are quantitatively similar to un-noised ones when the data set is large",
            f"{private.top1:.2f}% with the noise of rounds of {setting.COHORT:,}, {base.top1:.2f}% without",
            base.top1 - private.top1 < CHANCE,
        ),
        paper.Claim(
            "more noise slows training and then stops it",
            ", ".join(f"{runs[noise_name(times)].top1:.2f}% at x{times:g}" for times in TIMES),
            loudest.top1 < base.top1 - CHANCE,
        ),
        paper.Claim(
            f"epsilon {', '.join(one.row.printed for one in rows)} (table 2)",
            ", ".join(f"{one.ours:.3f}" for one in rows if one.ours is not None),
            all(one.match for one in rows),
        ),
    ]
    ends = paper.Line("last model", TIMES[1:], [runs[noise_name(times)].top1 for times in TIMES[1:]], 5)
    without = paper.Line("no noise", TIMES[1:], [base.top1] * (len(TIMES) - 1), 0)
    return paper.Result(
        name="mcmahan-noise",
        title="Accuracy by round and by noise",
        paper=f"{setting.PAPER}, figures 1 and 3, and table 2",
        setting=f"{lab.said} Rounds of {lab.size.goal} on average; noise x1 is that of {setting.COHORT:,} at noise "
        "multiplier 1.",
        table=training.table(runs),
        claims=claims,
        draws=[
            paper.lines(training.curves(runs, LOOKS), "round", training.RECALL),
            paper.lines([ends, without], "noise, times the paper's", training.LAST, "x"),
        ],
    )


if __name__ == "__main__":
    training.carry_out(__doc__, "mcmahan.noise", figure)
