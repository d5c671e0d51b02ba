"""Rights of a simulation alone, whose text is nobody's."""

from evaluation.config import AbTestConfig
from federated.config.mechanism import MechanismConfig
from federated.config.population import PopulationConfig


def require_people_protected(population: PopulationConfig, mechanism: MechanismConfig, ab_test: AbTestConfig) -> None:
    """See that people's text is read under secret noise alone.

    Guarantee: people's text is never protected by a seed, which anyone can use too, nor by nothing.

    Raises:
      ValueError: with field, value and fix.
    """
    if population.simulated:
        return
    if mechanism.randomness == "seeded":
        raise ValueError(
            "mechanism.randomness: seeded, so that anyone can subtract the noise, and private_text.source is "
            f"{population.source!r}, people's text; write secure. Text that is nobody's has a source of its own, "
            "made_up_files"
        )
    if ab_test.non_private_upper_bound:
        raise ValueError(
            f"ab_test.non_private_upper_bound: true, but private_text.source is {population.source!r}: training on "
            "people's text without noise and publishing what it reaches is a release without any guarantee; set it to "
            "false, or simulate with source chitchat or synthetic"
        )
