"""Evaluate the declared gates on the evidence of a launch.

``decide`` is pure. A gate without evidence fails, a number that is not finite fails, and one
failed gate holds the launch. Holding is a value, not an error: a held launch still gets its
report.
"""

from collections.abc import Iterator

from pydantic import Field

from pipeline.launch.policy import PolicyConfig
from pipeline.publication.gates.attacks import AttackEvidence, of_attacks
from pipeline.publication.gates.gate import none_of
from pipeline.publication.gates.guarantee import GuaranteeEvidence, of_the_guarantee
from pipeline.publication.gates.utility import UtilityEvidence, of_utility
from reports.disclosure.document import DecisionBlock, GateResult

# Its statement about local discovery, with or without a total over a device's messages.
_COVERED = "each spends from a budget, of a device or, in local word discovery, of a typed word"
_REMADE = "each is made again from releases, public text and the launch file, or comes from where it says"


class Evidence(GuaranteeEvidence, AttackEvidence, UtilityEvidence):
    """Evidence for all gates."""

    ledger_problems: tuple[str, ...] | None = Field(default=None, description="problems found in the ledger")
    leaks: tuple[str, ...] | None = Field(
        default=None, description="public figures that do not follow from their source"
    )
    uncovered: tuple[str, ...] | None = Field(default=None, description="uses of private text without a guarantee")


def decide(evidence: Evidence, policy: PolicyConfig) -> DecisionBlock:
    """Check every gate; launch only if all pass.

    Guarantee: a launch has device-level rho at most ``policy.max_rho`` by two accountants, and epsilon over all its
    releases at most ``policy.max_total_epsilon``; it takes the population to at most
    ``policy.population_max_rho`` and ``population_max_words_epsilon`` and in no window above ``policy.budget``,
    kept to the participation that the accounting assumed, and added all the accounted noise to its releases.
    """
    return concluded(tuple(_gates(evidence, policy)))


def concluded(gates: tuple[GateResult, ...]) -> DecisionBlock:
    """The decision that follows from the gates."""
    failed = tuple(f"{gate.title}: {gate.evidence}" for gate in gates if not gate.passed)
    if failed:
        return DecisionBlock(decision="hold", gates=gates, reasons=failed)
    return DecisionBlock(decision="launch", gates=gates, reasons=(f"all {len(gates)} gates passed",))


def _gates(evidence: Evidence, policy: PolicyConfig) -> Iterator[GateResult]:
    yield from of_the_guarantee(evidence, policy)
    yield from of_attacks(evidence, policy)
    yield from of_utility(evidence, policy)
    if policy.cover_everything:
        yield none_of("covered", "uses of private text", evidence.uncovered, _COVERED)
    yield none_of("sources", "public figures and their sources", evidence.leaks, _REMADE)
    yield none_of("ledger", "privacy ledger", evidence.ledger_problems, "the ledger is whole")
