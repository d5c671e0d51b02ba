"""A model's ten likeliest words: the number of them that are among the most frequent ones.

    .venv/stages/bin/python -m benchmarks.papers.mcmahan.top_ten                 packaged chat; one to two minutes
    .venv/stages/bin/python -m benchmarks.papers.mcmahan.top_ten FOLDER          FOLDER/users/en_blogs.parquet
    .venv/stages/bin/python -m benchmarks.papers.mcmahan.top_ten FOLDER --full --device cuda

McMahan et al. 2018, table 3: histograms of how many of a model's ten likeliest words are found among the 10, 50 or 100
most frequent ones, and here among 25 too; noise makes a model prefer frequent words. Places are those of held-out text,
frequencies those of public text. Runs are those of ``mcmahan.noise``.
"""

import numpy as np

from benchmarks.papers import paper, training
from benchmarks.papers.lab import Lab
from benchmarks.papers.mcmahan import noise, setting
from benchmarks.papers.runs import FREQUENT, Run, each_trained

AMONG = list(range(11))


def shares(run: Run, most: int) -> list[float]:
    """Percent of places by how many of their ten words are among the so many most frequent ones."""
    return [100 * places / sum(run.top_ten[most]) for places in run.top_ten[most]]


def mean(run: Run, most: int) -> float:
    """Of ten words, how many are on average among the so many most frequent ones."""
    return float(np.dot(shares(run, most), AMONG) / 100)


def apart(run: Run, other: Run) -> float:
    """Percent of places that would have to change their count for two histograms to be the same, at worst."""
    return max(float(np.abs(np.subtract(shares(run, most), shares(other, most))).sum() / 2) for most in FREQUENT)


def figure(lab: Lab) -> paper.Result:
    """Train or find, count, draw."""
    # The last of them is no language model any more.
    runs = each_trained(lab, noise.arms(lab)[:-1])
    quiet, private, *_, loudest = runs.values()
    listed = [f"{mean(run, 100):.2f} with {name}" for name, run in runs.items()]
    claims = [
        paper.Claim(
            "private models are qualitatively similar to un-noised ones",
            f"at the paper's noise {apart(private, quiet):.1f}% of places have another count, at "
            f"{noise.TIMES[-2]:g} times that {apart(loudest, quiet):.1f}%",
            apart(private, quiet) < 5,
        ),
        paper.Claim(
            "noise biases a model towards the most frequent words",
            f"of ten, {', '.join(listed)} are among the 100 most frequent",
            mean(loudest, 100) > mean(quiet, 100) + 0.1,
        ),
    ]

    def panel(most: int) -> paper.Draw:
        drawn = [
            paper.Line(name, AMONG, shares(run, most), *noise.LOOKS[place])
            for place, (name, run) in enumerate(runs.items())
        ]
        return paper.lines(drawn, f"of ten, among the {most} most frequent", "% of places")

    rows = [[name, most, *shares(run, most), mean(run, most)] for name, run in runs.items() for most in FREQUENT]
    return paper.Result(
        name="mcmahan-top-ten",
        title="Frequent words among the ten likeliest",
        paper=f"{setting.PAPER}, table 3",
        setting=f"{lab.said} Columns 0 to 10: percent of places at which so many of the ten words are among the n most "
        "frequent.",
        table=[["arm", "n", *AMONG, "mean"], *rows],
        claims=claims,
        draws=[panel(most) for most in FREQUENT],
    )


if __name__ == "__main__":
    training.carry_out(__doc__, "mcmahan.top_ten", figure)
