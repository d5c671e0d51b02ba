"""Worst-case cost of a launch, by its file alone: before any data is touched."""

from federated.config.population import SyntheticPopulation
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.spend import Spend
from pipeline.releases import uses
from pipeline.releases.release import Outlook
from pipeline.releases.training import training_rho


def planned(config: LaunchConfig, devices: int | None) -> dict[str, Spend]:
    """Every release of a launch by its stage, at worst, with so many devices that train; None: nobody knows."""
    return uses.planned(config, Outlook(training_rho(config), devices))


def estimated_devices(config: LaunchConfig) -> int | None:
    """Devices that train, about, as far as the launch file alone tells; None where it does not."""
    if config.planning is not None:
        return config.private_text.splits.training(config.planning.population_estimate)
    if isinstance(config.private_text, SyntheticPopulation):
        return config.private_text.splits.training(config.private_text.devices)
    return None
