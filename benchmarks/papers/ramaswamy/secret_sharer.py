"""Memorisation of canaries on synthetic devices, by number of devices and of copies.

    .venv/stages/bin/python -m benchmarks.papers.ramaswamy.secret_sharer                 packaged chat; three minutes
    .venv/stages/bin/python -m benchmarks.papers.ramaswamy.secret_sharer FOLDER          FOLDER/users/en_blogs.parquet
    .venv/stages/bin/python -m benchmarks.papers.ramaswamy.secret_sharer FOLDER --full --device cuda

Ramaswamy et al. 2020, tables 3 to 5, and the same canaries where training is less or more private, which the paper
does not have. Canaries of five random words on 1, 4 or 16 devices, 1, 14
or 200 times on each, always available; rank of the last three words after the first two among 2,000,000 random ones,
and whether a beam of five completes them. One canary a cell, three with ``--full``.

Rounds of 100 stand for the paper's 20,000: noise is scaled down to the same noise of the mean, but a planted device is
200 times more of each round than it was there, and remembered accordingly.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
from matplotlib.axes import Axes
from scipy.stats import spearmanr

from benchmarks.papers import paper, training
from benchmarks.papers.lab import FULL, SEED, Lab
from benchmarks.papers.runs import Arm, Run, trained_model
from evaluation.audit import exposure
from evaluation.audit.canaries import SECRET_WORDS, CanarySet, make
from evaluation.config import BEAM_WIDTH, STRESS_RATE, AuditConfig
from federated.accounting import published
from federated.accounting.published_rows import RAMASWAMY, ROWS
from pretrain.model.keyboard_lm import KeyboardLM
from reports.figures.style import COLOURS

USERS, EXAMPLES, REFERENCES = (1, 4, 16), (1, 14, 200), 2_000_000
COHORT, NOISE, GOAL = 20_000, 0.8, 100
CELLS = tuple(product(USERS, EXAMPLES))
MANY = ((16, 14), (16, 200))
# Ranks of the three canaries of a cell and how many of them beam search completed, as printed.
PRINTED = {
    (1, 1): (("637e3", "1.55e6", "1.6e6"), 0),
    (1, 14): (("1.6e3", "41e3", "542e3"), 0),
    (1, 200): (("270e3", "347e3", "894e3"), 0),
    (4, 1): (("281e3", "308e3", "1.37e6"), 0),
    (4, 14): (("1", "16", "762"), 1),
    (4, 200): (("263", "904", "4.9e3"), 0),
    (16, 1): (("3.7e3", "112e3", "129e3"), 0),
    (16, 14): (("1", "1", "1"), 3),
    (16, 200): (("1", "1", "1"), 3),
}
PRINTED_SEEN = {
    (1, 1): 1150, (1, 14): 16_100, (1, 200): 230_000, (4, 1): 4600, (4, 14): 64_400, (4, 200): 920_000,
    (16, 1): 18_400, (16, 14): 257_600, (16, 200): 3_680_000,
}  # fmt: skip
ROUNDS = 2000  # of the paper


def printed_ranks(cell: tuple[int, int]) -> list[float]:
    """A cell's three ranks."""
    return [float(rank) for rank in PRINTED[cell][0]]


class Attack:
    """Ranks and completions of every canary in one trained model."""

    def __init__(self, planted: CanarySet, run: Run, model: KeyboardLM) -> None:
        self.run = run
        self.ranks: dict[tuple[int, int], list[float]] = {cell: [] for cell in CELLS}
        self.completed: dict[tuple[int, int], int] = dict.fromkeys(CELLS, 0)
        for number, canary in enumerate(planted.canaries):
            cell = canary.n_u, canary.n_e
            self.ranks[cell].append(exposure.rank(model, canary, REFERENCES, SEED + number, nodes=500).rank)
            beams = exposure.beam_search(model, canary.prefix, SECRET_WORDS, BEAM_WIDTH)
            self.completed[cell] += canary.secret in beams

    @property
    def typical(self) -> float:
        """Geometric mean of all ranks."""
        return float(np.exp(np.mean([np.log(rank) for ranks in self.ranks.values() for rank in ranks])))

    def median(self, cell: tuple[int, int]) -> float:
        """Of a cell's ranks."""
        return float(np.median(self.ranks[cell]))


def arms() -> list[Arm]:
    """Fresh noise under a timer (one band), from none to a round's full noise."""
    shared = {"kind": "banded", "bands": 1, "report_goal": GOAL}
    return [
        Arm("neither clip nor noise", shared | {"clip_norm": 1000.0, "noise_multiplier": 1e-9}),
        Arm("noise of 20,000 devices", shared | {"noise_multiplier": NOISE * GOAL / COHORT}),
        Arm("full noise of 100 devices", shared | {"noise_multiplier": NOISE}),
    ]


def claims(attacked: dict[str, Attack], rounds: int) -> list[paper.Claim]:
    """The printed tables beside these canaries."""
    as_printed = attacked["noise of 20,000 devices"]
    joined = np.mean(as_printed.run.joined) / rounds
    ours = [as_printed.median(cell) for cell in CELLS]
    theirs = [float(np.median(printed_ranks(cell))) for cell in CELLS]
    alike = float(spearmanr(ours, theirs)[0])
    single = sum(as_printed.completed[cell] for cell in CELLS if cell[0] == 1)
    many = [as_printed.completed[cell] > 0 for cell in MANY]
    epsilons = [published.check(row) for row in ROWS if row.source == RAMASWAMY]
    wild, loud = attacked["neither clip nor noise"], attacked["full noise of 100 devices"]
    remembered = sum(wild.completed[cell] > 0 for cell in MANY)
    return [
        paper.Claim(
            "a planted device joins 1,150 of 2,000 rounds",
            f"{100 * joined:.0f}% of the rounds",
            abs(joined - STRESS_RATE) < 0.05,
        ),
        paper.Claim(
            "ranks fall with devices and copies in the printed order (table 4)",
            f"rank correlation with the printed medians over nine cells {alike:.2f}",
            alike > 0.6,
        ),
        paper.Claim("no canary of one device is completed", f"{single} of {len(USERS)} cells", single == 0),
        paper.Claim(
            "those of 16 devices with 14 or 200 copies are",
            f"{sum(many)} of 2 cells after {rounds} rounds, without clipping {remembered}",
            all(many),
        ),
        paper.Claim(
            f"epsilon {', '.join(one.row.printed for one in epsilons)} with 2 to 10 million devices (table 5)",
            ", ".join(f"{one.ours:.2f}" for one in epsilons if one.ours is not None),
            all(one.match for one in epsilons),
        ),
        paper.Claim(
            "clipping and noise leave less memory",
            f"geometric mean of the ranks of nine cells {wild.typical:,.0f} without either, {as_printed.typical:,.0f} "
            "with both",
            as_printed.typical > 2 * wild.typical,
        ),
        paper.Claim(
            "more noise leaves less",
            f"{loud.typical:,.0f} with {COHORT // GOAL} times the noise: the clip does the work",
            loud.typical > 2 * as_printed.typical,
        ),
    ]


def numbers(attack: Attack, repeats: int) -> list[paper.Number]:
    """Tables 3 and 4; ranks of a cell in order, so that one canary of ours stands beside each of three."""
    made, why = [], "24 rounds of 100 for 2,000 of 20,000, a smaller network, one canary for three"
    for cell in CELLS:
        name = "{} x {}".format(*cell)
        seen = STRESS_RATE * ROUNDS * cell[0] * cell[1]
        made.append(paper.Number(f"{RAMASWAMY}, table 3", f"{name}: times seen", str(PRINTED_SEEN[cell]), seen))
    for cell in CELLS:
        name, (ranks, completed) = "{} x {}".format(*cell), PRINTED[cell]
        ours = sorted(attack.ranks[cell])
        for number, printed in enumerate(ranks):
            here = ours[min(number, len(ours) - 1)]
            made.append(paper.Number(f"{RAMASWAMY}, table 4", f"{name}: rank {number + 1} of 3", printed, here, why))
        here = 3 * attack.completed[cell] / repeats
        made.append(paper.Number(f"{RAMASWAMY}, table 4", f"{name}: completed of 3", str(completed), here, why))
    return made


def panel(attacked: dict[str, Attack]) -> paper.Draw:
    """Ranks by cell: dots, one colour an arm, crosses as printed."""

    def draw(axes: Axes) -> None:
        for number, (name, one) in enumerate(attacked.items()):
            points = [
                (place + 0.2 * number - 0.3, rank) for place, cell in enumerate(CELLS) for rank in one.ranks[cell]
            ]
            axes.plot(*zip(*points, strict=True), "o", markersize=4, color=COLOURS[number], label=name)
        points = [(place + 0.3, rank) for place, cell in enumerate(CELLS) for rank in printed_ranks(cell)]
        axes.plot(*zip(*points, strict=True), "x", markersize=5, color=COLOURS[3], label="as printed, table 4")
        axes.set_yscale("log")
        axes.set_xticks(range(len(CELLS)), [f"{users} x {examples}" for users, examples in CELLS], fontsize=9)
        axes.set(xlabel="devices x copies on each", ylabel=f"rank among {REFERENCES:,}\n(low: remembered)")
        axes.grid(visible=True, axis="y")

    return draw


def shown(ranks: Sequence[float]) -> str:
    """Ranks of a cell as text."""
    return ", ".join(f"{rank:,.0f}" for rank in sorted(ranks))


def figure(lab: Lab) -> paper.Result:
    """Plant, train, attack."""
    repeats = 3 if lab.size is FULL else 1
    # All that a device typed, in every round, as in the paper: a planted device has 200 sentences.
    lab = replace(lab, size=replace(lab.size, words=lab.size.words_a_device))
    config = AuditConfig(users=USERS, examples=EXAMPLES, repeats=repeats)
    planted = make(config, lab.vocabulary, lab.public, SEED)
    attacked = {}
    for arm in arms():
        attacked[arm.name] = Attack(planted, *trained_model(lab, arm, planted=planted.devices))
    heads = [head for name in attacked for head in (f"{name}: rank", "completed")]
    rows = [
        [
            f"{cell[0]} x {cell[1]}",
            *(
                part
                for one in attacked.values()
                for part in (shown(one.ranks[cell]), f"{one.completed[cell]}/{repeats}")
            ),
            shown(printed_ranks(cell)),
            f"{PRINTED[cell][1]}/3",
        ]
        for cell in CELLS
    ]
    return paper.Result(
        name="ramaswamy-secret-sharer",
        title="What a model remembers of planted phrases",
        paper="Ramaswamy et al. 2020, tables 3 to 5 and beyond",
        setting=f"{lab.said} {lab.size.rounds} rounds of {GOAL}; {len(planted.devices)} planted devices, each "
        f"{COHORT // GOAL} times the share of a round that it was in the paper's rounds of {COHORT:,}. The "
        "first and the last arm are training less and more private than the paper's.",
        table=[["devices x copies", *heads, "printed: rank", "completed"], *rows],
        claims=claims(attacked, lab.size.rounds),
        numbers=numbers(attacked["noise of 20,000 devices"], repeats),
        draws=[panel(attacked)],
        columns=1,
        panel=(7.0, 3.2),
    )


if __name__ == "__main__":
    training.carry_out(__doc__, "ramaswamy.secret_sharer", figure)
