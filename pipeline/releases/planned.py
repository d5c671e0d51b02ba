"""Worst-case cost of a launch, by its file alone: before any data is touched."""

from federated.config.population import SyntheticPopulation
from pipeline.config import LaunchConfig
from pipeline.releases import spends
from pipeline.stage import Spend


def planned(config: LaunchConfig, devices: int | None) -> dict[str, Spend]:
    """Every release of a launch by its stage, at worst, with so many devices that train; None: nobody knows."""
    return spends.planned(config, training_rho(config), devices)


def estimated_devices(config: LaunchConfig) -> int | None:
    """Devices that train, about, as far as the launch file alone tells; None where it does not."""
    if config.planning is not None:
        return config.private_text.splits.training(config.planning.population_estimate)
    if isinstance(config.private_text, SyntheticPopulation):
        return config.private_text.splits.training(config.private_text.devices)
    return None


def training_rho(config: LaunchConfig) -> float:
    """Worst-case cost of training for one device, within the limits that are enforced."""
    from federated import mechanisms  # scipy is slow to import

    mechanism = config.mechanism
    return mechanisms.sensitivity_squared(mechanism) / (2 * mechanism.noise_multiplier**2) if config.trains else 0.0
