"""The round loop with each mechanism, clipping and server optimiser: killed and resumed, and what it released."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from federated import mechanisms
from federated.accounting import guarantees as accounting
from federated.config.training import RuntimeConfig, ServerConfig
from federated.mechanisms.optimise_banded import optimise_banded
from federated.participation.records import load_records
from federated.rounds.rule import RoundRule
from tests.helpers.audits.mechanism_kinds import EVERY_KIND, KINDS, PARSER
from tests.helpers.launches.small_run import DEVICES, Killed, Launch, killed_after, run, stream

every_kind = pytest.mark.parametrize("kind", KINDS)


def launch_of(kind: str) -> Launch:
    return Launch(mechanism=PARSER.validate_python(KINDS[kind]))


@pytest.mark.slow
@every_kind
def test_killed_and_resumed_is_bitwise_the_same(kind: str, tmp_path: Path) -> None:
    launch = launch_of(kind)
    weights_P, result = run(launch, tmp_path / "whole")
    # Checkpoints are after rounds 3 and 6: what was done since is done again.
    for last in (2, 5, 7):
        with pytest.raises(Killed):
            run(launch, tmp_path / "killed", killed_after(last))
    again_P, again = run(launch, tmp_path / "killed")
    np.testing.assert_array_equal(again_P, weights_P)
    np.testing.assert_array_equal(again.synthetic_joined_TD, result.synthetic_joined_TD)
    assert again == result


@pytest.mark.slow
@every_kind
def test_the_records_bear_out_the_guarantee(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = launch_of(kind)
    if kind != "tree":
        # What both accountants make of one number is the same for all: tests/contracts/test_mechanisms.py.
        monkeypatch.setattr(accounting, "second_opinion", lambda multipliers, exact: {})
    _, result = run(launch, tmp_path)
    records = load_records(tmp_path / "participation.parquet")
    assert result.observed.violations == 0
    reached = accounting.from_records(launch.mechanism, result.observed, encoding=result.encoding)
    limits = (9, launch.mechanism.min_sep, launch.mechanism.max_participations)
    worst = accounting.guarantee_of(mechanisms.build(launch.mechanism), *limits, (1e-5,), result.encoding, twice=False)
    assert 0 < reached.rho <= worst.rho
    assert (reached.amplified is not None) == (launch.mechanism.kind == "independent")
    if KINDS[kind].get("sampling") == "fixed":
        assert set(np.bincount(records.rounds_N)) == {6}


@pytest.mark.slow
def test_secure_aggregation_changes_the_sum_by_its_rounding_alone(tmp_path: Path) -> None:
    quiet = {"noise_multiplier": 1e-6, "rounds": 7}  # later cohorts are too small to hide in
    # One device a chunk, as under secure aggregation: beside others updates have other low bits on some processors.
    alone = RuntimeConfig(chunk_devices=1)
    launches = {
        name: Launch(mechanism=PARSER.validate_python(KINDS[name] | quiet), runtime=alone)
        for name in ("tree", "tree, secagg")
    }
    (plain_P, _), (secure_P, result) = (run(launch, tmp_path / name) for name, launch in launches.items())
    assert not np.array_equal(plain_P, secure_P)
    # Three cohorts of devices a round for nine rounds with momentum: far below one clip norm, and not zero; and a round
    # may round a weight to the float32 beside it.
    rounded = 9 * 10 * 20 * result.encoding.rounding_std * 0.2 / 6
    assert np.abs(plain_P - secure_P).max() < rounded + 7 * np.spacing(np.float32(np.abs(plain_P).max()))
    assert 1 < result.encoding.inflated_norm < 1.01


def test_a_cohort_too_small_to_hide_in_sends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fields = KINDS["tree"] | {"max_participations": 1, "secagg": {"bits": 32}}
    _, result = run(Launch(mechanism=PARSER.validate_python(fields)), tmp_path)
    assert result.rounds == 9
    assert "too few devices for secure aggregation" in caplog.text


def test_devices_drop_out_of_secure_aggregation_and_a_lost_sum_releases_noise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    launch = Launch(mechanism=PARSER.validate_python(EVERY_KIND["tree, secagg, who checks in"]), devices=stream(90, 1))
    weights_P, result = run(launch, tmp_path / "one")
    # Rounds by hand: the protocol's own condition on who stays among who began.
    cohorts = RoundRule(launch.mechanism, launch.seed, launch.key).cohorts(launch.synthetic_D)
    state, lost, spared = cohorts.init(), 0, 0
    recorded = dict(load_records(tmp_path / "one" / "participation.parquet").cohorts)
    for number in range(result.rounds):
        cohort, state = cohorts.draw(state, number)
        np.testing.assert_array_equal(recorded.get(number, np.empty(0)), cohort)
        lost += not len(cohort)
        spared += bool(len(cohort) and state.dropped)
    assert lost
    assert spared
    assert caplog.text.count("noise alone is released") == lost
    again_P, _ = run(launch, tmp_path / "two")
    np.testing.assert_array_equal(again_P, weights_P)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "nesterov", "adam"])
def test_every_server_optimiser_resumes(optimizer: str, tmp_path: Path) -> None:
    launch = replace(Launch(), server=ServerConfig(optimizer=optimizer, learning_rate=0.1))
    weights_P, _ = run(launch, tmp_path / "whole")
    assert not np.array_equal(weights_P, run(Launch(), tmp_path / "momentum")[0])
    with pytest.raises(Killed):
        run(launch, tmp_path / "killed", killed_after(7))
    np.testing.assert_array_equal(run(launch, tmp_path / "killed")[0], weights_P)


def test_the_clip_norm_follows_the_updates_and_is_on_record(tmp_path: Path) -> None:
    _, result = run(launch_of("tree, adaptive"), tmp_path)
    norms = [point.clip_norm for point in result.curve]
    assert norms[0] == 0.2
    assert norms[-1] != 0.2
    assert result.curve[-1].clip_estimate != norms[-1]


def test_a_sample_is_not_the_public_seed_s(tmp_path: Path) -> None:
    launch = launch_of("poisson")
    runs = {}
    for name, changed in (
        ("ours", launch),
        ("key", replace(launch, key=bytes(32))),
        ("seed", replace(launch, seed=99)),
    ):
        run(changed, tmp_path / name)
        runs[name] = load_records(tmp_path / name / "participation.parquet")
    assert np.array_equal(runs["ours"].devices_N, runs["seed"].devices_N)
    assert not np.array_equal(runs["ours"].devices_N, runs["key"].devices_N)


def test_fewer_devices_than_accounted_for_are_refused(tmp_path: Path) -> None:
    config = PARSER.validate_python(KINDS["poisson"] | {"population": DEVICES})
    with pytest.raises(ValueError, match=r"mechanism.population: 24"):
        run(Launch(mechanism=config), tmp_path)


def test_the_noise_comes_from_the_mechanism_file(tmp_path: Path) -> None:
    launch = launch_of("banded")
    toeplitz = replace(optimise_banded(9, 3, 2, 2, "toeplitz").strategy, noise_multiplier=0.5)
    from_config, _ = run(launch, tmp_path / "config")
    from_file, _ = run(launch, tmp_path / "file", stored=toeplitz)
    assert not np.array_equal(from_config, from_file)
