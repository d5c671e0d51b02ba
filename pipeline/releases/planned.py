"""What a launch costs at worst, by its file alone: before any data is touched."""

import math

from federated.config.population import VALIDATION_FRACTION, SyntheticPopulation
from pipeline.config import LaunchConfig
from pipeline.releases import spends
from pipeline.stage import Spend


def planned(config: LaunchConfig, devices: int | None) -> dict[str, Spend]:
    """Every release of a launch by its stage, at worst, with so many devices that train; None: nobody knows."""
    return spends.planned(config, training_rho(config), devices)


def estimated_devices(config: LaunchConfig) -> int | None:
    """Devices that train, about, as far as the launch file alone tells; None where it does not."""
    if config.planning is not None:
        return expected_splits(config, config.planning.population_estimate)["train"]
    if isinstance(config.private_text, SyntheticPopulation):
        return expected_splits(config, config.private_text.devices)["train"]
    return None


def training_rho(config: LaunchConfig) -> float:
    """What training costs one device at worst, within the limits that are enforced."""
    from federated import mechanisms  # scipy is slow to import

    mechanism = config.mechanism
    return mechanisms.sensitivity_squared(mechanism) / (2 * mechanism.noise_multiplier**2) if config.trains else 0.0


def expected_splits(config: LaunchConfig, devices: int) -> dict[str, int]:
    """How many of a population's devices train, validate and test, about."""
    shares = {"test": config.private_text.test_fraction, "validation": VALIDATION_FRACTION}
    parts = {name: math.floor(devices * share) for name, share in shares.items()}
    return {"train": devices - sum(parts.values()), **parts}
