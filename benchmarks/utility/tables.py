"""Tables of the crossing: people against ways, five populations over their folds, and draws of the noise.

python -m benchmarks.utility.tables [--results FOLDER]

Reads ``crossing.csv`` of the folder; writes ``crossing.md`` there. A dash is a cell that was not measured.
"""

import argparse
import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, stdev

from benchmarks.utility.cell import Cell
from benchmarks.utility.cell_lists import LISTS, NOISES, SMALL
from pretrain.files import write_text

Rows = Mapping[str, Mapping[str, str]]
PEOPLE = (300, 1_000, 3_000, 10_000, 40_000)
FOLDS, DRAWS = 5, 3
# Counts, training, and both at rho 0.5; both is 0.05 for counts and 0.45 for training.
WAYS = ("start+counts", "train", "counts-train")
NONE = "–"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    folder = parser.parse_args().results
    with (folder / "crossing.csv").open(newline="", encoding="utf-8") as file:
        found = {row["cell"]: row for row in csv.DictReader(file)}
    write_text(folder / "crossing.md", page(found))


def page(found: Rows) -> str:
    """Format all tables."""
    parts = [
        "# The crossing in tables",
        "Command: `python -m benchmarks.utility.tables`, on `crossing.csv`. Top-1 recall in percent on what held-out "
        "people typed, or points over the start. Counts have ρ 0.5, training 0.5, both "
        "0.05 and 0.45, in 64 rounds, at the rate whose step noise is 0.045. The start is that of the demo, with 4,000 "
        "words and 256 units, unless a table says otherwise.",
        *_people(found),
        *_epsilon_one(found),
        *_populations(found),
        *_draws(found),
        *_law(found),
        *_sizes(found),
        *_learning(found),
    ]
    return "\n\n".join(parts) + "\n"


def _people(found: Rows) -> list[str]:
    """Public talk by number of people, with the share of what central training gains."""
    names = ("people", "start", "n-gram", "counts", "training", "counts, then training", "no noise", "central")
    lines = []
    for people in PEOPLE:
        one = Cell("talk", people, "start")
        both = _trained(found, replace(one, arm="counts-train", rho=0.45))
        cells = [
            _top1(found, one),
            _top1(found, replace(one, arm="ngram")),
            _best(found, [replace(one, arm="start+counts", contexts=contexts) for contexts in (500, 2_000, 4_000)]),
            _trained(found, replace(one, arm="train")),
            both,
            _trained(found, replace(one, arm="train", noise=False)),
            _top1(found, replace(one, arm="central")),
        ]
        lines.append([f"{people:,}", *cells, _share(cells[0], both, cells[-1])])
    text = "People of public talk (600 others test). Counts are the best of 500, 2,000 and 4,000 contexts."
    return ["## People", text, _table([*names, "both, of central"], lines)]


def _epsilon_one(found: Rows) -> list[str]:
    """The same at a total epsilon of 1."""
    lines = []
    for people in PEOPLE[:3]:
        one = Cell("talk", people, "start+counts", rho=0.028)
        both = replace(one, arm="counts-train", rho=0.0252, counts_rho=0.0028)
        lines.append([f"{people:,}", _top1(found, one), _top1(found, replace(one, arm="train")), _top1(found, both)])
    text = "At ρ 0.028, which is ε 1.0 at δ 10⁻⁶; both is a tenth of it for counts."
    return ["## An epsilon of one", text, _table(["people", "counts", "training", "counts, then training"], lines)]


def _populations(found: Rows) -> list[str]:
    """Five populations over folds of people: points over the start of each fold."""
    lines = []
    for name in SMALL:
        starts = [Cell(name, 0, "start", fold=fold) for fold in range(FOLDS)]
        lines.append([name, _mean(found, starts, "top1"), *(_mean(found, _like(starts, way)) for way in WAYS)])
    text = (
        "Points over the start, mean over folds of people, each with other held-out people; ± is the standard "
        "deviation over folds, in brackets their number."
    )
    return ["## Five populations", text, _table(["population", "start", "counts", "training", "both"], lines)]


def _draws(found: Rows) -> list[str]:
    """Repetitions with other noise and other cohorts."""
    lines = []
    for name, people in (("chat", 0), ("talk", 3_000)):
        draws = [Cell(name, people, "start", draw=draw) for draw in range(DRAWS)]
        who = f"{name}, {people:,} people" if people else name
        lines.append([who, *(_mean(found, _like(draws, way)) for way in WAYS[1:])])
    text = "Points over the start, mean over draws of noise and cohorts on the same people; ± and brackets as above."
    return ["## Draws", text, _table(["population", "training", "both"], lines)]


def _law(found: Rows) -> list[str]:
    """Training at other step noises: points over the start."""
    lines = []
    for cell in (each for each in LISTS["law"] if each.step_noise == NOISES[0]):
        who = f"{cell.population}, {cell.people:,} people" if cell.people else cell.population
        lines.append([who, *(_mean(found, [replace(cell, step_noise=noise)]).partition(" ")[0] for noise in NOISES)])
    text = (
        "Points over the start by training at ρ 0.5, whose server rate makes the noise in a weight of the last model."
    )
    return ["## The step noise", text, _table(["population", *map(str, NOISES)], lines)]


def _sizes(found: Rows) -> list[str]:
    """Other networks and vocabularies: top-1 of the start and trained."""
    lines = []
    for start in (each for each in LISTS["sizes"] if each.arm == "start"):
        trained = [_top1(found, replace(start, arm="train", people=people)) for people in (3_000, 10_000)]
        lines.append([f"{start.hidden} units, {start.words:,} words", _top1(found, start), *trained])
    text = (
        "Top-1 on public talk by the start of each size and trained at ρ 0.5; a word outside the vocabulary is a miss."
    )
    return ["## Sizes", text, _table(["network", "start", "3,000 people", "10,000 people"], lines)]


def _learning(found: Rows) -> list[str]:
    """Training without noise at 3,000 people, with one setting changed in each row."""
    usual, *others = LISTS["learn"]
    lines = []
    for cell in (usual, *others):
        if row := found.get(cell.name):
            changed = {name: value for name, value in asdict(cell).items() if asdict(usual)[name] != value}
            settings = ", ".join(f"{name} {value}" for name, value in changed.items()) or "as the other tables"
            said = "central training" if cell.arm == "central" else settings
            lines.append([said, f"{float(row['over_start']):+.2f} ± {float(row['error']):.2f}", row["train_cpu_s"]])
    text = (
        "Points over the start of 3,000 people of public talk by training without noise and by the cross entropy, one "
        "setting changed in each row; ± is the standard error over held-out people."
    )
    return ["## Learning without noise", text, _table(["setting", "over the start", "CPU s"], lines)]


def _like(cells: Iterable[Cell], arm: str) -> list[Cell]:
    rho = 0.45 if arm == "counts-train" else 0.5
    return [replace(cell, arm=arm, rho=rho) for cell in cells]


def _trained(found: Rows, cell: Cell) -> str:
    """Top-1 of a training whose people join four times or, where these are many, once."""
    return _best(found, [replace(cell, participations=times) for times in (1, 4)])


def _top1(found: Rows, cell: Cell) -> str:
    return _best(found, [cell])


def _best(found: Rows, cells: Sequence[Cell]) -> str:
    measured = [float(found[cell.name]["top1"]) for cell in cells if cell.name in found]
    return f"{max(measured):.2f}" if measured else NONE


def _share(start: str, trained: str, central: str) -> str:
    if NONE in (start, trained, central):
        return NONE
    return f"{(float(trained) - float(start)) / (float(central) - float(start)):.0%}"


def _mean(found: Rows, cells: Sequence[Cell], measure: str = "over_start") -> str:
    """Mean over cells that were measured, with their spread and number."""
    measured = [float(found[cell.name][measure]) for cell in cells if cell.name in found]
    if not measured:
        return NONE
    sign = "" if measure == "top1" else "+"
    if len(measured) == 1:
        return f"{measured[0]:{sign}.2f} (1)"
    return f"{fmean(measured):{sign}.2f} ± {stdev(measured):.2f} ({len(measured)})"


def _table(names: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    head = [f"| {' | '.join(names)} |", "|---|" + "---:|" * (len(names) - 1)]
    return "\n".join([*head, *(f"| {' | '.join(line)} |" for line in lines)])


if __name__ == "__main__":
    main()
