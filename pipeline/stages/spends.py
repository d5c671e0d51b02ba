"""What the spending stages reserve before they run: worst cases, without a look at private data."""

from collections.abc import Mapping

from federated.accounting import guarantees as accounting
from pipeline.config import LaunchConfig
from pipeline.run_dir import RunDir
from pipeline.stage import Spend, StageSpend


def planned_training(config: LaunchConfig, run: RunDir) -> Spend:
    """The planned mechanism at its enforced limits, as the plan stage accounted it."""
    planned = run.result("plan")
    return Spend(
        unit="device",
        adjacency="zero-out",
        rho=planned["rho"],
        epsilon=planned["epsilon"],
        delta=planned["delta"],
        note=f"{config.mechanism.kind}, planned",
    )


def training(guarantee: accounting.Guarantee, delta: float, note: str) -> Spend:
    """The ledger entry of private training: rho and epsilon of one device."""
    return Spend(
        unit=guarantee.unit,
        adjacency=guarantee.adjacency,
        rho=guarantee.rho,
        epsilon=guarantee.epsilon[delta],
        delta=delta,
        note=note,
    )


def planned_discovery(config: LaunchConfig, run: RunDir) -> Spend:
    """The local guarantee of one message; it does not depend on who answers."""
    return discovery(config.discovery.epsilon0, "local, planned")


def discovery(epsilon0: float, note: str) -> Spend:
    """The ledger entry of discovery: local epsilon of one typed word."""
    return Spend(unit="item", adjacency="swap", rho=None, epsilon=epsilon0, delta=0.0, note=note)


SPENDS: Mapping[str, StageSpend] = {
    "discover": StageSpend(planned=planned_discovery, inputs=("ingest_public", "ingest_private")),
    "fine_tune": StageSpend(planned=planned_training, inputs=("ingest_private", "build_vocabulary", "adapt", "plan")),
}
