"""Ablations of DP-FedAvg: server optimiser, client rate and batch, clip norm, and the share of updates clipped.

    .venv/stages/bin/python -m benchmarks.papers.ramaswamy.ablations                 packaged chat; three minutes
    .venv/stages/bin/python -m benchmarks.papers.ramaswamy.ablations FOLDER          FOLDER/users/en_blogs.parquet
    .venv/stages/bin/python -m benchmarks.papers.ramaswamy.ablations FOLDER --full --device cuda

Ramaswamy et al. 2020, tables 6 to 8 and figure 1. Fixed-size rounds with fresh noise; its standard deviation in the
mean stays the same while the clip norm varies, as in the paper, whose rounds of 20,000 at noise multiplier 0.8 are
scaled down to the rounds here. The server's momentum is 0.9, the product's constant; the paper's best is 0.99. The
paper's models begin at random, these at public text.

The share clipped is read from the noisy bits of adaptive clipping (Xu et al. 2023, algorithm 1), whose norm stays where
it is because its step is a millionth.
"""

import math
from collections.abc import Iterable, Mapping

from benchmarks.papers import paper, training
from benchmarks.papers.lab import CHANCE, Lab
from benchmarks.papers.runs import Arm, Run, each_trained

COHORT, MULTIPLIER, BASE = 20_000, 0.8, 0.3
STEP, QUANTILE = 1e-6, 0.5
NORMS = (0.03, 0.1, 0.3, 0.5, 1.0, 3.0)
SERVERS = {
    "Adam, rate 0.001": ("adam", 0.001),
    "Adam, rate 0.01": ("adam", 0.01),
    "momentum, rate 0.5": ("momentum", 0.5),
    "momentum, rate 1": ("momentum", 1.0),
    "Nesterov, rate 1": ("nesterov", 1.0),
    "SGD, rate 1": ("sgd", 1.0),
}
CLIENTS = {"batch 2, rate 0.5": (2, 0.5), "batch 8, rate 0.1": (8, 0.1), "batch 16, rate 0.5": (16, 0.5)}
# Tables 6 to 8, top-1 in percent: the best of each optimiser, extremes of the client's settings, clip norms.
ADAM, MOMENTUM, SGD = 23.38, 24.16, 20.41
CLIENT = 23.92, 24.15
BY_NORM = {0.1: 23.78, 0.2: 23.97, 0.5: 24.09, 0.8: 24.15, 1.0: 24.12, 1.5: 23.81, 2.0: 23.45}


def arm(lab: Lab, name: str, norm: float = BASE, server: Iterable = ("momentum", 1.0), client: Iterable = ()) -> Arm:
    """One run: a clip norm, a server and a client."""
    goal = lab.size.goal
    optimizer, rate = server
    batch = dict(zip(("batch_sentences", "learning_rate"), client, strict=False))
    bits = {"target_quantile": QUANTILE, "learning_rate": STEP, "bit_noise_std": goal / 200}
    block = {"kind": "independent", "sampling": "fixed", "clip_norm": norm, "adaptive_clipping": bits}
    block["noise_multiplier"] = MULTIPLIER * goal / COHORT * BASE / norm
    return Arm(name, block, server={"optimizer": optimizer, "learning_rate": rate * lab.size.server_rate}, local=batch)


def clipped(run: Run) -> tuple[list[float], list[float]]:
    """Rounds, and percent of the updates clipped between the curve's points."""
    rounds, shares, before = [], [], (0.0, 0.0)
    start = run.points[0]["clip"]
    for point in run.points:
        done = point["round"]
        below = done * QUANTILE - math.log(point["estimate"] / start) / STEP
        if done > before[0]:
            rounds.append(done)
            shares.append(100 * (1 - (below - before[1]) / (done - before[0])))
        before = done, below
    return rounds, shares


def claims(norms: Mapping[float, Run], servers: Mapping[str, Run], clients: Mapping[str, Run]) -> list[paper.Claim]:
    """The printed tables and the paper's words beside these runs."""

    def best(kind: str) -> float:
        return max(run.top1 for name, run in servers.items() if name.startswith(kind))

    momentum = max(best("momentum"), best("Nesterov"))
    client = [run.top1 for run in (*clients.values(), servers["momentum, rate 1"])]
    top1 = {norm: run.top1 for norm, run in norms.items()}
    share = {norm: sum(clipped(run)[1]) / len(clipped(run)[1]) for norm, run in norms.items()}
    ideal = max(top1, key=top1.__getitem__)
    return [
        paper.Claim(
            f"momentum is better than SGD ({MOMENTUM}, {SGD}%; table 6)",
            f"{momentum:.2f}, {best('SGD'):.2f}%",
            momentum > best("SGD") + CHANCE,
        ),
        paper.Claim(
            f"and better than Adam ({ADAM}%; table 6)",
            f"{best('Adam'):.2f}%, the better of two rates",
            momentum > best("Adam") + CHANCE,
        ),
        paper.Claim(
            "client rate and batch matter little ({} to {}%; table 7)".format(*CLIENT),
            f"{min(client):.2f} to {max(client):.2f}%",
            max(client) - min(client) < CHANCE,
        ),
        paper.Claim(
            "a norm between the extremes is best ("
            + ", ".join(f"{one}% at {norm:g}" for norm, one in BY_NORM.items())
            + "; table 8)",
            ", ".join(f"{one:.2f}% at {norm:g}" for norm, one in top1.items()),
            NORMS[0] < ideal < NORMS[-1],
        ),
        paper.Claim(
            "clipping most updates works better (appendix; around 90% of them in section III-A)",
            f"{share[ideal]:.0f}% at {ideal:g}, the best",
            share[ideal] > 80,
        ),
        paper.Claim(
            "a smaller norm clips more, below some norm nearly all (figure 1)",
            ", ".join(f"{max(0.0, one):.0f}% at {norm:g}" for norm, one in share.items()),
            list(share.values()) == sorted(share.values(), reverse=True) and share[NORMS[0]] > 95,
        ),
    ]


def figure(lab: Lab) -> paper.Result:
    """Train, judge, draw."""
    by_name = each_trained(lab, (arm(lab, f"clip norm {norm:g}", norm) for norm in NORMS))
    norms = dict(zip(NORMS, by_name.values(), strict=True))
    servers = each_trained(lab, (arm(lab, name, server=server) for name, server in SERVERS.items()))
    clients = each_trained(lab, (arm(lab, name, client=client) for name, client in CLIENTS.items()))
    shares = [paper.Line(name, *clipped(run), number) for number, (name, run) in enumerate(by_name.items())]
    ends = [paper.Line("last model", NORMS, [run.top1 for run in norms.values()], 5)]
    rows = [
        [table, name, run.top1, run.top3, sum(clipped(run)[1]) / len(clipped(run)[1])]
        for table, runs in (
            ("6", servers),
            ("7", clients),
            ("8", by_name),
        )
        for name, run in runs.items()
    ]
    return paper.Result(
        name="ramaswamy-ablations",
        title="Ablations of DP-FedAvg, and the share of updates clipped",
        paper="Ramaswamy et al. 2020, tables 6 to 8 and figure 1",
        setting=f"{lab.said} {lab.size.rounds} rounds of {lab.size.goal}; small, where the paper has 500 "
        f"users of Stack Overflow a round and 1.3 million weights. Clip norm {BASE:g}, momentum 0.9 at rate 1, batch 8 "
        "and rate 0.5 where a row says nothing else.",
        table=[["table", "arm", "top-1 %", "top-3 %", "clipped, % of updates"], *rows],
        claims=claims(norms, servers, clients),
        printed=True,
        draws=[
            paper.lines(shares, "round", "clipped, % of updates", y_limits=(-3, 103)),
            paper.lines(ends, "clip norm", training.LAST, "x"),
        ],
    )


if __name__ == "__main__":
    training.carry_out(__doc__, "ramaswamy.ablations", figure)
