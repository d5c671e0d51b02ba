"""Compute the papers' numbers again, by the functions that account for a launch.

A printed number agrees if ours is at most half a unit of its last digit away; no row has a wider tolerance.

Conventions differ by paper and each is a trap: Xu et al. count MinS strictly between two
participations (``min_sep`` minus 1) and take epsilon from the *rounded* rho; the BLT paper takes it
from the exact rho and rounds both up; the two DP-FedAvg papers use a looser conversion, and one of
them a distance that is half of what replacing a device may cause.
"""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from federated.accounting import amplification as sampled
from federated.accounting.gaussian import epsilon_of_rho
from federated.accounting.published_rows import ROWS, Row, agrees
from federated.config.blt_presets import PRESETS
from federated.mechanisms.banded import Banded
from federated.mechanisms.blt import Blt, errors, inverse_coefficients
from federated.mechanisms.optimise_banded import Losses, full_losses, optimise_banded
from federated.mechanisms.optimise_blt import optimise_blt
from federated.mechanisms.sensitivity import tree_matrix, tree_sensitivity_squared
from federated.mechanisms.tree import Tree

__all__ = ["ROWS", "Comparison", "Published", "Row", "check", "compare", "recompute"]

# The grid that the notebook's accountant used.
_NOTEBOOK_ORDERS = (*(1 + tenths / 10 for tenths in range(1, 100)), *range(12, 64))


@dataclass(frozen=True)
class Comparison:
    """A published number and the recomputed one.

    Attributes:
      ours: None where it cannot be computed.
      match: whether ours, rounded, is the printed number; None without ours.
    """

    row: Row
    ours: float | None
    match: bool | None

    @property
    def fine(self) -> bool:
        """False only for a number that is not the printed one for no known reason."""
        return bool(self.match) or bool(self.row.departs)


@dataclass(frozen=True)
class Published:
    """Rows in print order, those that were not computed among them."""

    done: tuple[Comparison, ...]
    skipped: tuple[Row, ...]

    @property
    def ok(self) -> bool:
        return all(checked.fine for checked in self.done)


def compare(slow: bool, follow: Callable[[Sequence[Row]], Iterable[Row]] = iter) -> Published:
    """Recompute every row; rows that take minutes only on request.

    Args:
      follow: passes the rows on, one at a time, and may show how far they are.
    """
    wanted = [row for row in ROWS if slow or not row.slow]
    return Published(tuple(check(row) for row in follow(wanted)), tuple(row for row in ROWS if row not in wanted))


def check(row: Row) -> Comparison:
    """Compute a row again and compare; minutes for rows that are ``slow``."""
    ours = recompute(row)
    if ours is None:
        return Comparison(row, None, None)
    return Comparison(row, ours, agrees(row.printed, ours))


def recompute(row: Row) -> float | None:
    """A row's quantity from its inputs alone, before any rounding; None if the inputs are not public."""
    inputs = row.inputs
    match row.recipe:
        case "unknown-strategy":
            return None
        case "moments-2018":
            return sampled.moments_accountant_2018(
                inputs["rate"], inputs["noise_multiplier"], int(inputs["rounds"]), inputs["delta"]
            )
        case "without-replacement-2020":
            sizes = int(inputs["population"]), int(inputs["report_goal"])
            return sampled.without_replacement_2020(
                *sizes, inputs["noise_multiplier"], int(inputs["rounds"]), inputs["delta"]
            )
        case "printed-rho":
            return epsilon_of_rho(inputs["rho"], inputs["delta"])
        case "renyi-of-rho":
            # Renyi divergence of a Gaussian at order a is rho a.
            renyi_O = _rho(row) * np.array(_NOTEBOOK_ORDERS)
            return sampled.epsilon_of_renyi(_NOTEBOOK_ORDERS, renyi_O, inputs["delta"])
        case "tree" | "blt" | "unit-columns":
            return _rho(row) if row.quantity == "rho" else epsilon_of_rho(_rho(row), inputs["delta"])
        case _:
            losses = _losses(row.recipe, tuple((name, int(value)) for name, value in inputs.items()))
            return losses.max_loss if row.quantity == "MaxLoss" else losses.rms_loss


def _rho(row: Row) -> float:
    multiplier, rounds = row.inputs["noise_multiplier"], int(row.inputs["rounds"])
    limits = rounds, int(row.inputs["mins"]) + 1, int(row.inputs["max_participations"])
    mechanism: Blt | Banded | Tree
    match row.recipe:
        case "blt":
            preset = PRESETS[row.preset]
            mechanism = Blt(multiplier, preset.theta, preset.omega)
        case "unit-columns":
            # Whatever a strategy with bands <= min_sep looks like inside: only its columns' norm of 1 counts.
            mechanism = Banded(multiplier, np.ones((rounds, 1)))
        case _:
            mechanism = Tree(multiplier)
    return mechanism.sensitivity_squared(*limits) / (2 * multiplier**2)


@functools.cache
def _losses(recipe: str, items: tuple[tuple[str, int], ...]) -> Losses:
    """Both losses of a strategy for one run; two rows share the search for it."""
    inputs = dict(items)
    run = inputs["rounds"], inputs["min_sep"], inputs["max_participations"]
    match recipe:
        case "tree-full":
            return full_losses(tree_matrix(run[0]), tree_sensitivity_squared(*run))
        case "blt-optimised":
            best = optimise_blt(run[0], run[1], inputs["optimised_for"], inputs["buffers"], "max")
            return _blt_losses(Blt(1.0, best.theta, best.omega), run)
        case "banded-optimised":
            return optimise_banded(*run, bands=inputs["bands"]).losses
    raise ValueError(f"recipe: {recipe!r} is none of this module's")


def _blt_losses(blt: Blt, run: tuple[int, int, int]) -> Losses:
    largest, rms = errors(inverse_coefficients(blt, run[0]))
    sensitivity = math.sqrt(blt.sensitivity_squared(*run))
    return Losses(largest * sensitivity, rms * sensitivity)
