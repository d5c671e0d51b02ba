"""Clip norm and noise changed late: the tolerance of a trained model.

    .venv/stages/bin/python -m benchmarks.papers.mcmahan.later                 packaged chat; one to two minutes
    .venv/stages/bin/python -m benchmarks.papers.mcmahan.later FOLDER          FOLDER/users/en_blogs.parquet
    .venv/stages/bin/python -m benchmarks.papers.mcmahan.later FOLDER --full --device cuda

McMahan et al. 2018, figures 4 and 8: a run goes on from a trained model with another clip norm and another noise. Late
updates are small beside the noise, so what a fresh model bears may hurt a trained one.
"""

from benchmarks.papers import paper, training
from benchmarks.papers.lab import CHANCE, Lab
from benchmarks.papers.mcmahan import setting
from benchmarks.papers.mcmahan.setting import noise_name
from benchmarks.papers.runs import trained, trained_model

NORMS, TIMES = (0.1, 0.3, 1.0), (0.0, 64.0)


def figure(lab: Lab) -> paper.Result:
    """Train, go on, judge, draw."""
    first, model = trained_model(lab, setting.arm(lab, "no noise"))
    runs = {
        f"clip norm {norm:g}, {noise_name(times)}": trained(
            lab, setting.arm(lab, "later", times, clip_norm=norm), model
        )
        for norm in NORMS
        for times in TIMES
    }
    quiet, loud = ([runs[f"clip norm {norm:g}, {noise_name(times)}"].top1 for norm in NORMS] for times in TIMES)
    lost = [one - other for one, other in zip(quiet, loud, strict=True)]
    claims = [
        paper.Claim(
            "training goes on without noise",
            f"{first.top1:.2f}% to {max(quiet):.2f}% in {lab.size.rounds} more rounds",
            max(quiet) > first.top1 + CHANCE,
        ),
        paper.Claim(
            "noise costs more the larger the clip norm that it is in units of",
            ", ".join(f"{cost:.2f} points at {norm:g}" for norm, cost in zip(NORMS, lost, strict=True)),
            lost == sorted(lost),
        ),
    ]
    began, before = lab.size.rounds, paper.Line("first run, no noise", *first.curve(), 5)
    after = [
        paper.Line(
            name, [began + number for number in run.curve()[0]], run.curve()[1], place // 2, "-" if place % 2 else "--"
        )
        for place, (name, run) in enumerate(runs.items())
    ]
    ends = [
        paper.Line(f"last model, {noise_name(times)}", NORMS, values, 3 + number)
        for number, (times, values) in enumerate(zip(TIMES, (quiet, loud), strict=True))
    ]
    return paper.Result(
        name="mcmahan-later",
        title="Clip norm and noise changed late",
        paper=f"{setting.PAPER}, figures 4 and 8",
        setting=f"{lab.said} {began} rounds of {lab.size.goal} without noise, then {lab.size.rounds} more.",
        table=training.table({"first run": first} | runs),
        claims=claims,
        draws=[
            paper.lines([before, *after], "round", training.RECALL),
            paper.lines(ends, "clip norm of the later rounds", training.LAST, "x"),
        ],
    )


if __name__ == "__main__":
    training.carry_out(__doc__, "mcmahan.later", figure)
