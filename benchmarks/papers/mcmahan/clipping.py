"""Accuracy by clip norm, one norm for the whole update or one per layer.

    .venv/stages/bin/python -m benchmarks.papers.mcmahan.clipping                 packaged chat; one to two minutes
    .venv/stages/bin/python -m benchmarks.papers.mcmahan.clipping FOLDER          FOLDER/users/en_blogs.parquet
    .venv/stages/bin/python -m benchmarks.papers.mcmahan.clipping FOLDER --full --device cuda

McMahan et al. 2018, figure 2: how far updates may be clipped before training slows. Beside it the same with noise that
grows with the clip norm, which is what makes a large norm dear.
"""

from benchmarks.papers import paper, training
from benchmarks.papers.lab import CHANCE, Lab
from benchmarks.papers.mcmahan import setting
from benchmarks.papers.runs import trained

NORMS, SOME, LOUD = (0.03, 0.3, 3.0), 16.0, 64.0
KINDS = {
    "flat": (0.0, "flat"),
    "per layer": (0.0, "per-layer"),
    **{f"flat, noise x{times:g}": (times, "flat") for times in (SOME, LOUD)},
}


def figure(lab: Lab) -> paper.Result:
    """Train, judge, draw."""
    runs = {
        f"{kind}, clip norm {norm:g}": trained(lab, setting.arm(lab, kind, times, clip_norm=norm, clipping=clipping))
        for kind, (times, clipping) in KINDS.items()
        for norm in NORMS
    }
    top1 = {kind: [runs[f"{kind}, clip norm {norm:g}"].top1 for norm in NORMS] for kind in KINDS}
    flat, layers, *noised = top1.values()
    apart = max(abs(one - other) for one, other in zip(flat, layers, strict=True))
    best, best_loud = (NORMS[values.index(max(values))] for values in noised)
    claims = [
        paper.Claim(
            "without noise a norm that is far too small slows training, a large one does no harm",
            f"{flat[0]:.2f}% at {NORMS[0]:g}, {flat[-1]:.2f}% at {NORMS[-1]:g}",
            flat[-1] > flat[0] + CHANCE and flat[-1] > max(flat) - CHANCE,
        ),
        paper.Claim(
            "clipping the whole update or each layer makes little difference",
            f"at most {apart:.2f} points",
            apart < CHANCE,
        ),
        paper.Claim(
            "with noise the norm is a trade: neither the smallest nor the largest is best",
            f"best is {best:g} at noise x{SOME:g}, {best_loud:g} at x{LOUD:g}",
            NORMS[0] < best < NORMS[-1],
        ),
    ]
    drawn = [
        paper.Line(kind, NORMS, values, number, "--" if number == 1 else "-")
        for number, (kind, values) in enumerate(top1.items())
    ]
    curves = [
        paper.Line(f"flat, norm {norm:g}", *runs[f"flat, clip norm {norm:g}"].curve(), number + 4)
        for number, norm in enumerate(NORMS)
    ]
    return paper.Result(
        name="mcmahan-clipping",
        title="Accuracy by clip norm",
        paper=f"{setting.PAPER}, figure 2",
        setting=f"{lab.said} {lab.size.rounds} rounds of {lab.size.goal} on average.",
        table=training.table(runs),
        claims=claims,
        draws=[
            paper.lines(drawn, "clip norm", training.LAST, "x"),
            paper.lines(curves, "round", training.RECALL),
        ],
    )


if __name__ == "__main__":
    training.carry_out(__doc__, "mcmahan.clipping", figure)
