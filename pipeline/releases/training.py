"""Federated training under DP-FTRL: the models after every round."""

from pipeline.launch.config import LaunchConfig
from pipeline.ledger.spend import Spend
from pipeline.releases.release import Outlook, Release, Stated, gaussian


def training_rho(config: LaunchConfig) -> float:
    """Worst-case cost of training for one device, within the limits that are enforced."""
    from federated import mechanisms  # scipy is slow to import

    mechanism = config.mechanism
    return mechanisms.sensitivity_squared(mechanism) / (2 * mechanism.noise_multiplier**2) if config.trains else 0.0


def _planned(config: LaunchConfig, seen: Outlook) -> Spend:
    return gaussian(seen.training_rho, config.mechanism.delta, f"{config.mechanism.kind}, planned")


def _paid(config: LaunchConfig, result: Stated) -> Spend:
    raise ValueError("fine_tune: states no spend, and is not taken over from other launches; run it again")


TRAINING = Release(
    stage="fine_tune",
    name="training",
    block="mechanism",
    asked=lambda config: config.trains,
    says=lambda config: f"{config.mechanism.kind} noise, multiplier {config.mechanism.noise_multiplier:g}",
    planned=_planned,
    paid=_paid,
    neighbour="updates replaced by zeros in every round",
    output=lambda config, whole: "the final model and, by post-processing, every noisy intermediate model",
)
