"""Blocks of the launch file that say what a launch must pass and may cost, and the limits that they set on it."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, PositiveInt

from discovery.config import CentralConfig, DiscoveryConfig
from evaluation.config import AbTestConfig, EvaluationConfig
from federated.config.mechanism import MechanismConfig
from federated.config.population import PopulationConfig
from pretrain.config import Amount, Config, Fraction

MOST_DAYS = 36_500
# Letters that people cannot tell apart, and spaces that they cannot see, are in no account's name.
ACCOUNT_NAME = r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}"
Reviewer = Annotated[str, Field(pattern=f"^{ACCOUNT_NAME}$")]


class BudgetConfig(Config):
    """Most that one device may lose in any ``days`` days, over all launches. Text is kept no longer than that."""

    rho: Amount = Field(description="ceiling on device-level rho in any window")
    epsilon: Amount = Field(
        description="ceiling on epsilon of one device over all releases in any window, at policy.population_delta"
    )
    days: Annotated[int, Field(ge=1, le=MOST_DAYS)] = Field(description="length of a window, and of what text is kept")


class PolicyConfig(Config):
    """The gates a launch must pass. A gate without evidence fails."""

    max_rho: Amount = Field(description="ceiling on this launch's device-level rho")
    max_total_epsilon: Amount = Field(
        description="ceiling on the launch's one number: epsilon of one device over all releases, words found locally "
        "among them, at mechanism.delta"
    )
    population_delta: Fraction = Field(
        description="delta at which budget.epsilon and population_max_epsilon hold, over all launches that count"
    )
    budget: BudgetConfig | None = Field(
        default=None, description="ceiling on what one device loses in any window of so many days, over all launches"
    )
    population_max_rho: Amount | None = Field(
        default=None, description="ceiling on what one device loses to all launches on this population there ever are"
    )
    population_max_epsilon: Amount | None = Field(
        default=None, description="the same over all releases, words too; stated beside population_max_rho, and only so"
    )
    max_discovery_epsilon0: Amount | None = Field(
        default=None, description="ceiling on the local epsilon of one message; stated where discovery is local"
    )
    population_max_discovery_epsilon: Amount | None = Field(
        default=None,
        description="ceiling on what one typed word loses to discovery, added up over all launches that may read it: "
        "those in any window of budget.days, and without a budget all",
    )
    min_canary_rank: PositiveInt = Field(
        le=1_000_000_000,
        description="a canary on one device must not rank better than this among the random continuations",
    )
    min_top1_gain: float = Field(
        description="lower end of the interval of private minus starting-point top-1 recall must exceed this"
    )
    max_top3_loss: Annotated[float, Field(ge=0.0)] = Field(
        default=0.0, description="guardrail: top-3 recall may fall by this much against the starting point"
    )
    min_distinct_first_words: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        description="different words that the model puts first on held-out text, at least"
    )
    min_ngram_gain: float = Field(
        description="lower end of the interval of top-1 recall, private minus public n-gram alone and mixed with the "
        "start, at least",
    )
    min_new_word_top3: Fraction | None = Field(
        default=None,
        description="lower end of the interval of top-3 recall where a discovered word is typed, at least; none: no "
        "gate",
    )
    approvals: PositiveInt = Field(
        default=1,
        le=9,
        description="different persons among the reviewers who must approve the report; 2 is the two-person rule",
    )
    cover_everything: bool = Field(
        default=False,
        description="every use of private text spends from a budget: a device's or, in local discovery, a typed word's;"
        " what does not holds the launch",
    )


# Of each arm of an experiment that logged anything, at least.
LEAST_BUCKETS = 20
# Relative loss of any other metric that an experiment may not show.
MOST_GUARDRAIL_LOSS = 0.01


class ExperimentConfig(Config):
    """Between approval and everybody: some devices get the model, and what keyboards then log decides, once."""

    share: Annotated[float, Field(gt=0.0, le=0.5)] = Field(description="of buckets of devices that get the model")
    days: Annotated[int, Field(ge=1, le=90)] = Field(
        description="whole days (UTC) whose logged counts decide, from the day after it begins"
    )
    min_gain: Annotated[float, Field(ge=-0.5, le=1.0)] = Field(
        description="lower end of the interval of the relative change of what decides a feature must exceed this; "
        "better counts as more, so below 0 it must be shown not to be worse by so much, from 0 on to be better"
    )


def require_allowed_discovery(policy: PolicyConfig, discovery: DiscoveryConfig, delta: float) -> None:
    """See that each discovery has the ceiling of its kind.

    Args:
      delta: at which the whole launch is stated.

    Raises:
      ValueError: with field, value and fix.
    """
    if isinstance(discovery, CentralConfig):
        if policy.max_discovery_epsilon0 is not None:
            raise ValueError(
                f"policy.max_discovery_epsilon0: {policy.max_discovery_epsilon0:g}, but a central discovery sends "
                "no randomised messages; its rho is bound by policy.max_rho: remove the line"
            )
        if discovery.delta > delta:
            raise ValueError(
                f"discovery.delta: {discovery.delta:g} is more than mechanism.delta {delta:g}, at "
                "which the whole launch is stated; lower it to that or less"
            )
        return
    if discovery.delta >= delta:
        raise ValueError(
            f"discovery.delta: {discovery.delta:g} leaves nothing of mechanism.delta {delta:g}, at which the whole "
            f"launch is stated, for its noised releases; lower it, to {delta / 2:g} say"
        )
    if policy.max_discovery_epsilon0 is None:
        raise ValueError(
            "policy.max_discovery_epsilon0: missing, and discovery is local; add it (ceiling on the local epsilon "
            "of one message)"
        )
    ceiling, epsilon0 = policy.population_max_discovery_epsilon, discovery.epsilon0
    if ceiling is not None and epsilon0 > ceiling:
        raise ValueError(
            f"policy.population_max_discovery_epsilon: {ceiling:g} is below discovery.epsilon0 {epsilon0:g}, so "
            f"not even one launch fits; raise it to {epsilon0:g} or more, or lower discovery.epsilon0"
        )


def require_total_ceilings(policy: PolicyConfig, delta: float, *, noised: bool) -> None:
    """See that every ceiling on rho has one on epsilon beside it, and that one launch can fit under both.

    Args:
      delta: at which the whole launch is stated.
      noised: training has noise; without, as in a simulation, no rho fits.

    Raises:
      ValueError: with field, value and fix.
    """
    if (policy.population_max_rho is None) != (policy.population_max_epsilon is None):
        missing, there = "population_max_epsilon", "population_max_rho"
        if policy.population_max_rho is None:
            missing, there = there, missing
        raise ValueError(
            f"policy.{missing}: missing beside policy.{there} {getattr(policy, there):g}; rho leaves out words that "
            "are found locally, and epsilon alone grows faster than what is lost: state both, or neither"
        )
    if policy.population_delta < delta:
        raise ValueError(
            f"policy.population_delta: {policy.population_delta:g} is below mechanism.delta {delta:g}, and the deltas "
            f"of launches add up; raise it to {delta:g} for each launch that may count at once"
        )
    window = policy.budget
    bounds = [("max_total_epsilon", "population_max_epsilon", policy.population_max_epsilon)]
    bounds += [("max_total_epsilon", "budget.epsilon", window.epsilon if window else None)]
    if noised:
        bounds += [("max_rho", "population_max_rho", policy.population_max_rho)]
        bounds += [("max_rho", "budget.rho", window.rho if window else None)]
    for name, field, bound in bounds:
        if bound is not None and getattr(policy, name) > bound:
            raise ValueError(
                f"policy.{name}: {getattr(policy, name)} is above policy.{field} {bound}: one launch may not exceed "
                "the population's budget"
            )


def require_coverable(
    policy: PolicyConfig, evaluation: EvaluationConfig | None, experiment: ExperimentConfig | None
) -> None:
    """See that a launch that promises to cover everything can.

    Raises:
      ValueError: with field, value and fix.
    """
    if policy.cover_everything and evaluation is None:
        raise ValueError(
            "policy.cover_everything: true, but held-out devices are evaluated without noise; add the block "
            "evaluation with a noise_multiplier"
        )
    if policy.cover_everything and experiment is not None:
        # A bucket's counts have no bound on what one device adds, so no noise here could cover them.
        raise ValueError(
            f"experiment.share: {experiment.share:g}, but policy.cover_everything is true, and what keyboards log of "
            "an experiment is under no guarantee: a bucket's counts bound no device; remove the block experiment, or "
            "set cover_everything to false, and the report lists the logs as a use that is not covered"
        )


def require_people_protected(population: PopulationConfig, mechanism: MechanismConfig, ab_test: AbTestConfig) -> None:
    """See that people's text is read under secret noise alone.

    Guarantee: people's text is never protected by a seed, which anyone can use too, nor by nothing.

    Raises:
      ValueError: with field, value and fix.
    """
    if population.simulated:
        return
    if mechanism.randomness == "seeded":
        raise ValueError(
            "mechanism.randomness: seeded, so that anyone can subtract the noise, and private_text.source is "
            f"{population.source!r}, people's text; write secure. Text that is nobody's has a source of its own, "
            "made_up_files"
        )
    if ab_test.non_private_upper_bound:
        raise ValueError(
            f"ab_test.non_private_upper_bound: true, but private_text.source is {population.source!r}: training on "
            "people's text without noise and publishing what it reaches is a release without any guarantee; set it to "
            "false, or simulate with source chitchat or synthetic"
        )


def require_reviewers(approvals: int, reviewers: Sequence[str]) -> None:
    """ValueError where a launch file names fewer reviewers than its policy asks to approve."""
    people = len({name.casefold() for name in reviewers})
    if approvals > max(people, 1):
        raise ValueError(
            f"policy.approvals: {approvals}, but reviewers names {people} of them, so nobody could publish it; name "
            "more, or lower it"
        )
