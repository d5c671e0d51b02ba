"""Worst-case amounts that the spending stages reserve before they run, without a look at private data."""

import math
from collections.abc import Sequence

from federated.accounting import guarantees as accounting
from federated.accounting.composition import compose
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.spend import Spend
from pipeline.releases.local_words import LOCAL_WORDS
from pipeline.releases.release import Release, Stated
from pipeline.releases.training import TRAINING
from pipeline.releases.uses import releases
from pipeline.run.run_dir import RunDir
from pretrain.config import Config


def planned_training(config: LaunchConfig, run: RunDir) -> Spend | None:
    """The planned mechanism at its enforced limits, as the plan stage accounted it; None where nothing is trained."""
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
    """The ledger entry of private training: rho and epsilon of one device."""
    return Spend(
        unit=guarantee.unit,
        adjacency=guarantee.adjacency,
        rho=guarantee.rho,
        epsilon=guarantee.epsilon[delta],
        delta=delta,
        note=note,
    )


def is_sum(config: LaunchConfig) -> bool:
    """True if a launch releases more of its devices under noise than its training."""
    return any(release not in (LOCAL_WORDS, TRAINING) for release in releases(config))


class Loss(Config):
    """Loss of one device to the noised releases of a launch: that of its split, whichever loses more.

    Attributes:
      failure: probability with which rho does not hold; epsilon has it in its delta.
    """

    rho: float
    mu: float
    delta: float
    epsilon: float
    epsilon_pld: float
    failure: float = 0.0


def spent(config: LaunchConfig, run: RunDir, *, noised: bool = False) -> dict[str, Spend]:
    """Every release that a launch which has trained is made of, by its stage, as that states it.

    A release that was taken over is one of them, for what the launch that made it paid: whoever sees this launch sees
    what came of it. What evaluation costs is known, and counts as spent, also where the comparison failed.

    Args:
      noised: those alone that have a rho.

    Raises:
      StageInputMissing: it has not trained, or not released something else that it was asked to.
    """
    made = [release for release in releases(config) if not noised or release is not LOCAL_WORDS]
    results = {release.stage: {} if release.certain else run.result(release.stage) for release in made}
    return {release.stage: _spent(release, config, results[release.stage]) for release in made}


def _spent(release: Release, config: LaunchConfig, result: Stated) -> Spend:
    return Spend.model_validate(result["spend"]) if result.get("spend") else release.paid(config, result)


def launch_loss(config: LaunchConfig, run: RunDir) -> Loss:
    """Loss of one device to the noised releases of a launch that has trained, by two accountants.

    Guarantee: releases on the same devices, a later one chosen in the light of the earlier ones, add up: their rho
    (see ``composition.compose``) and the probabilities with which they fail. A device is in one split, and has nothing
    in what is released of another one, so the larger split counts. Where training is all there is, it is that of
    training, number for number. Words found locally are no part of it; ``releases.total`` has them too.

    Raises:
      StageInputMissing: see ``spent``.
    """
    trained = run.result("fine_tune")
    if not is_sum(config):
        return Loss.model_validate({name: trained[name] for name in Loss.model_fields if name in trained})
    delta, splits = trained["delta"], dict[str, list[Spend]]()
    for spend in spent(config, run, noised=True).values():
        splits.setdefault(spend.split, []).append(spend)
    losses = [loss_together(split, delta) for split in splits.values()]
    return Loss.model_validate({name: max(getattr(loss, name) for loss in losses) for name in Loss.model_fields})


def loss_together(spends: Sequence[Spend], delta: float) -> Loss:
    """Total cost of noised releases on the same devices, at a delta that holds their failures.

    Raises:
      ValueError: the failures alone are more than delta.
    """
    failure = math.fsum(spend.failure for spend in spends)
    if failure >= delta:
        raise ValueError(f"mechanism.delta: {delta:g} is not above {failure:g}, with which releases fail; raise it")
    together = compose([spend.rho for spend in spends if spend.rho is not None], [delta - failure])
    (epsilon,), (second,) = together.epsilon.values(), together.epsilon_pld.values()
    return Loss(rho=together.rho, mu=together.mu, delta=delta, epsilon=epsilon, epsilon_pld=second, failure=failure)
