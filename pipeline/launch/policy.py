"""Blocks of the launch file for gates and budgets, and the checks between them."""

import math
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, PositiveInt

from discovery.config import CentralConfig, DiscoveryConfig
from evaluation.config import ALPHA, RANDOM_CONTINUATIONS, AbTestConfig, AuditConfig, EvaluationConfig
from federated.config.mechanism import MechanismConfig
from federated.config.population import PopulationConfig
from pretrain.config import LEAST_AMOUNT, Amount, Config, Fraction

MOST_DAYS = 36_500


# As the ledger takes it (``ledger.budget.Rho``).
PopulationRho = Annotated[float, Field(ge=LEAST_AMOUNT, le=1_000.0)]


class BudgetConfig(Config):
    """Ceiling on the loss of one device in any ``days`` days, over all launches; text is kept no longer."""

    rho: PopulationRho = Field(description="ceiling on device-level rho in any window")
    days: Annotated[int, Field(ge=1, le=MOST_DAYS)] = Field(description="length of the window, and retention of text")


# A difference of recalls is a share of words, and no number of points.
Gain = Annotated[float, Field(ge=-1.0, le=1.0)]


class PolicyConfig(Config):
    """The gates a launch must pass. A gate without evidence fails."""

    max_rho: Amount = Field(description="ceiling on this launch's device-level rho")
    max_total_epsilon: Amount = Field(
        description="ceiling on the launch's total: epsilon of one device over all releases, locally discovered words "
        "included, at mechanism.delta"
    )
    population_delta: Fraction = Field(
        description="delta of one device over all launches that count: at half of it their rho is stated as epsilon, "
        "and half bounds failures of noised releases and deltas of word discovery"
    )
    budget: BudgetConfig | None = Field(
        default=None, description="ceiling on the loss of one device in any window of budget.days, over all launches"
    )
    population_max_rho: PopulationRho | None = Field(
        default=None,
        description="ceiling on the rho of one device over all launches on this population, without a window",
    )
    max_discovery_epsilon0: Amount | None = Field(
        default=None, description="ceiling on the local epsilon of one message; stated where discovery is local"
    )
    population_max_discovery_epsilon: Amount | None = Field(
        default=None,
        description="ceiling on the loss of one typed word to discovery, added up over all launches that may read it: "
        "those in any window of budget.days, or all launches without a budget",
    )
    population_max_words_epsilon: Amount | None = Field(
        default=None,
        description="ceiling on the loss of one device to all its messages of word discovery, over the same launches; "
        "stated where discovery is local",
    )
    min_canary_rank: PositiveInt = Field(
        le=1_000_000_000,
        description="a canary on one device must not rank better than this among the random continuations",
    )
    min_top1_gain: Gain = Field(
        description="lower end of the interval of private minus starting-point top-1 recall must exceed this share of "
        "words; 0.01 is one point"
    )
    max_top3_loss: Annotated[float, Field(ge=0.0, le=1.0)] = Field(
        default=0.0, description="guardrail: top-3 recall may fall by this much against the starting point"
    )
    min_variety: Annotated[float, Field(ge=0.0, le=1.0)] = Field(
        description="different words that the model suggests first and rightly, expected in a fixed number of typed "
        "words of people, or of public text under an evaluation budget: at least this share of those of the public "
        "n-gram in public text"
    )
    min_ngram_gain: Gain = Field(
        description="lower end of the interval of top-1 recall, private minus public n-gram alone and mixed with the "
        "start and, without an evaluation budget, minus the same words always, at least",
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
        description="every use of private text spends from a budget, of a device or of a typed word in local discovery;"
        " a use without a budget holds the launch",
    )


def is_gate(name: str) -> bool:
    """Return whether a field of the policy is a gate whose bound a population's registration may hold."""
    return name in PolicyConfig.model_fields and (name.startswith(("min_", "max_")) or name == "cover_everything")


def require_allowed_discovery(policy: PolicyConfig, discovery: DiscoveryConfig, delta: float) -> None:
    """Check that each kind of word discovery has its own ceiling.

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
    if policy.population_max_words_epsilon is None:
        raise ValueError(
            "policy.population_max_words_epsilon: missing, and discovery is local; add it (ceiling on the epsilon of "
            "one device to all its messages, over all launches that count)"
        )
    for name in ("max_discovery_epsilon0", "population_max_discovery_epsilon"):
        ceiling, epsilon0 = getattr(policy, name), discovery.epsilon0
        if ceiling is not None and epsilon0 > ceiling:
            raise ValueError(
                f"policy.{name}: {ceiling:g} is below discovery.epsilon0 {epsilon0:g}, so not even one launch fits; "
                f"lower discovery.epsilon0, or raise the ceiling to {epsilon0:g} or more"
            )


def require_population_ceilings(policy: PolicyConfig, delta: float, *, noised: bool) -> None:
    """Check that one launch can fit under the ceilings of its population.

    Args:
      delta: at which the whole launch is stated.
      noised: training has noise; without noise, as in a simulation, no rho fits.

    Raises:
      ValueError: with field, value and fix.
    """
    if policy.population_delta < delta:
        raise ValueError(
            f"policy.population_delta: {policy.population_delta:g} is below mechanism.delta {delta:g}, and the deltas "
            f"of launches add up; raise it to {delta:g} for each launch that may count at once"
        )
    window = policy.budget
    for field, bound in (
        ("population_max_rho", policy.population_max_rho),
        ("budget.rho", window.rho if window else None),
    ):
        if noised and bound is not None and policy.max_rho > bound:
            raise ValueError(
                f"policy.max_rho: {policy.max_rho} is above policy.{field} {bound}: one launch may not exceed the "
                "population's budget"
            )


def require_coverable(policy: PolicyConfig, evaluation: EvaluationConfig | None) -> None:
    """Check that ``policy.cover_everything`` is possible with the launch's evaluation.

    Raises:
      ValueError: with field, value and fix.
    """
    if policy.cover_everything and evaluation is None:
        raise ValueError(
            "policy.cover_everything: true, but held-out devices are evaluated without noise; add the block "
            "evaluation with a noise_multiplier"
        )


def require_people_protected(population: PopulationConfig, mechanism: MechanismConfig, ab_test: AbTestConfig) -> None:
    """Check that a launch on people's text uses secret noise.

    Guarantee: people's text is never read with seeded noise, which anyone can reproduce, nor without noise.

    Raises:
      ValueError: with field, value and fix.
    """
    if population.simulated:
        return
    if mechanism.randomness == "seeded":
        raise ValueError(
            "mechanism.randomness: seeded, so that anyone can subtract the noise, and private_text.source is "
            f"{population.source!r}, people's text; write secure. Made-up text has a source of its own, made_up_files"
        )
    if ab_test.non_private_upper_bound:
        raise ValueError(
            f"ab_test.non_private_upper_bound: true, but private_text.source is {population.source!r}: training on "
            "people's text without noise and publishing its metrics is a release without any guarantee; set it to "
            "false, or simulate with source chitchat or synthetic"
        )


def require_canaries_rare_by_chance(policy: PolicyConfig, audit: AuditConfig) -> None:
    """ValueError where the gate ``canaries`` would hold more than a share ``ALPHA`` of launches that remember nothing.

    The rank of a canary that nobody remembers is uniform among the random continuations.
    """
    alone = len(audit.examples) * audit.repeats if 1 in audit.users else 0
    needed = alone * (policy.min_canary_rank - 1) / ALPHA
    if needed > RANDOM_CONTINUATIONS:
        raise ValueError(
            f"policy.min_canary_rank: {policy.min_canary_rank:,}, and none of {alone} canaries on one device may rank "
            f"better among {RANDOM_CONTINUATIONS:,} random continuations: chance alone would hold "
            f"{ALPHA * needed / RANDOM_CONTINUATIONS:.1%} of launches; lower audit.repeats, give fewer "
            f"audit.examples, or lower it to {math.floor(ALPHA * RANDOM_CONTINUATIONS / alone) + 1:,} or less"
        )


def require_reviewers(approvals: int, reviewers: Sequence[str]) -> None:
    """ValueError where a launch file names fewer reviewers than its policy asks to approve."""
    people = len({name.casefold() for name in reviewers})
    if approvals > max(people, 1):
        raise ValueError(
            f"policy.approvals: {approvals}, but reviewers names {people}, so the launch could never be published; "
            "name more, or lower it"
        )
