"""Losses of every mechanism on one run, and the CPU seconds of finding it, beside the published losses.

.venv/stages/bin/python benchmarks/mechanisms.py          under a minute
.venv/stages/bin/python benchmarks/mechanisms.py --full   BandMF for 2,052 rounds too: minutes

Loss is the error of prefix sums times the sensitivity, largest and root mean square over rounds.
Published: McMahan et al. 2024 (BLT), table 3. There MaxLoss comes first, whatever the heads say.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from federated.mechanisms.blt import PRESETS, Blt, errors, inverse_coefficients
from federated.mechanisms.optimise import optimise_blt
from federated.mechanisms.optimise_banded import (
    Losses,
    fhu_coefficients,
    full_losses,
    optimise_banded,
    toeplitz_losses,
)
from federated.mechanisms.strategy import toeplitz_sensitivity_squared, tree_matrix, tree_sensitivity_squared

RUN = (2052, 342, 6)  # rounds, min_sep, max_participations of table 3


@dataclass(frozen=True)
class Row:
    """One line: what to compute, what the paper printed for it, and the most that MaxLoss and CPU seconds may be."""

    name: str
    work: Callable[[], Losses]
    published: tuple[float, float] | None = None
    limits: tuple[float, float] | None = None


def blt(run: tuple[int, int, int], buffers: int, loss: str = "max") -> Losses:
    """A BLT optimised for the run."""
    found = optimise_blt(*run, num_buffers=buffers, loss=loss)
    return Losses(found.max_loss, found.rms_loss)


def one_participation(buffers: int) -> Losses:
    """A BLT optimised for single participation, used for six."""
    found = optimise_blt(RUN[0], RUN[1], 1, buffers, "max")
    factor = (Blt(1.0, found.theta, found.omega).sensitivity_squared(*RUN) / found.sensitivity_squared) ** 0.5
    return Losses(found.max_loss * factor, found.rms_loss * factor)


def preset(name: str) -> Losses:
    """The parameters that ran in production, for what they were made for."""
    made = PRESETS[name]
    shipped = Blt(1.0, made.theta, made.omega)
    largest, rms = errors(inverse_coefficients(shipped, made.rounds))
    sensitivity = shipped.sensitivity_squared(made.rounds, made.min_sep, made.max_participations) ** 0.5
    return Losses(largest * sensitivity, rms * sensitivity)


def square_root(bands: int) -> Losses:
    """The banded square root of the prefix sums (BandFHU)."""
    column = np.zeros(RUN[0])
    column[:bands] = fhu_coefficients(bands)
    return toeplitz_losses(column, toeplitz_sensitivity_squared(column, *RUN[1:]))


def rows(full: bool) -> list[Row]:
    """All lines in print order."""
    listed = [
        Row("TreeAgg-Full", lambda: full_losses(tree_matrix(RUN[0]), tree_sensitivity_squared(*RUN)), (14.98, 12.47)),
        Row("BandFHU, 342 bands", lambda: square_root(342)),
        Row("BLT for k=1, 2 buffers", lambda: one_participation(2), (11.80, 11.15)),
        Row("BLT for k=1, 5 buffers", lambda: one_participation(5), (11.40, 10.87)),
        Row("BLT, 2 buffers", lambda: blt(RUN, 2), (10.81, 9.34), (10.807, 5)),
        Row("BLT, 3 buffers", lambda: blt(RUN, 3), (10.79, 9.33), (10.752, 5)),
        Row("BLT, 4 buffers", lambda: blt(RUN, 4), None, (10.735, 5)),
        Row("BLT, 2 buffers, RmsLoss", lambda: blt(RUN, 2, "rms")),
        Row("BandToep, 342 bands", lambda: optimise_banded(*RUN, bands=342, kind="toeplitz").losses),
    ]
    if full:
        listed.append(Row("BandMF, 342 bands", lambda: optimise_banded(*RUN, bands=342).losses, (10.21, 8.60)))
    listed += [
        Row("20000/1000/20 BLT, 2 b.", lambda: blt((20_000, 1000, 20), 2), None, (30.42, 30)),
        Row("20000/1000/20 BLT, 4 b.", lambda: blt((20_000, 1000, 20), 4)),
        Row("500/100/5 BandMF, 100 bands", lambda: optimise_banded(500, 100, 5, 100).losses),
        Row("500/100/5 BLT, 4 buffers", lambda: blt((500, 100, 5), 4, "rms")),
    ]
    for name, made in PRESETS.items():
        run = (made.rounds, made.min_sep, made.max_participations)
        listed.append(Row(f"{name} as shipped", lambda name=name: preset(name)))
        listed.append(Row(f"{name} optimised", lambda run=run: blt(run, 4)))
    return listed


def main() -> None:
    """Print the table; ArithmeticError when a line exceeds its limits."""
    parser = argparse.ArgumentParser(description="losses and CPU seconds of the mechanisms")
    parser.add_argument("--full", action="store_true", help="BandMF for 2,052 rounds too")
    full = parser.parse_args().full
    print(f"start-up and imports: {time.process_time():.1f} CPU s")
    print(f"{'mechanism':<30}{'MaxLoss':>9}{'RmsLoss':>9}{'published':>16}{'CPU s':>8}  limit")
    missed = []
    for row in rows(full):
        began = time.process_time()
        losses = row.work()
        spent = time.process_time() - began
        published = f"{row.published[0]:.2f} / {row.published[1]:.2f}" if row.published else ""
        limit = ""
        if row.limits:
            kept = losses.max_loss <= row.limits[0] and spent <= row.limits[1]
            limit = f"  {row.limits[0]} in {row.limits[1]} s: {'kept' if kept else 'MISSED'}"
            missed += [] if kept else [row.name]
        line = f"{row.name:<30}{losses.max_loss:>9.4f}{losses.rms_loss:>9.4f}{published:>16}{spent:>8.2f}{limit}"
        print(line, flush=True)
    if missed:
        raise ArithmeticError(f"limits missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
