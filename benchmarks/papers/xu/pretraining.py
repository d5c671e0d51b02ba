"""Accuracy by round from public text and from nothing, with and without the noise of a large cohort.

    .venv/stages/bin/python -m benchmarks.papers.xu.pretraining                 packaged chat; one to two minutes
    .venv/stages/bin/python -m benchmarks.papers.xu.pretraining FOLDER          FOLDER/users/en_blogs.parquet
    .venv/stages/bin/python -m benchmarks.papers.xu.pretraining FOLDER --full --device cuda

Xu et al. 2023, figure 3 a. Tree noise at noise multiplier 7 for 6,500 devices a round, scaled down to the small rounds
here, and 16 and 64 times as much. A larger run of the paper's model on a CPU is
``benchmarks/results/2026-11-21-learning-curves.md``.
"""

from benchmarks.papers import paper, training
from benchmarks.papers.lab import CHANCE, Lab
from benchmarks.papers.runs import Arm, Run, each_trained

GOAL, MULTIPLIER = 6500, 7.0
LOOKS = ((0, "-"), (1, "--"), (2, "-"), (3, "-"), (4, "-"), (5, "--"))


def arms(lab: Lab) -> list[Arm]:
    """Two starts, with and without noise; more noise from the better start."""
    share = lab.size.goal / GOAL

    def tree(times: float) -> dict[str, object]:
        return {"kind": "tree", "noise_multiplier": MULTIPLIER * share * times if times else 1e-6}

    return [
        *(
            Arm(f"pretrained, {f'noise x{times:g}' if times else 'no noise'}", tree(times))
            for times in (0.0, 1.0, 16.0, 64.0)
        ),
        Arm("scratch, no noise", tree(0.0), server={"learning_rate": 3 * lab.size.server_rate}, start="scratch"),
        Arm("scratch, noise x1", tree(1.0), server={"learning_rate": 3 * lab.size.server_rate}, start="scratch"),
    ]


def rounds_saved(public: Run, scratch: Run) -> float:
    """Rounds after which a run from scratch is at its best, less those after which one from public text is as good."""
    rounds, recall = scratch.curve()
    best = max(recall)
    begun, from_public = public.curve()
    sooner = next(number for number, value in zip(begun, from_public, strict=True) if value >= best)
    return rounds[recall.index(best)] - sooner


def figure(lab: Lab) -> paper.Result:
    """Train, judge, draw."""
    runs = each_trained(lab, arms(lab))
    first, best = runs["pretrained, noise x1"], runs["pretrained, no noise"]
    scratch, more = runs["scratch, noise x1"], runs["pretrained, noise x64"]
    began = first.curve()[1][0]
    claims = [
        paper.Claim(
            "pretraining on public text gives the better model after the same rounds",
            f"{first.top1:.2f}% against {scratch.top1:.2f}% from scratch",
            first.top1 > scratch.top1 + CHANCE,
        ),
        paper.Claim(
            "private training goes on above what public text gave",
            f"{began:.2f}% to {first.curve()[1][-1]:.2f}% on the curve's devices",
            first.curve()[1][-1] > began + CHANCE,
        ),
        paper.Claim(
            "noise multiplier 7 over 6,500 devices costs little accuracy",
            f"{first.top1:.2f}% against {best.top1:.2f}% without noise, {more.top1:.2f}% at 64 times the noise",
            best.top1 - first.top1 < CHANCE,
        ),
    ]
    loss = training.curves(runs, LOOKS, "loss")
    return paper.Result(
        name="xu-pretraining",
        title="Accuracy by round, from public text and from scratch",
        paper="Xu et al. 2023, figure 3 a: pretraining",
        setting=f"{lab.said} {lab.size.goal} devices a round with the noise of {GOAL:,}, "
        f"server rate {lab.size.server_rate:g} (from scratch three times that).",
        table=training.table(runs),
        claims=claims,
        numbers=[
            paper.Number(
                "Xu et al. 2023, section 2.3",
                "rounds that pretraining saves, about",
                "1000",
                rounds_saved(first, scratch),
                f"{lab.size.rounds} rounds: from scratch they never reach what public text alone gives",
            )
        ],
        draws=[
            paper.lines(training.curves(runs, LOOKS), "round", training.RECALL),
            paper.lines(loss, "round", training.LOSS),
        ],
    )


if __name__ == "__main__":
    training.carry_out(__doc__, "xu.pretraining", figure)
