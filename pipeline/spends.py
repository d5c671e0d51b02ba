"""What the spending stages reserve before they run: worst cases, without a look at private data."""

from collections.abc import Mapping

from discovery.config import CentralConfig
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
    """The device-level guarantee of a whole launch: training, with counts and central words where there are any."""

    rho: float
    mu: float
    delta: float
    epsilon: float
    epsilon_pld: float


def launch_loss(config: LaunchConfig, run: RunDir) -> Loss:
    """What one device loses to a launch that has trained, from what its stages state.

    Guarantee: training, counts and central words are Gaussian releases on the same devices, each chosen in the light
    of those before; see ``composition.compose``. What may fail of them is taken off delta. With training alone it is
    that of training, number for number.

    Raises:
      StageInputMissing: it has not trained, or not released something else that it was asked for.
    """
    trained, rhos, failure = run.result("fine_tune"), [], 0.0
    if config.central_discovery is not None:
        words = run.result("discover")
        rhos.append(words["rho"])
        failure = words["failure"]
    if config.counts is not None:
        rhos.append(run.result("count")["counts"]["rho"])
    if not rhos:
        return Loss.model_validate({name: trained[name] for name in Loss.model_fields})
    delta = trained["delta"]
    together = compose((*rhos, trained["rho"]), [delta - failure])
    return Loss(
        rho=together.rho,
        mu=together.mu,
        delta=delta,
        epsilon=together.epsilon[delta - failure],
        epsilon_pld=together.epsilon_pld[delta - failure],
    )


def planned_discovery(config: LaunchConfig, run: RunDir) -> Spend:
    """The local guarantee of one message, or what a central discovery costs a device; neither depends on who answers.

    The first spend of a launch: words for a model that a rehearsal found not worth training are not asked for.

    Raises:
      ValueError: a rehearsal of exactly this run says that it does not pay.
      StageInputMissing: the plan, which knows every refusal that can be known, has not been made.
    """
    require_worth(config, run.root)
    if run.record("plan") is None:
        raise StageInputMissing(f"{run.launch_id}: stage 'plan' has not finished; it comes before anything is spent")
    if isinstance(config.discovery, CentralConfig):
        return central_discovery(config.discovery)
    return discovery(config.discovery.epsilon0, "local, planned")


def discovery(epsilon0: float, note: str) -> Spend:
    """The ledger entry of a local discovery: local epsilon of one typed word."""
    return Spend(unit="item", adjacency="swap", rho=None, epsilon=epsilon0, delta=0.0, note=note)


def central_discovery(config: CentralConfig) -> Spend:
    """The ledger entry of a central discovery: approximate zCDP of one device, known exactly beforehand.

    Guarantee: that of ``discovery.central.select.select``; epsilon at ``delta`` by the exact Gaussian curve at what of
    it the threshold's failure leaves (the hockey-stick divergence of the two adds up, Gopi et al. 2020, theorem 5.1).
    """
    epsilon = epsilon_of_rho(config.rho, config.delta - config.failure)
    return Spend(
        unit="device",
        adjacency="zero-out",
        rho=config.rho,
        epsilon=epsilon,
        delta=config.delta,
        note="words",
        failure=config.failure,
    )


def seeded(config: LaunchConfig) -> tuple[str, ...]:
    """The fields that decide a release's random bits: the seed in tests, none where they are secret."""
    return ("seed",) if config.mechanism.randomness == "seeded" else ()


SPENDS: Mapping[str, StageSpend] = {
    "discover": StageSpend(planned=planned_discovery, inputs=("ingest_public", "ingest_private")),
    "count": StageSpend(planned=planned_counts, inputs=("ingest_public", "ingest_private", "build_vocabulary", "plan")),
    "fine_tune": StageSpend(planned=planned_training, inputs=("ingest_private", "build_vocabulary", "adapt", "plan")),
}
