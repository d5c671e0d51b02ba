"""What the spending stages reserve before they run: worst cases from the configuration alone."""

from collections.abc import Mapping

from federated import accounting
from pipeline.config import LaunchConfig
from pipeline.stage import Spend, StageSpend


def planned_training(config: LaunchConfig) -> Spend:
    """The mechanism at its enforced limits."""
    mechanism = config.mechanism
    worst = accounting.guarantee(
        mechanism, mechanism.rounds, mechanism.min_sep, mechanism.max_participations, (mechanism.delta,)
    )
    return training(worst, mechanism.delta, f"{mechanism.kind}, planned")


def training(reached: accounting.Guarantee, delta: float, note: str) -> Spend:
    """A device-level spend."""
    return Spend(
        unit=reached.unit,
        adjacency=reached.adjacency,
        rho=reached.rho,
        epsilon=reached.epsilon[delta],
        delta=delta,
        note=note,
    )


def planned_discovery(config: LaunchConfig) -> Spend:
    """The local guarantee of one message; it does not depend on who answers."""
    return discovery(config.discovery.epsilon0, "local, planned")


def discovery(epsilon0: float, note: str) -> Spend:
    """An item-level spend."""
    return Spend(unit="item", adjacency="swap", rho=None, epsilon=epsilon0, delta=0.0, note=note)


SPENDS: Mapping[str, StageSpend] = {
    "discover": StageSpend(planned=planned_discovery, inputs=("ingest_public", "ingest_private")),
    "fine_tune": StageSpend(planned=planned_training, inputs=("ingest_private", "build_vocabulary", "adapt")),
}
