"""The rule that picks each round's devices, as a mechanism's configuration asks for it.

Shape legend: D devices.
"""

from dataclasses import replace

import numpy as np

from federated.config.mechanism import MechanismConfig
from federated.participation.availability import Availability
from federated.participation.cohorts import Cohorts
from federated.participation.secret_sample import SampledCohorts


def cohorts_of(
    mechanism: MechanismConfig,
    synthetic_D: np.ndarray,
    seed: int,
    key: bytes,
    stress_D: np.ndarray | None = None,
    stress_rate: float = 0.0,
) -> Cohorts | SampledCohorts:
    """Cohorts under the timer and cap of correlated noise, or secret samples for independent noise.

    Args:
      synthetic_D: bool, devices made for the audit among all.
      key: secret; samples that amplify are drawn from it.
      stress_D: bool, which of the synthetic ones are outside timer and cap; ``stress_rate`` is their chance of a round.

    Raises:
      ValueError: fewer devices than a sampling rate was accounted for, or stress devices where there is no timer.
    """
    num_devices, stressed = len(synthetic_D), stress_D is not None and bool(np.any(stress_D))
    if stressed and (mechanism.kind == "independent" or np.any(stress_D & ~synthetic_D)):
        raise ValueError("stress_D: only synthetic devices may be outside a timer, and only where there is one")
    if mechanism.kind != "independent":
        limits = (mechanism.report_goal, mechanism.min_sep, mechanism.max_participations)
        timed = Cohorts(num_devices, *limits, seed, availability_of(mechanism, seed))
        return replace(timed, stress_D=stress_D, stress_rate=stress_rate) if stressed else timed
    if num_devices - int(np.sum(synthetic_D)) < mechanism.population:
        # Fewer devices would be sampled at a higher rate than accounted (fixed rounds), or the mean be off.
        raise ValueError(
            f"mechanism.population: {mechanism.population} devices are accounted for, but there are fewer to train on; "
            "lower it to a number that is surely reached"
        )
    rate = mechanism.report_goal / mechanism.population
    poisson = mechanism.sampling == "poisson"
    return SampledCohorts(num_devices, mechanism.report_goal, rate, poisson, key, mechanism.rounds)


def availability_of(mechanism: MechanismConfig, seed: int) -> Availability | None:
    """Who checks in and reports, as the launch file says; None for everybody, always."""
    block = None if mechanism.kind == "independent" else mechanism.availability
    return block and Availability(**block.model_dump(exclude={"timer_hours"}), seed=seed)
