"""What the spending stages reserve before they run: worst cases, without a look at private data."""

import math
from collections.abc import Mapping, Sequence

from discovery.config import CentralConfig
from evaluation.noisy.questions import CLIP_NORM, MOST_WORDS
from federated.accounting import guarantees as accounting
from federated.accounting.composition import compose
from federated.accounting.gaussian import epsilon_of_rho
from federated.counts.cells import START_WEIGHT
from pipeline.config import LaunchConfig
from pipeline.errors import StageInputMissing
from pipeline.rehearsed import require_worth
from pipeline.run_dir import RunDir
from pipeline.stage import Spend, StageSpend
from pretrain.config import Config
from reports.disclosure.guarantee import ReleasedEvaluation


def planned_training(config: LaunchConfig, run: RunDir) -> Spend | None:
    """The planned mechanism at its enforced limits, as the plan stage accounted it; None where nothing is trained."""
    if not config.trains:
        return None
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


def planned_votes(config: LaunchConfig, run: RunDir) -> Spend | None:
    """The one release of votes, the first of a launch that asks for it; None where it asks for none.

    Raises:
      ValueError: a rehearsal of exactly this run says that it does not pay.
    """
    if config.vote is None:
        return None
    require_worth(config, run.root)
    return votes(config.vote.rho, config.mechanism.delta)


def votes(rho: float, delta: float) -> Spend:
    """A device-level spend of one Gaussian release of votes."""
    return counts(rho, delta).model_copy(update={"note": "votes"})


def counts(rho: float, delta: float) -> Spend:
    """A device-level spend of one Gaussian release."""
    epsilon = epsilon_of_rho(rho, delta)
    return Spend(unit="device", adjacency="zero-out", rho=rho, epsilon=epsilon, delta=delta, note="counts")


def planned_evaluation(config: LaunchConfig, run: RunDir | None = None) -> Spend | None:
    """The one release about test devices; known exactly beforehand. None where they are evaluated without noise."""
    return None if config.evaluation is None else evaluated(config.evaluation.rho, config.mechanism.delta)


def evaluated(rho: float, delta: float) -> Spend:
    """A device-level spend of devices that are held out: who trains loses nothing to it."""
    return counts(rho, delta).model_copy(update={"note": "evaluation", "split": "test"})


def evaluation_block(config: LaunchConfig) -> ReleasedEvaluation | None:
    """The release about test devices, as stage and disclosure state it; None where there is none."""
    if config.evaluation is None:
        return None
    rho = config.evaluation.rho
    return ReleasedEvaluation(
        noise_multiplier=config.evaluation.noise_multiplier,
        clip_norm=CLIP_NORM,
        most_words=int(MOST_WORDS),
        rho=rho,
        epsilon=evaluated(rho, config.mechanism.delta).epsilon,
    )


class Loss(Config):
    """What one device loses to a whole launch: that of its split, whichever loses more.

    Attributes:
      failure: probability with which rho does not hold; epsilon has it in its delta.
    """

    rho: float
    mu: float
    delta: float
    epsilon: float
    epsilon_pld: float
    failure: float = 0.0


def is_sum(config: LaunchConfig) -> bool:
    """Whether a launch releases more of its devices than its training."""
    return bool(config.beside_training) or config.evaluation is not None


def device_spends(config: LaunchConfig, run: RunDir) -> list[Spend]:
    """Every device-level release that a launch which has trained is made of, as its stages state them.

    A release that was taken over is one of them, for what the launch that made it paid: whoever sees this launch sees
    what came of it. What evaluation costs is known, and counts as spent, also where the comparison failed.

    Raises:
      StageInputMissing: it has not trained, or not released something else that it was asked to.
    """
    asked = {"discover": config.central_discovery is not None, "count": config.counts is not None, "ab_test": False}
    asked |= {"fine_tune": config.trains, "vote": config.vote is not None}
    stated = {name: run.result(name)["spend"] for name in SPENDS if asked.get(name, True)}
    held_out = planned_evaluation(config)
    spends = [Spend.model_validate(spend or _paid_before(config, name)) for name, spend in stated.items()]
    spends += [held_out] if held_out else []
    return [spend for spend in spends if spend.unit == "device"]


def _paid_before(config: LaunchConfig, stage: str) -> Spend:
    """What the launch paid whose release this one took over: the same, or it would not have been taken over."""
    if stage == "discover" and config.central_discovery is not None:
        return central_discovery(config.central_discovery)
    if stage == "count" and config.counts is not None:
        return counts(config.counts.rho, config.mechanism.delta)
    if stage == "vote" and config.vote is not None:
        return votes(config.vote.rho, config.mechanism.delta)
    raise ValueError(f"{stage}: states no spend, and is not taken over from other launches; run it again")


def launch_loss(config: LaunchConfig, run: RunDir) -> Loss:
    """What one device loses to a launch that has trained: over votes, words, counts, training and evaluation.

    Guarantee: releases on the same devices, a later one chosen in the light of the earlier ones, add up: their rho
    (see ``composition.compose``) and the probabilities with which they fail. A device is in one split, and has nothing
    in what is released of another one, so the larger split counts. Where training is all there is, it is that of
    training, number for number.

    Raises:
      StageInputMissing: see ``device_spends``.
    """
    trained = run.result("fine_tune")
    if not is_sum(config):
        return Loss.model_validate({name: trained[name] for name in Loss.model_fields if name in trained})
    delta, splits = trained["delta"], dict[str, list[Spend]]()
    for spend in device_spends(config, run):
        splits.setdefault(spend.split, []).append(spend)
    losses = [loss_together(split, delta) for split in splits.values()]
    return Loss.model_validate({name: max(getattr(loss, name) for loss in losses) for name in Loss.model_fields})


def loss_together(spends: Sequence[Spend], delta: float) -> Loss:
    """What releases on the same devices cost together, at a delta that holds their failures.

    Raises:
      ValueError: the failures alone are more than delta.
    """
    failure = math.fsum(spend.failure for spend in spends)
    if failure >= delta:
        raise ValueError(f"mechanism.delta: {delta:g} is not above {failure:g}, with which releases fail; raise it")
    together = compose([spend.rho for spend in spends if spend.rho is not None], [delta - failure])
    (epsilon,), (second,) = together.epsilon.values(), together.epsilon_pld.values()
    return Loss(rho=together.rho, mu=together.mu, delta=delta, epsilon=epsilon, epsilon_pld=second, failure=failure)


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


# What the arms are made of; what users have is written down beside the noise's key (``pipeline.covered.release``).
_COMPARED = ("ingest_public", "ingest_private", "build_vocabulary", "adapt", "fine_tune")
_COUNTED = ("ingest_public", "ingest_private", "build_vocabulary", "plan")
SPENDS: Mapping[str, StageSpend] = {
    "vote": StageSpend(planned=planned_votes, inputs=("ingest_public", "ingest_private", "pretrain", "plan")),
    "discover": StageSpend(planned=planned_discovery, inputs=("ingest_public", "ingest_private")),
    "count": StageSpend(planned=planned_counts, inputs=_COUNTED, says={"start_weight": repr(START_WEIGHT)}),
    "fine_tune": StageSpend(planned=planned_training, inputs=("ingest_private", "build_vocabulary", "adapt", "plan")),
    "ab_test": StageSpend(planned=planned_evaluation, inputs=_COMPARED),
}
