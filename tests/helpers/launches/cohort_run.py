"""Rounds of a rule that picks devices, without any training."""

import numpy as np

from federated.participation.cohorts import Cohorts, ParticipationState
from federated.participation.observation import Observation, observe
from federated.participation.records import Records, no_records
from federated.participation.secret_sample import SampledCohorts

Rule = Cohorts | SampledCohorts


def played(rule: Rule, rounds: int) -> tuple[Records, list[ParticipationState]]:
    """Records of the rounds, and the state before each of them and after the last."""
    states, records = [rule.init()], no_records()
    for number in range(rounds):
        cohort, state = rule.draw(states[-1], number)
        states.append(state)
        records = records.add(number, cohort, state.lasted)
    return records, states


def observed(
    rule: Rule, rounds: int, promised: Rule | None = None, synthetic_D: np.ndarray | None = None
) -> Observation:
    """The rounds as ``observe`` sees them, held against the rule that was promised."""
    nobody_D = np.zeros(rule.num_devices, dtype=bool)
    return observe(played(rule, rounds)[0], rounds, promised or rule, nobody_D if synthetic_D is None else synthetic_D)
