"""Mechanisms of the BLT figures: made for one run, priced on another.

A made mechanism keeps its numbers. What it costs depends on the run that it meets: rounds n, min separation b and
``k = ceil(n / b)`` participations, the most that b allows. Loss is error times sensitivity, so at equal loss two
mechanisms give the same noise in the model at the same rho.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks.papers import paper
from federated.mechanisms.banded import from_coefficients
from federated.mechanisms.blt import Blt, errors, inverse_coefficients
from federated.mechanisms.independent import Independent
from federated.mechanisms.optimise_banded import Losses, full_losses, optimise_banded
from federated.mechanisms.optimise_blt import optimise_blt
from federated.mechanisms.sensitivity import toeplitz_sensitivity_squared, tree_matrix, tree_sensitivity_squared
from federated.mechanisms.tree import prefix_variances
from tests.helpers.audits.strategies import toeplitz_losses


@dataclass(frozen=True)
class Run:
    """The run that a mechanism meets."""

    rounds: int
    min_sep: int

    @property
    def most(self) -> int:
        """k, the most participations that the separation allows."""
        return -(-self.rounds // self.min_sep)

    @property
    def limits(self) -> tuple[int, int, int]:
        """n, b, k."""
        return self.rounds, self.min_sep, self.most


@cache
def blt(made_for: Run, buffers: int, loss: str = "rms") -> Blt:
    """The BLT of least loss for a run."""
    best = optimise_blt(*made_for.limits, buffers, "max" if loss == "max" else "rms")
    return Blt(1.0, best.theta, best.omega)


@cache
def blt_losses(mechanism: Blt, run: Run) -> Losses:
    """Losses of a BLT on any run."""
    largest, rms = errors(inverse_coefficients(mechanism, run.rounds))
    sensitivity = mechanism.sensitivity_squared(*run.limits) ** 0.5
    return Losses(largest * sensitivity, rms * sensitivity)


@cache
def bands(made_for: Run, count: int) -> tuple[float, ...]:
    """Coefficients of the banded Toeplitz strategy of least RmsLoss for a run."""
    made = optimise_banded(*made_for.limits, min(count, made_for.min_sep, made_for.rounds), "toeplitz")
    return tuple(made.strategy.lags_NL[-1].tolist())


@cache
def banded_losses(coefficients: tuple[float, ...], run: Run) -> Losses:
    """Losses of a banded Toeplitz strategy on any run, also where a device's columns overlap."""
    column = np.zeros(run.rounds)
    kept = min(len(coefficients), run.rounds)
    column[:kept] = coefficients[:kept]
    if run.min_sep >= len(coefficients):
        squared = from_coefficients(1.0, np.array(coefficients[:kept]), run.rounds).sensitivity_squared(*run.limits)
    else:
        squared = toeplitz_sensitivity_squared(column, run.min_sep, run.most)
    return toeplitz_losses(column, squared)


@cache
def tree_losses(run: Run) -> Losses:
    """Losses of streamed tree aggregation, which has no numbers to choose."""
    variances = prefix_variances(run.rounds)
    sensitivity = tree_sensitivity_squared(*run.limits) ** 0.5
    return Losses(float(variances.max()) ** 0.5 * sensitivity, float(variances.mean()) ** 0.5 * sensitivity)


@cache
def full_tree_losses(run: Run) -> Losses:
    """Losses of a tree that uses nodes of later rounds too (TreeAgg-Full), which nobody can stream."""
    at_one, sensitivity = _full_tree_errors(run.rounds), tree_sensitivity_squared(*run.limits) ** 0.5
    return Losses(at_one.max_loss * sensitivity, at_one.rms_loss * sensitivity)


@cache
def _full_tree_errors(rounds: int) -> Losses:
    return full_losses(tree_matrix(rounds), 1.0)


def independent_losses(run: Run) -> Losses:
    """Losses of fresh noise in each round, without any gain from sampling."""
    made = Independent(1.0, "fixed", 1.0, 1)
    sensitivity = made.sensitivity_squared(*run.limits) ** 0.5
    return Losses(run.rounds**0.5 * sensitivity, made.rms_error(run.rounds) * sensitivity)


def ratios(values: Sequence[float], bases: Sequence[float]) -> list[float]:
    """Each value as a multiple of its base."""
    return [value / base for value, base in zip(values, bases, strict=True)]


def fixed_losses(plan: Run, runs: Sequence[Run], buffers: Sequence[int]) -> dict[str, list[float]]:
    """RmsLoss on each run of mechanisms made for the plan, and of those made again for each run."""
    made = {f"BLT, {number} buffers": blt(plan, number) for number in buffers}
    planned = bands(plan, plan.min_sep)
    priced = {
        "tree": [tree_losses(run) for run in runs],
        **{name: [blt_losses(each, run) for run in runs] for name, each in made.items()},
        f"banded, {plan.min_sep} bands": [banded_losses(planned, run) for run in runs],
        "BLT made again": [blt_losses(blt(run, 3), run) for run in runs],
        "banded made again": [banded_losses(bands(run, run.min_sep), run) for run in runs],
    }
    return {name: [one.rms_loss for one in values] for name, values in priced.items()}


def panels(
    axis: str, places: Sequence[float], rms: Mapping[str, Sequence[float]], looks: Mapping[str, tuple], planned: float
) -> list[paper.Draw]:
    """Loss by place, and by place as a multiple of the best, without fresh noise."""
    best = [min(values) for values in zip(*rms.values(), strict=True)]

    def panel(y_label: str, base: Sequence[float], log: str, left_out: str = "") -> paper.Draw:
        drawn = (
            paper.Line(name, places, ratios(rms[name], base), *look) for name, look in looks.items() if name != left_out
        )
        return paper.lines(drawn, axis, y_label, log, planned)

    return [panel("RmsLoss", [1.0] * len(places), "xy"), panel("RmsLoss, times the best", best, "x", "fresh noise")]


def table(axis: str, places: Sequence[int], runs: Sequence[Run], rms: Mapping[str, Sequence[float]]) -> list[list]:
    """Losses by place, with the participations of each run."""
    rows = [
        [f"{place:,}", run.most, *(values[number] for values in rms.values())]
        for number, (place, run) in enumerate(zip(places, runs, strict=True))
    ]
    return [[axis, "participations", *rms], *rows]
