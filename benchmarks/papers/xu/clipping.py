"""Adaptive against fixed clipping: accuracy, estimated clip norm, and the cost of a wrong clip norm.

    .venv/stages/bin/python -m benchmarks.papers.xu.clipping                 packaged chat; one to two minutes
    .venv/stages/bin/python -m benchmarks.papers.xu.clipping FOLDER          FOLDER/users/en_blogs.parquet
    .venv/stages/bin/python -m benchmarks.papers.xu.clipping FOLDER --full --device cuda

Xu et al. 2023, algorithm 1 and figure 3. The median norm of updates is estimated from noisy bits in every
round; the clip norm in use follows it at the tree's restarts alone, a tenth and a half of the way through the run.
Noise multiplier 7 for 6,500 devices a round, scaled down to the small rounds here.
"""

from benchmarks.papers import paper, training
from benchmarks.papers.lab import CHANCE, FULL, Lab
from benchmarks.papers.runs import Arm, Run, each_trained

GOAL, MULTIPLIER = 6500, 7.0
STEP, SMALL_STEP = 0.2, 1.0  # the paper's, and one that finds a norm in a dozen rounds
NORMS = (0.03, 0.3, 3.0)
LOOKS = ((0, "-"), (1, "-"), (2, "-"), (0, ":"), (1, ":"), (2, ":"))


def arms(lab: Lab) -> list[Arm]:
    """Three clip norms, fixed and as where the estimate begins."""
    multiplier = MULTIPLIER * lab.size.goal / GOAL
    restarts = (max(1, lab.size.rounds // 10), lab.size.rounds // 2)
    step = STEP if lab.size is FULL else SMALL_STEP
    adaptive = {"target_quantile": 0.5, "learning_rate": step, "bit_noise_std": lab.size.goal / 20}
    tree = {"kind": "tree", "noise_multiplier": multiplier}
    return [
        *(Arm(f"fixed at {norm:g}", tree | {"clip_norm": norm}) for norm in NORMS),
        *(
            Arm(
                f"adaptive from {norm:g}",
                tree | {"clip_norm": norm, "adaptive_clipping": adaptive, "restarts": restarts},
            )
            for norm in NORMS
        ),
    ]


def claims(runs: dict[str, Run]) -> list[paper.Claim]:
    """The paper's statements on adaptive clipping beside these runs."""
    fixed = {name: run.top1 for name, run in runs.items() if name.startswith("fixed")}
    adaptive = {name: run.top1 for name, run in runs.items() if name.startswith("adaptive")}
    ends = [runs[name].points[-1]["estimate"] for name in adaptive]
    best, worst = max(fixed, key=fixed.__getitem__), min(fixed, key=fixed.__getitem__)
    return [
        paper.Claim(
            "the estimate finds the median norm wherever it begins",
            f"begun at {', '.join(f'{norm:g}' for norm in NORMS)}, it ends at "
            f"{', '.join(f'{end:.2f}' for end in ends)}",
            max(ends) < 1.5 * min(ends),
        ),
        paper.Claim(
            "adaptive clipping does about as well as the best fixed norm",
            f"{min(adaptive.values()):.2f} to {max(adaptive.values()):.2f}% against {fixed[best]:.2f}% {best}",
            fixed[best] - min(adaptive.values()) < CHANCE,
        ),
        paper.Claim(
            "so it saves the search for one",
            f"the worst norm, {worst}, has {fixed[worst]:.2f}%, the worst begin {min(adaptive.values()):.2f}%",
            min(adaptive.values()) > fixed[worst] + CHANCE,
        ),
    ]


def figure(lab: Lab) -> paper.Result:
    """Train, judge, draw."""
    runs = each_trained(lab, arms(lab))
    moving = {name: run for name, run in runs.items() if name.startswith("adaptive")}
    used = [
        paper.Line(*line)
        for number, (name, run) in enumerate(moving.items())
        for line in (
            (name, *run.curve("estimate"), number, ":"),
            (f"_{name}, in use", *run.curve("clip"), number, "-"),
        )
    ]
    ends = [
        paper.Line(f"{kind} the norm below", NORMS, [runs[f"{kind} {norm:g}"].top1 for norm in NORMS], colour, style)
        for kind, colour, style in (("fixed at", 3, "-"), ("adaptive from", 3, ":"))
    ]
    return paper.Result(
        name="xu-clipping",
        title="Adaptive against fixed clipping",
        paper="Xu et al. 2023, figure 3: adaptive clipping",
        setting=f"{lab.said} Rounds of {lab.size.goal} with the noise of {GOAL:,}.",
        table=[
            ["arm", "top-1 %", "top-3 %", "last clip norm", "last estimate"],
            *(
                [name, run.top1, run.top3, run.points[-1]["clip"], run.points[-1]["estimate"]]
                for name, run in runs.items()
            ),
        ],
        claims=claims(runs),
        numbers=[
            paper.Number(
                "Xu et al. 2023, section 2.1",
                "clip norm that the estimate of the median gives",
                "5",
                runs[f"adaptive from {NORMS[0]:g}"].points[-1]["estimate"],
                "a small network, at most 40 words of a device in a round",
            )
        ],
        draws=[
            paper.lines(training.curves(runs, LOOKS), "round", training.RECALL),
            paper.lines(used, "round", "adaptive clip norm\n(solid: in use, dotted: estimate)", "y"),
            paper.lines(ends, "clip norm of the first round", training.LAST, "x"),
        ],
        columns=3,
        panel=(3.3, 2.9),
    )


if __name__ == "__main__":
    training.carry_out(__doc__, "xu.clipping", figure)
