"""Every number that the five papers print and something here computes: one row each, and whether it agrees.

    .venv/stages/bin/python -m benchmarks.papers.printed    four minutes of CPU, most of them BandMF's

Accounting, losses, sizes of networks and coverage of word discovery are computed at once; numbers of training and of
speed are rows of the pages of their figures, whose commands measured them. A number agrees if ours is at most half a
unit of its last printed digit away. Rows that do not agree stay, with the reason where it is known.
"""

from collections import Counter
from pathlib import Path

import numpy as np

from benchmarks.papers import paper
from benchmarks.papers.paper import Number
from benchmarks.privacy import discovery
from discovery.config import TrieConfig
from federated.accounting import published
from federated.accounting.published_rows import BLT, MCMAHAN, NOTEBOOK, RAMASWAMY, XU
from pretrain.config import ModelConfig
from pretrain.model.keyboard_lm import build_model, parameter_count

COMMAND, NAME = "python -m benchmarks.papers.printed", "printed"
SUN = "Sun & Sun 2024"
PAPERS = (XU, RAMASWAMY, SUN, BLT, MCMAHAN, NOTEBOOK)
# Printed numbers that nothing here computes: where, how many, why.
ABSENT = (
    (f"{XU}, tables 1 and 2", "40 of use (PRate, Acc, WMR, WPM)", "live experiments with people"),
    (f"{RAMASWAMY}, table 2", "9 recalls and click rates, with their intervals", "a live experiment with people"),
    (f"{RAMASWAMY}, section V-A", "delta 0.53 of a group of 16", "tacit states no loss of groups"),
    (f"{SUN}, section 4.1", "16.8% of OOV words covered", "typed by people of production; `one_pass` has made-up ones"),
    (f"{BLT}, table 3", "16 test accuracies", "Stack Overflow, which is not packaged"),
    (f"{BLT}, table 4", "24 accuracies, WMR and WPM", "devices of production, and live experiments"),
    (f"{MCMAHAN}, section 3", "-2.50 points for another corpus", "two data sets of which one is not public"),
)


def accounted() -> list[Number]:
    """Guarantees and losses."""
    done = published.compare(slow=True).done
    return [
        Number(one.row.where, f"{one.row.row}, {one.row.quantity}", one.row.printed, one.ours, one.row.departs)
        for one in done
    ]


def sizes() -> list[Number]:
    """Weights of the papers' networks: 670 units, embeddings of 96."""
    numbers = []
    for where, words, tied, printed in (
        (f"{XU}, section 1", 10_000, False, "2.4e6"),
        (f"{XU}, section 1", 20_000, False, "4.4e6"),
        (f"{XU}, section 1", 30_000, False, "6.4e6"),
        (f"{RAMASWAMY}, section III-A", 10_000, True, "1.3e6"),
    ):
        config = ModelConfig(embedding_dim=96, hidden_dim=670, tied=tied)
        here = float(parameter_count(build_model(config, words, 1)))
        numbers.append(Number(where, f"weights at {words:,} words", printed, here, "not known: layers are not printed"))
    return numbers


def coverages(devices: int) -> list[Number]:
    """Words found by two samplers, in one pass and in two, by made-up devices with ten messages of epsilon0 8."""
    typed, weights = discovery.population(devices)
    numbers = []
    for sampler, passes, printed in (("greedy", 1, "77.1"), ("random", 1, "83.1"), ("random", 2, "92.1")):
        config = TrieConfig(
            kind="ldp-triehh", epsilon0=8.0, delta=1e-10, messages_per_device=10, honest_share=1.0, sampler=sampler,
            layers=15, max_prefixes=1500,
        )  # fmt: skip
        found = frozenset[str]()
        for part in np.array_split(np.random.default_rng(1).permutation(devices), passes):
            found |= {word.word for word in discovery.one_pass(typed.take(part), config, found).words}
        here = 100 * sum(weights.get(word, 0.0) for word in found)
        what, why = (
            f"{sampler}, passes: {passes}: coverage, %",
            f"{devices:,} made-up devices for people, fewer messages",
        )
        numbers.append(Number(f"{SUN}, table 1", what, printed, here, why))
    return numbers


def of_figures(folder: Path) -> dict[tuple[str, str], list[str]]:
    """Rows of the pages of figures: (where, what) -> cells."""
    rows = {}
    for page in sorted(folder.glob("*.md")):
        _, _, below = page.read_text(encoding="utf-8").partition(f"{paper.NUMBERS}\n")
        if page.stem != NAME:
            for line in below.strip().splitlines()[2:]:
                cells = [cell.strip() for cell in line.split("|")[1:-1]]
                rows[cells[0], cells[1]] = cells
    return rows


def page(rows: list[list[str]]) -> str:
    """The page: counts by paper, all rows by paper, and what nothing here computes."""
    lines = ["# Printed numbers of the papers, and ours", "", f"`{COMMAND}`", ""]
    lines += [
        "A number agrees if ours is at most half a unit of its last printed digit away; nothing else is allowed for.",
        "Rows of training and speed were measured by the commands of the figures, [each on its page](../README.md).",
        "",
    ]
    by_paper = {name: [row for row in rows if row[0].startswith(name)] for name in PAPERS}
    counts = []
    for name, listed in by_paper.items():
        verdicts = Counter(row[4] for row in listed)
        counts.append([name, len(listed), *(verdicts[each] for each in ("yes", "**no**", "**not computed**"))])
    total = ["all", *(sum(row[column] for row in counts) for column in range(1, 5))]
    lines += paper.markdown([["paper", "rows", "agree", "do not", "not computed"], *counts, total])
    for name, listed in by_paper.items():
        lines += ["", f"## {name}", "", *paper.markdown([paper.HEADS, *listed])]
    lines += ["", "## No row", "", "Numbers that are printed and that nothing here computes:", ""]
    lines += paper.markdown([["where", "numbers", "why"], *(list(row) for row in ABSENT)])
    return "\n".join(lines) + "\n"


def main() -> None:
    """Compute, gather, write."""
    parser = paper.parser(__doc__)
    parser.add_argument("--devices", type=int, default=360_000, help="of the word discovery")
    chosen = parser.parse_args()
    rows = of_figures(paper.RESULTS)
    computed = [*accounted(), *sizes(), *coverages(chosen.devices)]
    rows |= {(one.where, one.what): one.row for one in computed}
    text = page(list(rows.values()))
    (chosen.results / f"{NAME}.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
