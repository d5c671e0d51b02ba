"""Accuracy by round of federated averaging and of one gradient a device.

    .venv/stages/bin/python -m benchmarks.papers.mcmahan.fedsgd                 packaged chat; one to two minutes
    .venv/stages/bin/python -m benchmarks.papers.mcmahan.fedsgd FOLDER          FOLDER/users/en_blogs.parquet
    .venv/stages/bin/python -m benchmarks.papers.mcmahan.fedsgd FOLDER --full --device cuda

McMahan et al. 2018, figures 5 to 8, the part on FedSGD: many local steps a round (DP-FedAvg) or the gradient of one
batch (DP-FedSGD), with and without noise.
"""

from benchmarks.papers import paper, training
from benchmarks.papers.lab import CHANCE, Lab
from benchmarks.papers.mcmahan import setting
from benchmarks.papers.runs import each_trained

TIMES = 64.0
LOOKS = ((0, "-"), (0, "--"), (1, ":"), (1, "-."), (2, "-"), (2, "--"))
SGD = {"algorithm": "fedsgd", "batch_sentences": 8}


def figure(lab: Lab) -> paper.Result:
    """Train, judge, draw."""
    arms = [
        setting.arm(lab, f"{name}, {setting.noise_name(times)}", times, local, server_times=rate)
        for name, local, rate in (("FedAvg", {}, 1.0), ("FedSGD", SGD, 1.0), ("FedSGD, rate x3", SGD, 3.0))
        for times in (0.0, TIMES)
    ]
    runs = each_trained(lab, arms)
    average = runs["FedAvg, no noise"].top1
    plain = max(runs[f"{name}, no noise"].top1 for name in ("FedSGD", "FedSGD, rate x3"))
    noised = runs[f"FedAvg, noise x{TIMES:g}"].top1
    noised_plain = max(runs[f"{name}, noise x{TIMES:g}"].top1 for name in ("FedSGD", "FedSGD, rate x3"))
    claims = [
        paper.Claim(
            "large steps from each device's text need fewer rounds than one gradient",
            f"{average:.2f}% against {plain:.2f}%, the better of two server rates: a device has a batch or two a round "
            "here, and most updates are longer than the clip norm, so both move as far",
            average > plain + CHANCE,
        ),
        paper.Claim(
            "so noise, which every round adds, costs federated averaging less",
            f"{noised:.2f}% against {noised_plain:.2f}% at noise x{TIMES:g}",
            noised > noised_plain + CHANCE,
        ),
    ]
    loss = training.curves(runs, LOOKS, "loss")
    return paper.Result(
        name="mcmahan-fedsgd",
        title="Federated averaging and one gradient a device",
        paper=f"{setting.PAPER}, figures 5 to 8: FedSGD",
        setting=f"{lab.said} Rounds of {lab.size.goal} on average.",
        table=training.table(runs),
        claims=claims,
        draws=[
            paper.lines(training.curves(runs, LOOKS), "round", training.RECALL),
            paper.lines(loss, "round", training.LOSS),
        ],
    )


if __name__ == "__main__":
    training.carry_out(__doc__, "mcmahan.fedsgd", figure)
