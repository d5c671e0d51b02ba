"""Figures of the audits as inline SVG, from plain numbers, in the style of ``reports.figures.training``.

The one-run bound is in neither: beside an epsilon it would look like an estimate of one.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from reports.disclosure.findings import AuditBlock, AuditRow
from reports.figures.style import BLUE, GREEN, INK, ORANGE, RED, rows_down, svg


@dataclass(frozen=True)
class CanaryPoint:
    """One canary of the federated Secret Sharer.

    Attributes:
      population: ``compliant`` or ``stress``; drawn apart.
      bits, low, high: exposure and its interval.
      ceiling: bits that the guarantee allows; None where it says nothing.
    """

    population: str
    n_u: int
    n_e: int
    bits: float
    low: float
    high: float
    ceiling: float | None


@dataclass(frozen=True)
class Claimed:
    """An estimate beside what was claimed.

    Attributes:
      at_most: smaller than the claim is fine; False if it must be met.
      contradicts: the audit's own verdict, which is stricter than the interval as it tests several things.
    """

    label: str
    value: float
    low: float
    high: float
    claim: float
    contradicts: bool
    at_most: bool = True


_TITLES = {
    "compliant": "Exposure of canaries against their ceilings",
    "stress": "Exposure under stress against its ceilings",
}


def of_audits(block: AuditBlock | None) -> dict[str, str]:
    """The report's figures of the audits, SVG by name: canaries of each population, and what estimates a claim."""
    if block is None:
        return {}
    figures = {}
    for population, name in (("compliant", "canaries"), ("stress", "canaries_stress")):
        points = [
            CanaryPoint(
                population=population,
                n_u=row.n_u,
                n_e=row.n_e,
                bits=row.exposure_bits,
                low=row.exposure_low_bits,
                high=row.exposure_high_bits,
                ceiling=row.ceiling_bits,
            )
            for row in block.of(population)
        ]
        if points:
            figures[name] = exposure(points, block.random_continuations, _TITLES[population])
    rows = [row for row in block.audits if row.claim is not None and row.type != "records"]
    if rows:
        figures["audits"] = estimates([_claimed(row) for row in rows])
    return figures


def _claimed(row: AuditRow) -> Claimed:
    return Claimed(
        label=row.quantity,
        value=row.estimate,
        low=row.low,
        high=row.high,
        claim=row.claim,
        contradicts=row.passed is False,
        at_most=row.type != "noise_scale",
    )


def exposure(points: Sequence[CanaryPoint], random_continuations: int, title: str = _TITLES["compliant"]) -> str:
    """Exposure of every canary against its own ceiling, a row for each cell of the grid.

    Raises:
      ValueError: nothing to draw.
    """
    if not points:
        raise ValueError("points: none; give at least one canary")
    cells = list(dict.fromkeys((row.population, row.n_u, row.n_e) for row in points))
    places = dict(zip(cells, rows_down(len(cells)), strict=True))
    most = math.log2(random_continuations)
    above = [row for row in points if row.ceiling is not None and row.bits > row.ceiling]

    def draw(axes: Axes) -> None:
        for cell in cells:
            rows = sorted((row for row in points if (row.population, row.n_u, row.n_e) == cell), key=lambda r: r.bits)
            for number, row in enumerate(rows):
                # Canaries of a cell beside each other, or three at one place would look like one.
                place = places[cell] + 0.3 - 0.6 * (number + 0.5) / len(rows)
                colour = RED if row in above else (BLUE if row.population == "compliant" else ORANGE)
                axes.plot([row.low, row.high], [place, place], color=colour, linewidth=1.5)
                axes.plot([row.bits], [place], "o", color=colour, markersize=4)
                if row.ceiling is not None and row.ceiling < most:
                    axes.plot([row.ceiling], [place], "|", color=INK, markersize=7, markeredgewidth=1.5)
        for upper, lower in itertools.pairwise(cells):
            if upper[0] != lower[0]:
                axes.axhline((places[upper] + places[lower]) / 2, color=INK, linewidth=0.8, alpha=0.5)
        shown = {"compliant": BLUE, "stress": ORANGE}
        for population in dict.fromkeys(cell[0] for cell in cells):
            axes.plot([], [], "o", color=shown.get(population, ORANGE), markersize=4, label=population)
        if above:
            axes.plot([], [], "o", color=RED, markersize=4, label="above its ceiling")
        if any(row.ceiling is not None and row.ceiling < most for row in points):
            axes.plot([], [], "|", color=INK, markersize=7, markeredgewidth=1.5, label="ceiling")
        labels = [f"{n_u} device{'s' * (n_u > 1)}, {n_e} {'copies' if n_e > 1 else 'copy'}" for _, n_u, n_e in cells]
        axes.set(xlabel="exposure (bits)", yticks=list(places.values()), yticklabels=labels)
        axes.set_xlim(-0.5, most + 0.5)
        axes.set_ylim(0.4, len(cells) + 0.6)
        axes.grid(visible=True, axis="x")
        axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=4, fontsize=9)

    spoken = f"{len(points)} canaries, the most exposed has {max(row.bits for row in points):.2f} bits of {most:.1f}; "
    spoken += f"{len(above)} above the ceiling that its rounds allow."
    return svg(title, spoken, draw, height=1.3 + 0.3 * len(cells))


def estimates(rows: Sequence[Claimed]) -> str:
    """Each estimate with its interval as a share of its claim; what lies beyond the line speaks against it.

    Raises:
      ValueError: nothing to draw, or a claim that is not above 0.
    """
    if not rows or any(row.claim <= 0 for row in rows):
        raise ValueError("rows: give at least one, each with a claim above 0")
    places = rows_down(len(rows))

    def draw(axes: Axes) -> None:
        for row, place in zip(rows, places, strict=True):
            colour = RED if row.contradicts else GREEN
            axes.plot([row.low / row.claim, row.high / row.claim], [place, place], color=colour, linewidth=2)
            axes.plot([row.value / row.claim], [place], "o", color=colour, markersize=5)
            words = f"{row.value:.3g} of {'at most ' if row.at_most else ''}{row.claim:.3g}"
            axes.annotate(
                words, (1.02, place), xycoords=("axes fraction", "data"), va="center", fontsize=9, annotation_clip=False
            )
        axes.axvline(1, color=INK, linewidth=1, linestyle="--")
        axes.set(xlabel="estimate as a share of the claim", yticks=list(places), yticklabels=[r.label for r in rows])
        axes.set_xlim(0, 1.08 * max(1.15, *(row.high / row.claim for row in rows)))
        axes.set_ylim(0.4, len(rows) + 0.6)
        axes.grid(visible=True, axis="x")

    spoken = "; ".join(
        f"{row.label}: {row.value:.3g}, {row.low:.3g} to {row.high:.3g}, "
        f"claimed {'at most ' if row.at_most else ''}{row.claim:.3g}, "
        f"{'contradicted' if row.contradicts else 'not contradicted'}"
        for row in rows
    )
    return svg("Audit estimates against the claim", f"{spoken}.", draw, height=0.9 + 0.32 * len(rows))
