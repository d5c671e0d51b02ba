"""Figures of the memorisation audit: canaries against their ceilings. Noise audits publish verdicts only."""

import math
from collections.abc import Sequence
from functools import partial

from matplotlib.axes import Axes

from reports.disclosure.findings import AuditBlock, CanaryResult
from reports.figures import style
from reports.figures.style import BLUE, INK, ORANGE, RED, svg

_TITLES = {
    "compliant": "Exposure of canaries against their ceilings",
    "stress": "Exposure under stress against its ceilings",
}


def of_audits(block: AuditBlock | None) -> dict[str, str]:
    """The report's figures of the audits, SVG by name: canaries of each population."""
    if block is None:
        return {}
    return {
        name: exposure(block.of(population), block.random_continuations)
        for population, name in (("compliant", "canaries"), ("stress", "canaries_stress"))
        if block.of(population)
    }


def exposure(canaries: Sequence[CanaryResult], random_continuations: int) -> str:
    """Exposure of every canary of one population against its own ceiling, a row for each cell of the grid.

    Raises:
      ValueError: nothing to draw.
    """
    if not canaries:
        raise ValueError("canaries: none; give at least one")
    above = _above(canaries)
    spoken = f"{len(canaries)} canaries, the most exposed has {max(row.exposure_bits for row in canaries):.2f} bits of "
    spoken += f"{math.log2(random_continuations):.1f}; {len(above)} above the ceiling of their rounds."
    height = 1.3 + 0.3 * len({(row.n_u, row.n_e) for row in canaries})
    draw = partial(draw_exposure, canaries=canaries, random_continuations=random_continuations)
    return svg(_TITLES[canaries[0].population], spoken, draw, height)


def _above(canaries: Sequence[CanaryResult]) -> list[CanaryResult]:
    return [row for row in canaries if row.ceiling_bits is not None and row.exposure_bits > row.ceiling_bits]


def draw_exposure(axes: Axes, canaries: Sequence[CanaryResult], random_continuations: int) -> None:
    """Draw the canaries of one population, a row for each cell of the grid."""
    cells: dict[str, list[CanaryResult]] = {}
    for row in canaries:
        devices, copies = "device" if row.n_u == 1 else "devices", "copy" if row.n_e == 1 else "copies"
        cells.setdefault(f"{row.n_u} {devices}, {row.n_e} {copies}", []).append(row)
    population = canaries[0].population
    colour = BLUE if population == "compliant" else ORANGE
    most = math.log2(random_continuations)
    above = _above(canaries)
    ceilings = [row.ceiling_bits for row in canaries if row.ceiling_bits is not None and row.ceiling_bits < most]
    places = style.rows(axes, list(cells), "exposure (bits)")
    for cell, middle in zip(cells.values(), places, strict=True):
        for number, row in enumerate(sorted(cell, key=lambda row: row.exposure_bits)):
            # Canaries of a cell are drawn side by side: three at one place would look like one.
            place = middle + 0.3 - 0.6 * (number + 0.5) / len(cell)
            ends = (row.exposure_low_bits, row.exposure_bits, row.exposure_high_bits)
            style.interval(axes, place, ends, RED if row in above else colour, thin=True)
            if row.ceiling_bits in ceilings:
                axes.plot([row.ceiling_bits], [place], "|", color=INK, markersize=7, markeredgewidth=1.5)
    axes.plot([], [], "o", color=colour, markersize=4, label=population)
    if above:
        axes.plot([], [], "o", color=RED, markersize=4, label="above its ceiling")
    if ceilings:
        axes.plot([], [], "|", color=INK, markersize=7, markeredgewidth=1.5, label="ceiling")
    axes.set_xlim(-0.5, most + 0.5)
    style.legend_above(axes, 4)
