"""Gates on the privacy loss of the launch and its population."""

from collections.abc import Iterator

from pydantic import Field

from pipeline.launch.policy import PolicyConfig
from pipeline.publication.gates.gate import Part, at_most, finite, gate, show
from reports.disclosure.document import GateResult
from reports.losses import up

# The two accountants compute the same exact curve; a larger difference is a disagreement.
EPSILON_TOLERANCE = 1e-3


class GuaranteeEvidence(Part):
    """Participation, losses and the ledger's totals."""

    rho: float | None = None
    epsilon: float | None = Field(default=None, description="first accountant, at the policy's delta")
    epsilon_pld: float | None = Field(default=None, description="second accountant, at the same delta")
    observed_min_sep: int | None = Field(default=None, description="None if no device took part twice")
    observed_max_participations: int | None = None
    violations: int | None = Field(default=None, description="participations that broke an enforced bound")
    enforced_min_sep: int | None = None
    enforced_max_participations: int | None = None
    total_epsilon: float | None = Field(default=None, description="of one device; None if a release is missing")
    epsilon0: float | None = None
    population_rho: float | None = Field(default=None, description="the ledger's total, this launch included")
    window_rho: float | None = Field(
        default=None, description="most that one device lost in any window of the budget, this launch included"
    )
    population_words_epsilon: float | None = Field(
        default=None, description="the ledger's total of words of one device, or the most in any window"
    )
    population_discovery_epsilon: float | None = Field(
        default=None, description="the ledger's item-level total, or the most in any window, this launch included"
    )


def of_the_guarantee(evidence: GuaranteeEvidence, policy: PolicyConfig) -> Iterator[GateResult]:
    """Yield gates on the budgets of launch and population, and on the participation that the accounting assumes."""
    yield at_most("budget", "privacy budget of the launch", evidence.rho, policy.max_rho, "device-level rho", places=4)
    yield at_most(
        "total",
        "total epsilon of the launch",
        evidence.total_epsilon,
        policy.max_total_epsilon,
        "epsilon of one device over all releases",
        places=2,
    )
    yield _accountants(evidence)
    if policy.population_max_rho is not None:
        yield at_most(
            "population_budget",
            "privacy budget of the population",
            evidence.population_rho,
            policy.population_max_rho,
            "device-level rho over all launches in the ledger",
            places=4,
        )
    if policy.budget is not None:
        yield at_most(
            "window_budget",
            f"privacy budget of the population in any {policy.budget.days} days",
            evidence.window_rho,
            policy.budget.rho,
            "most device-level rho of one device in any such window of the ledger",
            places=4,
        )
    yield _separation(evidence)
    yield at_most(
        "max_participations",
        "participations of one device",
        evidence.observed_max_participations,
        evidence.enforced_max_participations,
        "most rounds of one device, from the participation records",
    )
    yield at_most("violations", "participation violations", evidence.violations, 0, "participations out of bounds")
    if policy.max_discovery_epsilon0 is not None:  # a launch without it uses central discovery, within its rho
        yield at_most(
            "discovery",
            "local privacy of discovery",
            evidence.epsilon0,
            policy.max_discovery_epsilon0,
            "epsilon of one randomised message",
            places=2,
        )
    if policy.population_max_words_epsilon is not None:
        yield at_most(
            "population_words",
            "words of one device over all launches",
            evidence.population_words_epsilon,
            policy.population_max_words_epsilon,
            "epsilon of one device to words found locally, over all launches that count",
            places=2,
        )
    if policy.population_max_discovery_epsilon is not None:
        yield at_most(
            "population_discovery",
            "local privacy of discovery over all launches",
            evidence.population_discovery_epsilon,
            policy.population_max_discovery_epsilon,
            "epsilon of one typed word over all launches in the ledger",
            places=2,
        )


def _accountants(evidence: GuaranteeEvidence) -> GateResult:
    first, second = evidence.epsilon, evidence.epsilon_pld
    difference = abs(first - second) if finite(first) and finite(second) else None
    passed = difference is not None and difference <= EPSILON_TOLERANCE
    one, other = (up(each, 4) if finite(each) else show(each) for each in (first, second))
    text = f"epsilon is {one} by the exact curve and {other} by privacy loss distributions"
    return gate("accountants", "two accountants agree", difference, EPSILON_TOLERANCE, passed, text)


def _separation(evidence: GuaranteeEvidence) -> GateResult:
    observed, enforced = evidence.observed_min_sep, evidence.enforced_min_sep
    once = observed is None and evidence.observed_max_participations in (0, 1)
    passed = finite(enforced) and (once or (finite(observed) and observed >= enforced))
    seen = "no device took part twice" if once else f"closest two participations are {show(observed)} rounds apart"
    return gate(
        "min_sep", "separation of participations", observed, enforced, passed, f"{seen}, {show(enforced)} needed"
    )
