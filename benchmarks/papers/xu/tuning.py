"""From a few small adaptive runs to one large run with a fixed clip norm.

    .venv/stages/bin/python -m benchmarks.papers.xu.tuning                 packaged chat; two minutes
    .venv/stages/bin/python -m benchmarks.papers.xu.tuning FOLDER          FOLDER/users/en_blogs.parquet
    .venv/stages/bin/python -m benchmarks.papers.xu.tuning FOLDER --full --device cuda

Xu et al. 2023, section 2.5, strategy 6, and section 3: adaptive clipping in rounds of few devices tunes the quantile
and the server's rate; the best rate is kept, the clip norm is fixed to the estimate, and rounds of many devices train
with both. Small rounds have the large ones' noise in the mean, that of noise multiplier 7 for 6,500 devices. The paper
tunes with 500 devices and trains with 6,500, 13 times as many; here it is 10 times. Beside the result, at the same
rate: adaptive clipping in the large rounds, and fixed norms that nobody tuned.
"""

from benchmarks.papers import paper, training
from benchmarks.papers.lab import CHANCE, FULL, Lab
from benchmarks.papers.runs import Arm, Run, each_trained
from benchmarks.papers.xu import clipping

QUANTILES, RATES, UNTUNED = (0.25, 0.5, 0.75), (0.3, 1.0, 3.0), (0.03, 3.0)
START, GOALS, FULL_GOALS = 0.03, (20, 200), (100, 1000)


def arm(lab: Lab, name: str, goal: int, rate: float, norm: float, quantile: float | None = None) -> Arm:
    """A run of rounds of ``goal``; with a quantile the clip norm adapts and begins at ``norm``."""
    block = {
        "kind": "tree",
        "report_goal": goal,
        "noise_multiplier": clipping.MULTIPLIER * goal / clipping.GOAL,
        "clip_norm": norm,
    }
    if quantile is not None:
        step = clipping.STEP if lab.size is FULL else clipping.SMALL_STEP
        adaptive = {"target_quantile": quantile, "learning_rate": step, "bit_noise_std": goal / 20}
        restarts = (max(1, lab.size.rounds // 10), lab.size.rounds // 2)
        block |= {"adaptive_clipping": adaptive, "restarts": restarts}
    return Arm(name, block, server={"learning_rate": rate})


def tuned(runs: dict[tuple[float, float], Run]) -> tuple[float, float, float]:
    """Quantile and rate of the best small run by its own validation devices, and the norm that it estimates."""
    best = max(runs, key=lambda cell: runs[cell].points[-1]["recall"])
    return *best, runs[best].points[-1]["estimate"]


def figure(lab: Lab) -> paper.Result:
    """Tune, fix, train, judge, draw."""
    small, large = FULL_GOALS if lab.size is FULL else GOALS
    grid = [(quantile, rate) for quantile in QUANTILES for rate in RATES]
    names = [f"{small} devices, quantile {quantile:g}, rate {rate:g}" for quantile, rate in grid]
    few = each_trained(
        lab, (arm(lab, name, small, rate, START, quantile) for name, (quantile, rate) in zip(names, grid, strict=True))
    )
    tuning = dict(zip(grid, few.values(), strict=True))
    quantile, rate, norm = tuned(tuning)
    fixed, moving = f"{large} devices, fixed at {norm:.2f}", f"{large} devices, adaptive"
    many = each_trained(
        lab,
        [
            arm(lab, fixed, large, rate, norm),
            arm(lab, moving, large, rate, START, quantile),
            *(arm(lab, f"{large} devices, fixed at {other:g}", large, rate, other) for other in UNTUNED),
        ],
    )
    untuned = [many[f"{large} devices, fixed at {other:g}"].top1 for other in UNTUNED]
    by_quantile = [tuning[other, rate].points[-1]["estimate"] for other in QUANTILES]
    # Each quantile's spread over rates against each rate's spread over quantiles.
    over_rates = max(_spread([tuning[one, other].top1 for other in RATES]) for one in QUANTILES)
    over_quantiles = _spread([tuning[other, rate].top1 for other in QUANTILES])
    claims = [
        paper.Claim(
            "the small runs give a clip norm to fix: larger quantiles, larger norms",
            ", ".join(f"{one:.2f} at {other:g}" for one, other in zip(by_quantile, QUANTILES, strict=True)),
            by_quantile == sorted(by_quantile),
        ),
        paper.Claim(
            "the clip norm is relatively insensitive, above all when it is tuned with the server's rate (section 2.1)",
            f"quantiles differ by {over_quantiles:.2f} points at the chosen rate, rates by up to {over_rates:.2f}",
            over_quantiles < over_rates,
        ),
        paper.Claim(
            "a fixed norm from the estimate is comparable to adaptive clipping in large rounds, or slightly better "
            "(section 2.1)",
            f"{many[fixed].top1:.2f}% against {many[moving].top1:.2f}%",
            many[fixed].top1 > many[moving].top1 - CHANCE,
        ),
        paper.Claim(
            "the norm that small rounds chose serves large ones",
            "untuned norms have "
            + ", ".join(f"{one:.2f}% at {other:g}" for one, other in zip(untuned, UNTUNED, strict=True)),
            many[fixed].top1 > max(untuned) - CHANCE,
        ),
    ]
    used = [
        paper.Line(f"quantile {other:g}, rate {rate:g}", *tuning[other, rate].curve("estimate"), number)
        for number, other in enumerate(QUANTILES)
    ]
    curves = [paper.Line(name, *run.curve(), 3 + number) for number, (name, run) in enumerate(many.items())]
    rows = [
        [name, run.top1, run.top3, run.points[-1]["recall"], run.points[-1]["estimate"]]
        for name, run in (few | many).items()
    ]
    return paper.Result(
        name="xu-tuning",
        title="Adaptive clipping tunes, a fixed norm trains",
        paper="Xu et al. 2023, section 2.5, strategy 6",
        setting=f"{lab.said} {lab.size.rounds} rounds; small, with {small} devices a round to tune and {large} to "
        f"train. Chosen: quantile {quantile:g}, rate {rate:g}, clip norm {norm:.2f}, by recall on validation devices.",
        table=[["arm", "top-1 %", "top-3 %", "validation recall %", "last estimate"], *rows],
        claims=claims,
        draws=[
            paper.lines(used, f"round of {small} devices", "estimated clip norm", "y"),
            paper.lines(curves, f"round of {large} devices", training.RECALL),
        ],
    )


def _spread(values: list[float]) -> float:
    return max(values) - min(values)


if __name__ == "__main__":
    training.carry_out(__doc__, "xu.tuning", figure)
