"""Commitments to rounds: keyed cohorts, and a second run with the same digests."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from federated.rounds import commitments, kept_rounds
from federated.rounds.commitments import Commitment, commit
from federated.rounds.rule import RoundRule
from federated.train import TrainingData, Workplace, rerun
from tests.helpers.audits.audited_run import model_at_start, planted
from tests.helpers.audits.mechanism_kinds import launch_of
from tests.helpers.launches.small_run import run, stream


def of(number: int) -> Commitment:
    digests = [hashlib.sha256(f"{number} {name}".encode()).digest() for name in commitments.FIELDS]
    return Commitment(*digests)


def test_rounds_come_back_from_a_checkpoint_and_from_their_file(tmp_path: Path) -> None:
    made = tuple(of(number) for number in range(5))
    assert commitments.load(commitments.save(made)) == made
    assert commitments.load(commitments.save(())) == ()
    commitments.write(made, tmp_path / "rounds.json")
    assert commitments.read(tmp_path / "rounds.json") == made
    (tmp_path / "rounds.json").write_text('{"rounds": [{"cohort": "zz"}]}', encoding="utf-8")
    with pytest.raises(ValueError, match="holds no commitments to rounds"):
        commitments.read(tmp_path / "rounds.json")


def test_a_cohort_is_committed_under_the_key_and_the_rest_is_not() -> None:
    given = (np.array([4, 7]), np.ones(3), 0.0, np.zeros(3))
    first = commit(bytes(32), 2, *given)
    other_key, other_round = commit(b"\1" * 32, 2, *given), commit(bytes(32), 3, *given)
    assert first.cohort not in (other_key.cohort, other_round.cohort)
    assert (first.released, first.model) == (other_key.released, other_key.model)
    assert first.content(2) != first.content(3)
    assert commit(bytes(32), 2, np.array([7, 4]), *given[1:]) == first
    assert commit(bytes(32), 2, np.array([4, 7]), np.ones(3), 0.5, np.zeros(3)).released != first.released


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tree, adaptive", "banded", "blt, by the clock", "poisson, adaptive", "tree, secagg"])
def test_any_round_is_run_again_from_the_start_of_its_part(tmp_path: Path, kind: str) -> None:
    launch = launch_of(kind)
    launch = replace(launch, mechanism=launch.mechanism.model_copy(update={"rounds": 12}))
    probe = planted(model_at_start(), seed=launch.seed)
    _, done = run(launch, tmp_path, probe=probe, model=model_at_start())
    assert list(kept_rounds.starts(12)) == [2, 4, 6, 8, 10]
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    data = TrainingData(launch.devices, launch.synthetic_D, stream(8, 99))
    rule, place = RoundRule(launch.mechanism, launch.seed, launch.key), Workplace(tmp_path, launch.runtime, 1)
    arguments = (model_at_start(), data, rule, launch.device, launch.server, place, probe)
    again = dict(rerun(*arguments, [1, 7, 11]))
    assert sorted(again) == [0, 1, 6, 7, 10, 11]
    assert all(again[number] == done.commitments[number] for number in again)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_starts_cut_a_run_into_parts_of_one_size() -> None:
    for rounds in (1, 2, 7, 8, 9, 64, 2000):
        starts = kept_rounds.starts(rounds)
        assert len(starts) < kept_rounds.PARTS
        assert np.diff([0, *starts, rounds]).max() <= -(-rounds // kept_rounds.PARTS)
