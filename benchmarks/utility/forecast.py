"""Fit the forecast of a launch's gain to the crossing, and show it beside what was measured.

python -m benchmarks.utility.forecast [--results FOLDER]

Reads ``crossing.csv`` of the folder; writes ``forecast.md`` and ``crossing.svg`` there. The curves are those of public
talk, which has several sizes; a population's multiple is its gain over the curve at its size. Every population is
forecast from the other populations' multiples, and the way that the forecast prefers is held against the way that
gained most.
"""

import argparse
import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean, stdev

from matplotlib.axes import Axes

from benchmarks.utility.cell import Cell
from federated.config.counts import CONTEXTS
from federated.planning import gain
from federated.planning.gain import Curve
from federated.planning.search import contexts
from pretrain.files import write_text
from reports.figures.style import COLOURS, svg

CURVES_OF, WORDS = "talk", 4_000
ARMS = {"start+counts": "counts", "train": "training", "counts-train": "both"}
_LEAST = 0.5  # points of a curve below which a multiple of it means nothing


@dataclass(frozen=True)
class Row:
    """A row of the crossing: its arm, population, heard people or way, and points over the start."""

    population: str
    arm: str
    people: int
    rho: float
    size: float
    points: float
    error: float


def rows(path: Path) -> list[Row]:
    """Rows by the law: counts as wide as the planner takes them, the rest as a cell has it by default."""
    with path.open(encoding="utf-8", newline="") as file:
        content = list(csv.DictReader(file))
    trains = {
        (row["population"], row["people"]): int(row["devices"]) // int(row["participations"])
        for row in content
        if row["devices"] and row["arm"] != "central"
    }
    other = {"population", "people", "arm", "rho", "counts_rho", "participations", "contexts"}
    usual = {each.name: str(each.default) for each in fields(Cell) if each.name not in other}
    found = []
    for row in content:
        plain = all(row[name] == value for name, value in usual.items())
        whole = float(row["rho"]) + (float(row["counts_rho"]) if row["arm"] == "counts-train" else 0.0)
        tenth = row["arm"] != "counts-train" or math.isclose(float(row["counts_rho"]), gain.COUNTS_SHARE * whole)
        if row["arm"] not in ARMS or not plain or not tenth:
            continue
        people = int(row["people"]) or trains.get((row["population"], row["people"]), 0)
        if not people:
            continue
        rho = round(whole, 9)
        counted = row["arm"] == "start+counts"
        size = gain.heard(people, rho) if counted else float(row["way"])
        if int(row["contexts"]) != (contexts(size, WORDS) if counted else CONTEXTS):
            continue
        points, error = float(row["over_start"]), float(row["error"])
        found.append(Row(row["population"], ARMS[row["arm"]], people, rho, size, points, error))
    return found


def curve(found: list[Row], arm: str) -> Curve:
    """Points of one arm over its size."""
    points = {row.size: row.points for row in found if (row.population, row.arm) == (CURVES_OF, arm)}
    return tuple(sorted(points.items()))


def multiples(found: list[Row], arm: str, line: Curve) -> dict[str, float]:
    """Mean multiple of the curve, by population; that of the curves is 1."""
    each: dict[str, list[float]] = {CURVES_OF: [1.0]}
    for row in found:
        base = gain.at(line, row.size)
        if row.arm == arm and row.population != CURVES_OF and base > _LEAST:
            each.setdefault(row.population, []).append(row.points / base)
    return {name: fmean(values) for name, values in each.items()}


def free(path: Path) -> dict[str, float]:
    """Points of the start mixed half and half with the n-gram of its own text, by population and start."""
    with path.open(encoding="utf-8", newline="") as file:
        mixed = [row for row in csv.DictReader(file) if row["arm"] == "start+ngram"]
    return {f"{row['population']}, {row['public']}": float(row["over_start"]) for row in mixed}


def people_error(path: Path) -> float:
    """Standard error of a gain times the root of the number of held-out people: the mean of all gains."""
    with path.open(encoding="utf-8", newline="") as file:
        gained = [row for row in csv.DictReader(file) if row["arm"] in ARMS]
    return fmean(float(row["error"]) * math.sqrt(int(row["test_people"])) for row in gained)


def left(path: Path) -> dict[str, float]:
    """Share of the gain that is left on another start, by cell of that start."""
    with path.open(encoding="utf-8", newline="") as file:
        content = {row["cell"]: row for row in csv.DictReader(file)}
    return {
        name: float(row["over_start"]) / float(twin["over_start"])
        for name, row in content.items()
        if row["public"] != "sample" and row["arm"] in ARMS and "loss0.0" not in name
        if (twin := content.get(name.replace(f"-public{row['public']}", "")))
    }


def main() -> None:
    """Fit, forecast each population from the others, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    folder = parser.parse_args().results
    found = rows(folder / "crossing.csv")
    cells = folder / "crossing.csv"
    write_text(folder / "forecast.md", page(found, left(cells), free(cells), people_error(cells)))
    write_text(folder / "crossing.svg", picture(found))


def page(found: list[Row], shares: Mapping[str, float], costs_nothing: Mapping[str, float], error: float) -> str:
    """Curves, multiples, what costs nothing, shares left on another start, and the forecast of every setting."""
    curves = {arm: curve(found, arm) for arm in ARMS.values()}
    scales = {arm: multiples(found, arm, curves[arm]) for arm in curves}
    lines = ["# The forecast of a launch's gain, fitted to the crossing", ""]
    lines += [
        "Command: `python -m benchmarks.utility.forecast`, on `crossing.csv`. Points of top-1 over the start.",
        "",
    ]
    for arm, line in curves.items():
        points = ", ".join(f"{size:.0f}: {points:.2f}" for size, points in line)
        lines.append(f"- {arm}, at {'heard people' if arm == 'counts' else 'a way'}: {points}")
    lines += ["", "| arm | multiple, by population | mean | standard deviation |", "|---|---|---|---|"]
    for arm, each in scales.items():
        shown = ", ".join(f"{name} {value:.2f}" for name, value in each.items())
        spread = f"{stdev(each.values()):.2f}" if len(each) > 1 else "-"
        lines.append(f"| {arm} | {shown} | {fmean(each.values()):.2f} | {spread} |")
    free_points = list(costs_nothing.values())
    lines += ["", "| start mixed with the n-gram of its own text | points over the start |", "|---|---|"]
    lines += [f"| {name} | {value:+.2f} |" for name, value in costs_nothing.items()]
    lines += [f"| mean ± standard deviation | {fmean(free_points):+.2f} ± {stdev(free_points):.2f} |", ""]
    lines += [f"A gain measured on n held-out people has a standard error of {error:.2f} / sqrt(n) points."]
    lines += ["", "| cell on another start | share of the gain on the sample's |", "|---|---|"]
    lines += [f"| {name} | {share:.2f} |" for name, share in shares.items()]
    lines += ["", *settings(found, curves, scales)]
    return "\n".join(lines) + "\n"


def settings(found: list[Row], curves: Mapping[str, Curve], scales: Mapping[str, Mapping[str, float]]) -> list[str]:
    """A table of settings, each forecast from the multiples of the other populations."""
    lines = ["| population | people | rho | counts | forecast | trained | forecast | prefers | best | right |"]
    lines += ["|---|---|---|---|---|---|---|---|---|---|"]
    right, missed = [], []
    for counted in (row for row in found if row.arm == "counts"):
        key = (counted.population, counted.people, counted.rho)
        same = {row.arm: row for row in found if (row.population, row.people, row.rho) == key}
        trained = max(
            (same[arm] for arm in ("training", "both") if arm in same), key=lambda row: row.points, default=None
        )
        if trained is None:
            continue
        expected = {}
        for row in (counted, trained):
            others = [value for name, value in scales[row.arm].items() if name != counted.population]
            expected[row.arm] = fmean(others) * gain.at(curves[row.arm], row.size)
        lead, forecast = trained.points - counted.points, expected[trained.arm] - expected["counts"]
        missed.append(lead - forecast)
        certain = abs(lead) > 2 * math.hypot(counted.error, trained.error) / 2
        right.append((lead > 0) == (forecast > 0) or not certain)
        names = ["counts" if value <= 0 else "training" for value in (forecast, lead)]
        verdict = "yes" if (lead > 0) == (forecast > 0) else "no" if certain else "level"
        lines.append(
            f"| {counted.population} | {counted.people:,} | {counted.rho:g} | {counted.points:+.2f} | "
            f"{expected['counts']:+.2f} | {trained.points:+.2f} | {expected[trained.arm]:+.2f} | {names[0]} | "
            f"{names[1]} | {verdict} |"
        )
    spread = math.sqrt(fmean(value * value for value in missed)) if missed else math.nan
    return [
        *lines,
        "",
        f"Right or level: {sum(right)} of {len(right)}. Lead missed by {spread:.2f} points (root mean square).",
    ]


def picture(found: list[Row]) -> str:
    """Gain over the start against people, of public talk, by way and rho."""
    kinds = sorted({(row.arm, row.rho) for row in found if row.population == CURVES_OF and row.rho in (0.5, 0.02)})

    def draw(axes: Axes) -> None:
        for arm, rho in kinds:
            line = sorted(
                (row.people, row.points, 2 * row.error)
                for row in found
                if (row.population, row.arm, row.rho) == (CURVES_OF, arm, rho)
            )
            people, points, bars = zip(*line, strict=True)
            colour = COLOURS[list(ARMS.values()).index(arm)]
            style = "-" if rho == max(rho for _, rho in kinds) else "--"
            label = f"{arm}, rho {rho:g}"
            axes.errorbar(people, points, bars, marker="o", linestyle=style, color=colour, capsize=2, label=label)
        axes.set_xscale("log")
        axes.set(xlabel="people who train", ylabel="points of top-1 over the start")
        axes.grid(visible=True)
        axes.legend()

    title = "Gain over the start against people"
    return svg(
        title, "Training leads counts from hundreds of people on, by more with every doubling.", draw, height=3.6
    )


if __name__ == "__main__":
    main()
