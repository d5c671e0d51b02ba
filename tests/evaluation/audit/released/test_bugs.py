"""Bugs that an audit of projections alone lets pass: each speaks against the run, and an honest run stays clean."""

from pathlib import Path

import numpy as np
import pytest

from tests.evaluation.audit.released.training_bugs import (
    IN_THE_LOOP,
    SHARED_OF_NOISE,
    SHARED_OF_ROWS,
    WHILE_IT_RUNS,
    Bug,
    looser_layers,
    without_in_round,
)
from tests.helpers.audits.audited_run import audited, failed, model_at_start, planted
from tests.helpers.launches.small_run import Launch, mechanism, run, stream

# A test launch: three rounds, 64 directions. With texts that devices have, and a round that is not full.
TINY = Launch(mechanism=mechanism(noise_multiplier=4.0, rounds=3, min_sep=2, report_goal=12), devices=stream(44, 1))
RESTARTED = Launch(
    mechanism=mechanism(noise_multiplier=4.0, rounds=6, restarts=[4], report_goal=12), devices=stream(44, 1)
)
SECURE = Launch(
    mechanism=mechanism(noise_multiplier=4.0, rounds=3, min_sep=2, report_goal=12, secagg={"bits": 32}),
    devices=stream(44, 1),
)
BY_LAYER = Launch(
    mechanism=mechanism(noise_multiplier=4.0, rounds=3, min_sep=2, report_goal=12, clipping="per-layer"),
    devices=stream(44, 1),
)
SHOWN_BY = {
    "un-noised sum to the server": "sequence",
    "clips to 1.5 norms": "canary_lengths",
    "clips to 10 norms": "canary_lengths",
    "never clips": "canary_lengths",
    "devices 1.5 times too long": "update_lengths",
    "one device in twenty sends 50 norms": "update_lengths",
    "trains on other rows": "trained_rows",
    "a tenth unrecorded": "cohorts",
    "one device four times": "trained_rows",
    "denominator of arrivals": "sequence",
    "twice in the sum": "update_lengths",
}


def with_bug(bug: Bug):
    """``small_run.run`` with a bug that is gone before the audit begins."""

    def train(*arguments: object, **named: object):
        with bug():
            return run(*arguments, **named)

    return train


@pytest.mark.slow
@pytest.mark.parametrize("launch", [TINY, RESTARTED, SECURE, BY_LAYER], ids=["tiny", "restarted", "secure", "by layer"])
def test_an_honest_run_passes_every_row(tmp_path: Path, launch: Launch) -> None:
    found = audited(launch, tmp_path)
    assert found.passed
    assert failed(found) == {}
    assert found.seed_commitment == planted(model_at_start(), seed=launch.seed).commitment
    assert max(row.least_noise for row in found.rows if row.least_noise) > 0.9
    assert min(row.least_clip for row in found.rows if row.least_clip) < 1.1


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_THE_LOOP)
def test_a_bug_of_the_loop_is_seen(tmp_path: Path, name: str) -> None:
    found = audited(TINY, tmp_path, with_bug(IN_THE_LOOP[name]))
    assert not found.passed
    assert SHOWN_BY.get(name, "noise_added") in failed(found), failed(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "row"), [("canaries left out", "canary_lengths"), ("canaries not added", "noise_added")]
)
def test_canaries_that_were_not_in_the_sum_are_seen(tmp_path: Path, name: str, row: str) -> None:
    assert row in failed(audited(TINY, tmp_path, with_bug(WHILE_IT_RUNS[name][0])))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clips to 1.5 norms", "devices 1.5 times too long"])
def test_a_bug_of_clipping_is_seen_under_secure_aggregation(tmp_path: Path, name: str) -> None:
    assert SHOWN_BY[name] in failed(audited(SECURE, tmp_path, with_bug(IN_THE_LOOP[name])))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["layers too long", "one device in twenty sends 50 norms"])
def test_a_bug_of_clipping_by_layer_is_seen(tmp_path: Path, name: str) -> None:
    """Layers that are too long are cut by the norm of all together, so both must be wrong."""
    bugs, row = {"layers too long": looser_layers(1.5)} | IN_THE_LOOP, SHOWN_BY.get(name, "canary_lengths")
    assert row in failed(audited(BY_LAYER, tmp_path, with_bug(bugs[name])))


@pytest.mark.slow
def test_a_last_round_without_noise_after_a_restart_is_seen(tmp_path: Path) -> None:
    assert "round 5" in failed(audited(RESTARTED, tmp_path, with_bug(without_in_round(5))))["noise_added"]


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARED_OF_NOISE)
def test_a_generator_that_is_wrong_is_seen(tmp_path: Path, name: str) -> None:
    """The audit draws the noise by a generator of its own, which such a fault is not in."""
    with SHARED_OF_NOISE[name]():
        assert "noise_added" in failed(audited(TINY, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARED_OF_ROWS)
def test_a_bug_that_the_audit_shares_is_seen(tmp_path: Path, name: str) -> None:
    """The audit makes rows by the same code, so it must give it one device's text at a time."""
    with SHARED_OF_ROWS[name]():
        found = failed(audited(TINY, tmp_path))
    assert set(found) == {"trained_rows"}, found


def test_canaries_change_nothing_that_devices_add(tmp_path: Path) -> None:
    """The tally is of devices alone, with canaries beside them and without."""
    _, with_canaries = run(TINY, tmp_path / "with", probe=planted(model_at_start()), model=model_at_start())
    seen = with_canaries.probe.witness
    assert not np.any(seen.missing_T)
    assert not np.any(seen.longer_T)
    assert seen.updates_T.max() <= 12
