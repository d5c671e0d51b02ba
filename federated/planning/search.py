"""The mechanism of least noise in the last model, for one pattern of participation and one rho.

Symbols: T rounds, b ``min_sep``, k ``max_participations``, m ``report_goal``, z noise multiplier, w_t weight of round t
in the last model.

The last model carries noise of standard deviation ``rate clip z / m noise_std(w)``, and rho fixes ``z = sens / sqrt(2
rho)``. So at given rounds, goal and rho, mechanisms compare by their *loss*, ``sens noise_std(w)``, whatever the rate.
"""

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
from pydantic import TypeAdapter

from federated import mechanisms
from federated.config.counts import CONTEXTS, CountsConfig
from federated.config.mechanism import MATRIX_ROUNDS, MechanismConfig
from federated.config.planning import KINDS, MAX_NOISE_COPIES, SLOW_ROUND_MINUTES, SPARE_FRACTION, PlanningConfig
from federated.config.population import Splits
from federated.config.training import ServerConfig
from federated.mechanisms.banded import from_coefficients
from federated.mechanisms.blt import Blt
from federated.mechanisms.optimise_banded import optimise_banded, search_toeplitz
from federated.mechanisms.optimise_blt import optimise_blt
from federated.mechanisms.tree import Tree
from federated.participation.clock import whole_days
from federated.planning import gain
from federated.planning.law import MOST_PARTICIPATIONS, round_weights

# Mechanisms closer than this in noise are equal, and the one that needs less memory wins.
_WORTH_MEMORY = 0.01
_DIGITS = 4
# Counts in which so many people are heard gain by more contexts, within the memory of a launch and the size of a
# bundle.
WIDE_FROM, WIDE_CONTEXTS, MOST_CELLS = 5_000, 2_000, 8_000_000


@dataclass(frozen=True)
class Strategy:
    """A mechanism without its noise multiplier, made for one pattern of participation.

    Attributes:
      kind: as in a launch file.
      parameters: of the ``mechanism:`` block, beyond what all kinds share.
      made: at a noise multiplier of 1.
      sensitivity_squared: exact, in clip norms squared.
      copies: numbers kept between rounds to make the noise, in copies of the model.
    """

    kind: str
    parameters: Mapping[str, object]
    made: mechanisms.Mechanism
    rounds: int
    min_sep: int
    max_participations: int
    sensitivity_squared: float
    copies: int

    def loss(self, weights_T: np.ndarray) -> float:
        """Sensitivity times the noise of the sum that the weights of the rounds make."""
        return self.made.noise_std(weights_T) * math.sqrt(self.sensitivity_squared)


@dataclass(frozen=True)
class Terms:
    """Limits of a launch that every mechanism must meet.

    Attributes:
      planning: of the launch file.
      splits: which share of the population trains.
      server: determines the weight of each round in the last model.
    """

    planning: PlanningConfig
    splits: Splits
    server: ServerConfig

    @property
    def training_devices(self) -> int:
        """Devices that train, of those that may take part."""
        return self.splits.training(self.planning.population_estimate)

    @property
    def usable_devices(self) -> int:
        """Devices that the plan assumes: the training devices minus the safety margin."""
        # Rounded before it is cut, or 0.9 of a round number could lose a device to binary fractions.
        return int(round(self.training_devices * (1 - SPARE_FRACTION), 6))


def terms_of(planning: PlanningConfig, splits: Splits, server: ServerConfig) -> Terms:
    """The terms of a launch file.

    Raises:
      ValueError: no device is left.
    """
    terms = Terms(planning, splits, server)
    if terms.usable_devices < 1:
        raise ValueError(
            f"planning.population_estimate: of {planning.population_estimate} devices about {terms.training_devices} "
            f"train, and less the {SPARE_FRACTION:.0%} that no plan counts on that leaves none; raise it"
        )
    return terms


def block_at(
    mechanism: MechanismConfig,
    terms: Terms,
    rho: float,
    kinds: tuple[str, ...] = KINDS,
    *,
    thorough: bool = True,
) -> MechanismConfig:
    """The ``mechanism:`` block of least noise in the last model whose worst case is ``rho`` or a hair below.

    Rounds and what does not depend on the mechanism (clip norm, delta, randomness, clipping, secure aggregation,
    availability) are kept. Adaptive clipping is not: its bits would cost rho of their own. The report goal is as large
    as one round can aggregate, but for devices that would join more than ``law.MOST_PARTICIPATIONS`` rounds.

    Args:
      thorough: try all mechanisms; otherwise the few that differ by more than a few percent, in tenths of a second.

    Raises:
      ValueError: the noise of no mechanism of these kinds fits in memory; Adam, whose steps the law does not describe.
    """
    rounds, planning = mechanism.rounds, terms.planning
    usable = terms.usable_devices
    report_goal = max(1, min(planning.max_report_goal, usable, MOST_PARTICIPATIONS * usable // rounds))
    weights_T = round_weights(rounds, terms.server)
    every = strategies(terms, rounds, report_goal, kinds, thorough=thorough)
    losses = [(each.loss(weights_T), each) for each in every if each.copies <= MAX_NOISE_COPIES]
    if not losses:
        raise ValueError(
            f"mechanism.rounds: {rounds} rounds of {report_goal} devices need more than {MAX_NOISE_COPIES} copies of "
            f"the model for the noise of {', '.join(kinds)}; add 'blt', which needs 2"
        )
    most = min(loss for loss, _ in losses) * (1 + _WORTH_MEMORY)
    _, strategy = min(((loss, each) for loss, each in losses if loss <= most), key=lambda pair: pair[1].copies)
    shared = mechanism.model_dump(
        exclude_defaults=True, include={"clip_norm", "delta", "randomness", "clipping", "secagg", "availability"}
    )
    if mechanism.timer_days is not None:
        shared["availability"] = {"timer_days": whole_days(strategy.min_sep, SLOW_ROUND_MINUTES)}
    decided = {
        "kind": strategy.kind,
        **strategy.parameters,
        "noise_multiplier": round_up(math.sqrt(strategy.sensitivity_squared / (2 * rho)) * (1 + 1e-6), _DIGITS),
        "rounds": strategy.rounds,
        "report_goal": report_goal,
        "min_sep": strategy.min_sep,
        "max_participations": strategy.max_participations,
    }
    return TypeAdapter(MechanismConfig).validate_python(decided | shared)


def counts_at(
    rho: float, devices: int, words: int, model: Literal["network", "mixture", "start-mixture"] = "mixture"
) -> CountsConfig:
    """The ``counts:`` block of at most this rho, with as many contexts as so many devices fill.

    Args:
      words: size of the vocabulary.
    """
    noise = round_up((2 * rho) ** -0.5, 4)
    return CountsConfig(noise_multiplier=noise, model=model, contexts=contexts(gain.heard(devices, rho), words))


def contexts(heard: float, words: int) -> int:
    """Contexts of counts, by heard people (``gain.heard``) and the size of the vocabulary."""
    if heard < WIDE_FROM:
        return CONTEXTS
    return max(CONTEXTS, min(WIDE_CONTEXTS, MOST_CELLS // words // 100 * 100))


def round_up(value: float, digits: int) -> float:
    """The next number not below ``value`` that has this many significant digits."""
    step = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    # Through decimal text, or 0.1 * 3 would come out as 0.30000000000000004.
    rounded = float(f"{math.ceil(round(value / step, 6)) * step:.{digits}g}")
    return rounded if rounded >= value else float(f"{rounded + step:.{digits}g}")


def strategies(
    terms: Terms, rounds: int, report_goal: int, kinds: Iterable[str] = KINDS, *, thorough: bool = True
) -> list[Strategy]:
    """Mechanisms for the participation pattern of this report goal; [] if the population cannot fill a round.

    ``report_goal * min_sep`` devices are at work or resting at any time.

    Args:
      thorough: as in ``block_at``.
    """
    min_sep = min(terms.usable_devices // report_goal, rounds)
    if min_sep < 1:
        return []
    limits = (rounds, min_sep, -(-rounds // min_sep))  # rounds of one device, ``min_sep`` apart
    fitting: list[Strategy | None] = []
    if "tree" in kinds:
        fitting += [tree(*limits), tree_with_restarts(*limits)]
    if "blt" in kinds:
        fitting += [blt(*limits, buffers) for buffers in ((2, 3, 4) if thorough else (2,))]
    if "banded" in kinds and min_sep - 1 <= MAX_NOISE_COPIES:
        fitting.append(banded(*limits))
    return [strategy for strategy in fitting if strategy is not None]


@functools.cache
def tree(rounds: int, min_sep: int, max_participations: int, restarts: tuple[int, ...] = ()) -> Strategy:
    """Tree aggregation, streamed; ``restarts`` lower the sensitivity and raise the error."""
    made = Tree(1.0, restarts)
    spans = np.diff([0, *restarts, rounds])
    return Strategy(
        kind="tree",
        parameters=MappingProxyType({"restarts": restarts} if restarts else {}),
        made=made,
        rounds=rounds,
        min_sep=min_sep,
        max_participations=max_participations,
        sensitivity_squared=made.sensitivity_squared(rounds, min_sep, max_participations),
        # As many subtrees are open at once as the round's number has binary ones.
        copies=max(int(span).bit_length() - ((int(span) + 1).bit_count() > 1) for span in spans),
    )


@functools.cache
def tree_with_restarts(rounds: int, min_sep: int, max_participations: int) -> Strategy | None:
    """The tree that starts anew every power of two of rounds and has the least loss; None for short runs."""
    periods = [1 << level for level in range(2, rounds.bit_length()) if rounds / 32 <= 1 << level < rounds]
    trees = [tree(rounds, min_sep, max_participations, tuple(range(period, rounds, period))) for period in periods]
    return min(trees, key=lambda strategy: strategy.loss(np.ones(rounds)), default=None)


@functools.cache
def blt(rounds: int, min_sep: int, max_participations: int, buffers: int) -> Strategy:
    """The BLT of least RmsLoss for this pattern (McMahan et al. 2024, section 3.3)."""
    fit = optimise_blt(rounds, min_sep, max_participations, buffers, "rms")
    made = Blt(1.0, fit.theta, fit.omega)
    return Strategy(
        kind="blt",
        parameters=MappingProxyType({"theta": fit.theta, "omega": fit.omega}),
        made=made,
        rounds=rounds,
        min_sep=min_sep,
        max_participations=max_participations,
        sensitivity_squared=made.sensitivity_squared(rounds, min_sep, max_participations),
        copies=buffers,
    )


@functools.cache
def banded(rounds: int, min_sep: int, max_participations: int) -> Strategy:
    """The banded strategy that a launch searches for, with as many bands as ``min_sep`` allows."""
    bands = min(rounds, min_sep)
    if rounds <= MATRIX_ROUNDS:
        made = optimise_banded(rounds, min_sep, max_participations, bands, loss="model").strategy
    else:  # without the dense matrices of so many rounds
        made = from_coefficients(1.0, search_toeplitz(rounds, bands, "model")[0], rounds)
    return Strategy(
        kind="banded",
        parameters=MappingProxyType({"bands": bands}),
        made=made,
        rounds=rounds,
        min_sep=min_sep,
        max_participations=max_participations,
        sensitivity_squared=made.sensitivity_squared(rounds, min_sep, max_participations),
        copies=bands - 1,
    )
