"""What the spending stages reserve before they run: worst cases, without a look at private data."""

from collections.abc import Mapping

from federated.accounting import guarantees as accounting
from federated.accounting.composition import compose
from federated.accounting.gaussian import epsilon_of_rho
from pipeline.config import LaunchConfig
from pipeline.errors import StageInputMissing
from pipeline.rehearsed import require_worth
from pipeline.run_dir import RunDir
from pipeline.stage import Spend, StageSpend
from pretrain.config import Config


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


def planned_counts(config: LaunchConfig, run: RunDir) -> Spend | None:
    """The one release of counts; known exactly beforehand. None where the launch asks for none."""
    return None if config.counts is None else counts(config.counts.rho, config.mechanism.delta)


def counts(rho: float, delta: float) -> Spend:
    """A device-level spend of one Gaussian release."""
    epsilon = epsilon_of_rho(rho, delta)
    return Spend(unit="device", adjacency="zero-out", rho=rho, epsilon=epsilon, delta=delta, note="counts")


class Loss(Config):
    """The device-level guarantee of a whole launch: training, and counts where they were asked for."""

    rho: float
    mu: float
    delta: float
    epsilon: float
    epsilon_pld: float


def launch_loss(config: LaunchConfig, run: RunDir) -> Loss:
    """What one device loses to a launch that has trained, from what its stages state.

    Guarantee: training and counts are two Gaussian releases on the same devices, the second chosen in the light
    of the first; see ``composition.compose``. Without counts it is that of training, number for number.

    Raises:
      StageInputMissing: it has not trained, or not counted although it was asked to.
    """
    trained = run.result("fine_tune")
    if config.counts is None:
        return Loss.model_validate({name: trained[name] for name in Loss.model_fields})
    delta = trained["delta"]
    together = compose((run.result("count")["counts"]["rho"], trained["rho"]), [delta])
    return Loss(
        rho=together.rho,
        mu=together.mu,
        delta=delta,
        epsilon=together.epsilon[delta],
        epsilon_pld=together.epsilon_pld[delta],
    )


def planned_discovery(config: LaunchConfig, run: RunDir) -> Spend:
    """The local guarantee of one message; it does not depend on who answers.

    The first spend of a launch: words for a model that a rehearsal found not worth training are not asked for.

    Raises:
      ValueError: a rehearsal of exactly this run says that it does not pay.
      StageInputMissing: the plan, which knows every refusal that can be known, has not been made.
    """
    require_worth(config, run.root)
    if run.record("plan") is None:
        raise StageInputMissing(f"{run.launch_id}: stage 'plan' has not finished; it comes before anything is spent")
    return discovery(config.discovery.epsilon0, "local, planned")


def discovery(epsilon0: float, note: str) -> Spend:
    """The ledger entry of discovery: local epsilon of one typed word."""
    return Spend(unit="item", adjacency="swap", rho=None, epsilon=epsilon0, delta=0.0, note=note)


def seeded(config: LaunchConfig) -> tuple[str, ...]:
    """The fields that decide a release's random bits: the seed in tests, none where they are secret."""
    return ("seed",) if config.mechanism.randomness == "seeded" else ()


SPENDS: Mapping[str, StageSpend] = {
    "discover": StageSpend(planned=planned_discovery, inputs=("ingest_public", "ingest_private")),
    "count": StageSpend(planned=planned_counts, inputs=("ingest_public", "ingest_private", "build_vocabulary", "plan")),
    "fine_tune": StageSpend(planned=planned_training, inputs=("ingest_private", "build_vocabulary", "adapt", "plan")),
}
