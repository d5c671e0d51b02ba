"""Accuracy by round and by noise: private runs against a run without noise.

    .venv/stages/bin/python -m benchmarks.papers.mcmahan.noise                 packaged chat; one to two minutes
    .venv/stages/bin/python -m benchmarks.papers.mcmahan.noise FOLDER          FOLDER/users/en_blogs.parquet
    .venv/stages/bin/python -m benchmarks.papers.mcmahan.noise FOLDER --full --device cuda

McMahan et al. 2018, figures 1 and 3: accuracy of noised training beside the baseline, and how much noise it bears.
Table 2 is computed again: epsilon of the paper's own rounds, and accuracy at its ratios of noise to clip norm.
"""

from collections.abc import Sequence

from benchmarks.papers import paper, training
from benchmarks.papers.lab import CHANCE, Lab
from benchmarks.papers.mcmahan import setting
from benchmarks.papers.mcmahan.setting import noise_name
from benchmarks.papers.runs import Arm, each_trained, trained
from federated.accounting import published
from federated.accounting.published_rows import MCMAHAN, ROWS

TIMES = (0.0, 1.0, 16.0, 64.0, 256.0)
LOOKS = ((0, "-"), (1, "--"), (2, "-"), (3, "-"), (4, "-"))  # the second lies on the first
# Table 2: noise over clip norm, times that of 0.003 and 15; sigma; top-1 in percent.
TABLE_2 = ((0.0, "0", "17.62"), (1.0, "0.003", "17.49"), (3.0, "0.006", "17.04"), (4.0, "0.012", "16.33"))


def arms(lab: Lab) -> list[Arm]:
    """From no noise to more than training bears."""
    return [setting.arm(lab, noise_name(times), times) for times in TIMES]


def numbers(lab: Lab, rows: Sequence[published.Comparison]) -> list[paper.Number]:
    """Table 2, and what the text says of it."""
    where = f"{setting.PAPER}, table 2"
    top1 = {times: trained(lab, setting.arm(lab, noise_name(times), times)).top1 for times, *_ in TABLE_2}
    why = "chat for Reddit, 113,528 weights for 1.35 million, 24 rounds for 5,000, from public text"
    return [
        *(paper.Number(where, f"{one.row.row}, {one.row.quantity}", one.row.printed, one.ours) for one in rows),
        *(
            paper.Number(where, f"AccuracyTop1 at sigma {sigma}, %", printed, top1[times], why)
            for times, sigma, printed in TABLE_2
        ),
        paper.Number(
            f"{setting.PAPER}, section 3",
            "difference of AccuracyTop1 at sigma 0.003, points",
            "-0.13",
            top1[1.0] - top1[0.0],
            why,
        ),
    ]


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
        numbers=numbers(lab, rows),
        draws=[
            paper.lines(training.curves(runs, LOOKS), "round", training.RECALL),
            paper.lines([ends, without], "noise, times the paper's", training.LAST, "x"),
        ],
    )


if __name__ == "__main__":
    training.carry_out(__doc__, "mcmahan.noise", figure)
