"""Canaries that were taken out of training are noticed, wherever they were taken out."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from evaluation.audit import canaries
from evaluation.audit.canaries import CanarySet
from federated.train import TrainingData
from pipeline.releases.audit_trace import canaries_row
from pretrain.text.vocabulary import join_streams
from tests.helpers.launches.pipeline_launch import launch_config
from tests.helpers.launches.training_context import WORDS, text

PEOPLE, ROUNDS = 30, 5


@dataclass(frozen=True)
class Run:
    """The arguments of the row."""

    made: CanarySet
    planted: CanarySet
    data: TrainingData
    joined_TD: np.ndarray
    recorded: dict[int, np.ndarray]

    def reason(self) -> str:
        row = canaries_row(self.made, self.planted, self.data, self.joined_TD, self.recorded)
        assert row.passed is not bool(row.reason)
        return row.reason


def trained_on(devices: CanarySet) -> TrainingData:
    people = text(1)
    both = join_streams([people, devices.devices])
    return TrainingData(both, np.arange(len(both)) >= len(people), people)


def honest() -> Run:
    config = launch_config(audit={"populations": ["compliant", "stress"], "examples": [1, 8]})
    made = canaries.make(config.audit, WORDS, text(0), config.seed)
    joined_TD = np.zeros((ROUNDS, len(made.devices)), dtype=bool)
    joined_TD[1] = joined_TD[4, ::2] = True
    beside = np.array([2, 7])
    recorded = {number: np.append(beside, PEOPLE + np.flatnonzero(row)) for number, row in enumerate(joined_TD)}
    return Run(made, made, trained_on(made), joined_TD, recorded)


def none_planted(run: Run) -> Run:
    return replace(run, planted=run.made.of(()), data=trained_on(run.made.of(())), joined_TD=run.joined_TD[:, :0])


def other_words(run: Run) -> Run:
    config = launch_config(audit={"populations": ["compliant", "stress"], "examples": [1, 8]})
    return replace(run, planted=canaries.make(config.audit, WORDS, text(0), config.seed + 1))


def plain_text(run: Run) -> Run:
    """Their devices train, on a sentence that holds no canary."""
    tokens_N = run.made.devices.tokens_N.copy()
    tokens_N[tokens_N > 3] = 5
    return replace(run, data=trained_on(replace(run.made, devices=replace(run.made.devices, tokens_N=tokens_N))))


def not_in_the_records(run: Run) -> Run:
    return replace(run, recorded=run.recorded | {4: np.array([2, 7])})


def never_drawn(run: Run) -> Run:
    stress_D = run.made.stress_D
    joined_TD = run.joined_TD & ~stress_D
    recorded = {number: PEOPLE + np.flatnonzero(row) for number, row in enumerate(joined_TD)}
    return replace(run, joined_TD=joined_TD, recorded=recorded)


def test_canaries_that_trained_pass() -> None:
    assert not honest().reason()


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (none_planted, "not those of the launch file"),
        (other_words, "not those of the launch file"),
        (plain_text, "the text that trained for canaries is not theirs"),
        (not_in_the_records, "the records do not hold the rounds"),
        (never_drawn, "no canary of the population stress was in any round"),
    ],
)
def test_canaries_that_were_taken_out_fail(fault: Callable[[Run], Run], why: str) -> None:
    assert why in fault(honest()).reason()


def test_a_launch_without_canaries_of_its_own_passes() -> None:
    """The twin holds all of them."""
    nobody = honest().made.of(())
    joined_TD = np.zeros((ROUNDS, 0), dtype=bool)
    assert not Run(nobody, nobody, trained_on(nobody), joined_TD, {0: np.array([2])}).reason()
