"""Mechanisms at one noise-to-signal ratio, and the search among them for a run that meets a privacy target.

Symbols: T rounds, b ``min_sep``, k ``max_participations``, m ``report_goal``, z noise multiplier.

The model after round t holds the sum of the first t mean updates. With strategy C that sum carries
Gaussian noise, whose standard deviation per coordinate is, as a root mean square over t and in clip
norms, ``z * RmsErr(C) / m``. This *noise-to-signal ratio* decides utility whatever C is, so plans
and mechanisms are compared at the same ratio (Xu et al. 2023, section 2.5: z and m grow together;
McMahan et al. 2024, section 5). Then ``rho = sens^2 / (2 z^2) = (sens * RmsErr / (ratio * m))^2 / 2``.

A small simulation finds the ratio that utility can bear; then report goal and noise multiplier grow
together, which leaves utility alone and lowers rho, until devices come back so soon that their
participations cost more than the noise saves. The search does so for every mechanism.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from scipy.optimize import minimize

from federated import mechanisms
from federated.accounting.amplification import amplified
from federated.accounting.gaussian import epsilon_of_rho
from federated.config.mechanism import MATRIX_ROUNDS, MechanismConfig
from federated.config.planning import KINDS, MAX_NOISE_COPIES, SPARE_FRACTION, PlanningConfig, SmallLaunch
from federated.config.population import Splits
from federated.mechanisms.banded import from_coefficients, toeplitz_rms_error
from federated.mechanisms.blt import Blt
from federated.mechanisms.optimise_banded import fhu_coefficients, optimise_banded, toeplitz_objective
from federated.mechanisms.optimise_blt import optimise_blt
from federated.mechanisms.tree import Tree

# Mechanisms closer than this in rho are equal, and the one that needs less memory wins.
_WORTH_MEMORY = 0.01
# More buffers lower rho by less than this, so only near the target do they decide.
_WORTH_A_LOOK = 0.05
_GOALS_DOWN_TO = 16
_NICE = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.5, 8.0)
INDEPENDENT = "independent"


@dataclass(frozen=True)
class Strategy:
    """A mechanism without its noise multiplier, made for one pattern of participation.

    Attributes:
      kind: as in a launch file.
      label: for people, as in "BLT, 3 buffers".
      parameters: of the ``mechanism:`` block, beyond what all kinds share.
      rms_error: RmsErr of prefix sums per unit of noise.
      sensitivity_squared: exact, in clip norms squared.
      copies: numbers kept between rounds to make the noise, in copies of the model.
      searched_again: a launch searches for a better strategy of these parameters, see ``as_launched``.
    """

    kind: str
    label: str
    parameters: Mapping[str, object]
    rounds: int
    min_sep: int
    max_participations: int
    rms_error: float
    sensitivity_squared: float
    copies: int
    searched_again: bool = False

    @property
    def loss(self) -> float:
        """RmsLoss: RmsErr times sensitivity, the one number that rho depends on."""
        return self.rms_error * math.sqrt(self.sensitivity_squared)

    def noise_multiplier(self, ratio: float, report_goal: int) -> float:
        """z that gives this noise-to-signal ratio, rounded up to four digits so that it can be written down."""
        return round_up(ratio * report_goal / self.rms_error, 4)


def most_participations(rounds: int, min_sep: int) -> int:
    """Rounds that a device can join when two of them lie ``min_sep`` or more apart."""
    return -(-rounds // min_sep)


def round_up(value: float, digits: int) -> float:
    """The next number not below ``value`` that has this many significant digits."""
    step = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    # Through decimal text, or 0.1 * 3 would come out as 0.30000000000000004.
    rounded = float(f"{math.ceil(round(value / step, 6)) * step:.{digits}g}")
    return rounded if rounded >= value else float(f"{rounded + step:.{digits}g}")


def noise_to_signal(config: MechanismConfig) -> float:
    """Ratio of a launch's mechanism block: ``z * RmsErr / m``, in clip norms per coordinate."""
    error = mechanisms.build(config).rms_error(config.rounds)
    return config.noise_multiplier * error / config.report_goal


@functools.cache
def tree(rounds: int, min_sep: int, max_participations: int, restarts: tuple[int, ...] = ()) -> Strategy:
    """Tree aggregation, streamed; ``restarts`` lower the sensitivity and raise the error."""
    made = Tree(1.0, restarts)
    spans = np.diff([0, *restarts, rounds])
    return Strategy(
        kind="tree",
        label=f"tree, {len(restarts)} restart{'s' * (len(restarts) != 1)}" if restarts else "tree",
        parameters=MappingProxyType({"restarts": restarts} if restarts else {}),
        rounds=rounds,
        min_sep=min_sep,
        max_participations=max_participations,
        rms_error=made.rms_error(rounds),
        sensitivity_squared=made.sensitivity_squared(rounds, min_sep, max_participations),
        # As many subtrees are open at once as the round's number has binary ones.
        copies=max(int(span).bit_length() - ((int(span) + 1).bit_count() > 1) for span in spans),
    )


@functools.cache
def tree_with_restarts(rounds: int, min_sep: int, max_participations: int) -> Strategy | None:
    """The tree that starts anew every power of two of rounds and has the least loss; None for short runs."""
    periods = [1 << level for level in range(2, rounds.bit_length()) if rounds / 32 <= 1 << level < rounds]
    trees = [tree(rounds, min_sep, max_participations, tuple(range(period, rounds, period))) for period in periods]
    return min(trees, key=lambda strategy: strategy.loss, default=None)


@functools.cache
def blt(rounds: int, min_sep: int, max_participations: int, buffers: int) -> Strategy:
    """The BLT of least RmsLoss for this pattern (McMahan et al. 2024, section 3.3)."""
    fit = optimise_blt(rounds, min_sep, max_participations, buffers, "rms")
    made = Blt(1.0, fit.theta, fit.omega)
    return Strategy(
        kind="blt",
        label=f"BLT, {buffers} buffers",
        parameters=MappingProxyType({"theta": fit.theta, "omega": fit.omega}),
        rounds=rounds,
        min_sep=min_sep,
        max_participations=max_participations,
        rms_error=made.rms_error(rounds),
        sensitivity_squared=made.sensitivity_squared(rounds, min_sep, max_participations),
        copies=buffers,
    )


@functools.cache
def banded(rounds: int, min_sep: int, max_participations: int, bands: int | None = None) -> Strategy:
    """The banded Toeplitz strategy of least RmsErr at unit norm; by default as many bands as ``min_sep`` allows."""
    bands = min(rounds, min_sep) if bands is None else bands
    coefficients_K = _toeplitz_coefficients(rounds, bands)
    made = from_coefficients(1.0, coefficients_K, rounds)
    return Strategy(
        kind="banded",
        label=f"banded, {bands} band{'s' * (bands != 1)}",
        parameters=MappingProxyType({"bands": bands}),
        rounds=rounds,
        min_sep=min_sep,
        max_participations=max_participations,
        rms_error=toeplitz_rms_error(coefficients_K, rounds),
        sensitivity_squared=made.sensitivity_squared(rounds, min_sep, max_participations),
        copies=bands - 1,
        searched_again=rounds <= MATRIX_ROUNDS,
    )


def as_launched(strategy: Strategy) -> Strategy:
    """The strategy that a launch builds from these parameters: banded noise of a short run has a column for each round.

    Searching for it takes seconds, so the plan does so once, at its end. Among report goals the strategy with one
    column for all rounds decides, which is nearly as good.
    """
    if not strategy.searched_again:
        return strategy
    limits = (strategy.rounds, strategy.min_sep, strategy.max_participations)
    best = optimise_banded(*limits, strategy.copies + 1)
    rms = best.strategy.rms_error(strategy.rounds)
    return replace(strategy, rms_error=rms, sensitivity_squared=best.sensitivity_squared)


def _toeplitz_coefficients(rounds: int, bands: int) -> np.ndarray:
    # As optimise_banded finds them, without its dense matrices, which a sweep over rounds cannot afford.
    free_L = fhu_coefficients(bands)[1:]
    if bands > 1:
        options = {"maxiter": 500, "maxcor": 20, "ftol": 1e-13, "gtol": 1e-8}
        # A step of the search may reach a C whose inverse grows without bound; it then steps back.
        with np.errstate(over="ignore", invalid="ignore"):
            free_L = minimize(toeplitz_objective, free_L, (rounds,), "L-BFGS-B", jac=True, options=options).x
    coefficients_K = np.concatenate([[1.0], free_L])
    return coefficients_K / np.linalg.norm(coefficients_K)


@dataclass(frozen=True)
class Target:
    """Privacy target of the run, as rho; ``epsilon`` is the same at the launch's delta."""

    rho: float
    epsilon: float
    delta: float


@dataclass(frozen=True)
class Option:
    """One option for a run, with its cost.

    Attributes:
      noise_to_signal: as reached with the rounded noise multiplier.
      rho: None for independent noise behind secret sampling, whose loss is no single Gaussian's.
      copies: memory for noise between rounds, in copies of the model.
      note: further remark for the reader.
    """

    kind: str
    label: str
    rounds: int
    report_goal: int
    noise_multiplier: float
    min_sep: int
    max_participations: int
    noise_to_signal: float
    rho: float | None
    epsilon: float
    copies: int
    note: str = ""


@dataclass(frozen=True)
class Choice:
    """An option of correlated noise with the strategy behind it."""

    option: Option
    strategy: Strategy

    @property
    def rho(self) -> float:
        """zCDP of the run."""
        return self.strategy.sensitivity_squared / (2 * self.option.noise_multiplier**2)


@dataclass(frozen=True)
class Terms:
    """Target, noise-to-signal ratio and limits that every option must meet.

    Attributes:
      planning: of the launch file.
      splits: which share of the population trains.
      noise_to_signal: the ratio that all options share.
      rehearsed: whether that is a rehearsal's, or just the ratio of the launch file's own mechanism.
      kinds: mechanisms to choose from.
      most_copies: memory for the noise between rounds, in copies of the model.
      least_report_goal: of the rehearsal: with fewer devices the mean update itself is noisier than anything that
        was rehearsed.
    """

    planning: PlanningConfig
    splits: Splits
    noise_to_signal: float
    rehearsed: bool
    target: Target
    kinds: tuple[str, ...] = KINDS
    most_copies: int = MAX_NOISE_COPIES
    least_report_goal: int = SmallLaunch().report_goal

    @property
    def training_devices(self) -> int:
        """Devices that train, of those that may take part."""
        return self.splits.training(self.planning.population_estimate)

    @property
    def usable_devices(self) -> int:
        """Devices that the plan assumes: the training devices minus the safety margin."""
        # Rounded before it is cut, or 0.9 of a round number could lose a device to binary fractions.
        return int(round(self.training_devices * (1 - SPARE_FRACTION), 6))

    def with_planning(self, **changes: int) -> "Terms":
        """The same terms with some fields of the ``planning:`` block changed."""
        return replace(self, planning=self.planning.model_copy(update=changes))


def terms_of(mechanism: MechanismConfig, planning: PlanningConfig, splits: Splits, ratio: float | None = None) -> Terms:
    """The terms of a launch file, at the ratio that a rehearsal found or else at that of its own mechanism block.

    Raises:
      ValueError: no device is left.
    """
    delta = mechanism.delta
    terms = Terms(
        planning=planning,
        splits=splits,
        noise_to_signal=ratio or noise_to_signal(mechanism),
        rehearsed=ratio is not None,
        target=Target(planning.target_rho, epsilon_of_rho(planning.target_rho, delta), delta),
    )
    if terms.usable_devices < 1:
        raise ValueError(
            f"planning.population_estimate: of {planning.population_estimate} devices about {terms.training_devices} "
            f"train, and less the {SPARE_FRACTION:.0%} that no plan counts on that leaves none; raise it"
        )
    return terms


def min_sep_of(terms: Terms, rounds: int, report_goal: int) -> int:
    """Rounds between two participations that the devices that train carry; 0 if they cannot fill one round.

    ``report_goal * min_sep`` devices are at work or resting at any time.
    """
    return min(terms.usable_devices // report_goal, rounds)


def strategies(
    terms: Terms, rounds: int, report_goal: int, thorough: bool, kinds: Iterable[str] | None = None
) -> list[Strategy]:
    """Mechanisms for the participation pattern of this report goal; [] if the population cannot fill a round.

    Args:
      thorough: all mechanisms; otherwise the few that decide if a target is met, in tenths of a second.
      kinds: in place of those that the terms name.
    """
    min_sep = min_sep_of(terms, rounds, report_goal)
    if min_sep < 1:
        return []
    limits = (rounds, min_sep, most_participations(rounds, min_sep))
    kinds = terms.kinds if kinds is None else tuple(kinds)
    fitting: list[Strategy | None] = []
    if "tree" in kinds:
        fitting += [tree(*limits), tree_with_restarts(*limits)]
    if "blt" in kinds:
        fitting += [blt(*limits, buffers) for buffers in ((2, 3, 4) if thorough else (2,))]
    if "banded" in kinds and (thorough or min(rounds, min_sep) - 1 <= terms.most_copies):
        fitting += [banded(*limits)]
    return [strategy for strategy in fitting if strategy is not None]


def option(terms: Terms, strategy: Strategy, report_goal: int, note: str = "") -> Option:
    """A strategy at a report goal, with the noise multiplier that the ratio asks for."""
    multiplier = strategy.noise_multiplier(terms.noise_to_signal, report_goal)
    rho = strategy.sensitivity_squared / (2 * multiplier**2)
    return Option(
        kind=strategy.kind,
        label=strategy.label,
        rounds=strategy.rounds,
        report_goal=report_goal,
        noise_multiplier=multiplier,
        min_sep=strategy.min_sep,
        max_participations=strategy.max_participations,
        noise_to_signal=multiplier * strategy.rms_error / report_goal,
        rho=rho,
        epsilon=epsilon_of_rho(rho, terms.target.delta),
        copies=strategy.copies,
        note=note,
    )


def independent(terms: Terms, rounds: int, report_goal: int) -> Option | None:
    """Fresh noise and Poisson sampling at the same ratio, for comparison; None if the population is too small."""
    population, delta = terms.usable_devices, terms.target.delta
    rate = report_goal / population
    if rate > 1:
        return None
    multiplier = round_up(terms.noise_to_signal * report_goal / math.sqrt((rounds + 1) / 2), 4)
    return Option(
        kind=INDEPENDENT,
        label="independent",
        rounds=rounds,
        report_goal=report_goal,
        noise_multiplier=multiplier,
        min_sep=1,
        max_participations=rounds,
        noise_to_signal=multiplier * math.sqrt((rounds + 1) / 2) / report_goal,
        rho=None,
        epsilon=amplified("poisson", multiplier, rate, population, rounds, (delta,)).epsilon[delta],
        copies=0,
        note="holds only if every round is a uniform sample of all devices that nobody learns",
    )


def best(terms: Terms, rounds: int, report_goal: int, thorough: bool = False) -> Choice | None:
    """The option of least rho whose noise fits in memory, or one within 1% of it that needs less.

    None if the population cannot fill a round, or nothing fits in memory.
    """
    fitting = [
        Choice(option(terms, strategy, report_goal), strategy)
        for strategy in strategies(terms, rounds, report_goal, thorough)
        if strategy.copies <= terms.most_copies
    ]
    if not fitting:
        return None
    least = min(choice.rho for choice in fitting)
    most = least * (1 + _WORTH_MEMORY)
    # A preference for less memory must not miss a reachable target.
    most = min(most, terms.target.rho) if least <= terms.target.rho else most
    equal = [choice for choice in fitting if choice.rho <= most]
    return min(equal, key=lambda choice: (choice.option.copies, choice.rho))


def report_goals(terms: Terms) -> list[int]:
    """Round numbers to try, the ceiling last; the population must fill one round of each.

    None is below the rehearsal's.
    """
    ceiling = min(terms.planning.max_report_goal, terms.usable_devices)
    rehearsed = min(terms.least_report_goal, ceiling)
    decades = range(math.ceil(math.log10(ceiling)) + 1)
    goals = {int(factor * 10**decade) for decade in decades for factor in _NICE} | {rehearsed}
    return sorted({goal for goal in goals if max(ceiling / _GOALS_DOWN_TO, rehearsed) <= goal < ceiling} | {ceiling})


def search(terms: Terms, rounds: int, on_progress: Callable[[str], None]) -> tuple[Choice | None, list[Choice]]:
    """The smallest report goal that meets the target, because waiting devices cost time.

    Returns:
      The proposal (None if nothing meets the target); the best option of each report goal tried.
    """
    tried, chosen = list[Choice](), None
    for goal in report_goals(terms):
        on_progress(f"{rounds:,} rounds of {goal:,} devices")
        choice = best(terms, rounds, goal)
        if choice is None:
            continue
        if chosen is None and choice.rho <= terms.target.rho * (1 + _WORTH_A_LOOK):
            # Never None where fewer strategies had one.
            choice = best(terms, rounds, goal, thorough=True) or choice
            chosen = choice if choice.rho <= terms.target.rho else None
        tried.append(choice)
    return chosen, tried
