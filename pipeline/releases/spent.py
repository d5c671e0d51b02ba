"""Planned and actual spends of training, and the loss of one device to all noised releases of a launch."""

import math
from collections.abc import Sequence

from federated.accounting import guarantees as accounting
from federated.accounting.composition import compose
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.entries import Spend
from pipeline.releases.local_words import LOCAL_WORDS
from pipeline.releases.release import Release, Stated
from pipeline.releases.training import TRAINING
from pipeline.releases.uses import releases
from pipeline.run.run_dir import RunDir
from pretrain.config import BEARING, Config


def planned_training(config: LaunchConfig, run: RunDir) -> Spend | None:
    """Spend of the planned mechanism at its enforced limits, from stage ``plan``; None if the launch does not train."""
    if not TRAINING.asked(config):
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
    """Spend of private training: rho and epsilon of one device."""
    return Spend(
        unit=guarantee.unit,
        adjacency=guarantee.adjacency,
        rho=guarantee.rho,
        epsilon=guarantee.epsilon[delta],
        delta=delta,
        note=note,
    )


def is_sum(config: LaunchConfig) -> bool:
    """True if a launch makes noised releases beside its training."""
    return any(release not in (LOCAL_WORDS, TRAINING) for release in releases(config))


class Loss(Config):
    """Loss of one device to the noised releases of a launch: the larger loss of its two splits.

    Attributes:
      failure: probability with which rho does not hold; included in the delta of epsilon.
    """

    rho: float
    mu: float
    delta: float
    epsilon: float
    epsilon_pld: float
    failure: float = 0.0


def spent(config: LaunchConfig, run: RunDir, *, noised: bool = False) -> dict[str, Spend]:
    """Spend of every release of a trained launch, by stage, as the stages state them.

    A reused release is included with the spend of the launch that made it, as this launch's outputs depend on it.
    Evaluation has a known spend, which counts even if the comparison failed.

    Args:
      noised: only releases that have a rho.

    Raises:
      StageInputMissing: training, or another release that the launch file asks for, has not finished.
    """
    made = [release for release in releases(config) if not noised or release is not LOCAL_WORDS]
    results = {release.stage: {} if release.certain else run.result(release.stage) for release in made}
    return {release.stage: _spent(release, config, results[release.stage]) for release in made}


def _spent(release: Release, config: LaunchConfig, result: Stated) -> Spend:
    return Spend.model_validate(result["spend"]) if result.get("spend") else release.paid(config, result)


def launch_loss(config: LaunchConfig, run: RunDir) -> Loss:
    """Loss of one device to the noised releases of a trained launch, by two accountants.

    Guarantee: releases on the same devices add up, also if a later one depends on earlier results: their rho (see
    ``composition.compose``) and their failure probabilities. A device is in one split, and contributes nothing to
    releases of another, so the larger split counts. If training is the only
    release, the loss equals that of training exactly. Locally discovered words are not included; ``releases.total``
    includes them.

    Raises:
      StageInputMissing: see ``spent``.
    """
    trained = run.result("fine_tune")
    if not is_sum(config):
        return Loss.model_validate({name: trained[name] for name in Loss.model_fields if name in trained})
    spends = spent(config, run, noised=True).values()
    splits = ([spend for spend in spends if spend.split == split] for split in BEARING)
    losses = [loss_together(split, trained["delta"]) for split in splits if split]
    return Loss.model_validate({name: max(getattr(loss, name) for loss in losses) for name in Loss.model_fields})


def loss_together(spends: Sequence[Spend], delta: float) -> Loss:
    """Total loss to noised releases on the same devices, at a delta that includes their failures.

    Raises:
      ValueError: the failures alone are more than delta.
    """
    failure = math.fsum(spend.failure for spend in spends)
    if failure >= delta:
        raise ValueError(
            f"mechanism.delta: {delta:g} is not above {failure:g}, the failure probability of the releases; raise it"
        )
    together = compose([spend.rho for spend in spends if spend.rho is not None], [delta - failure])
    (epsilon,), (second,) = together.epsilon.values(), together.epsilon_pld.values()
    return Loss(rho=together.rho, mu=together.mu, delta=delta, epsilon=epsilon, epsilon_pld=second, failure=failure)
