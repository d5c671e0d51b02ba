"""Stated participation: right by brute force, coarse enough to be shown."""

import hashlib
from collections import Counter
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from federated import mechanisms
from federated.accounting.guarantees import guarantee_of
from federated.mechanisms.independent import Independent
from federated.participation.availability import Availability
from federated.participation.cohorts import Cohorts
from federated.participation.observation import Observation, Timetable, observe
from federated.participation.records import no_records
from federated.rounds.commitments import Commitment
from federated.secagg.bounds import plan_encoding
from pipeline.launch.config import LaunchConfig
from pipeline.stages import fine_tune as stage
from pipeline.stages.fine_tune import participation, timetable
from pretrain.config import ModelConfig
from pretrain.model.keyboard_lm import build_model
from tests.helpers.launches.pipeline_launch import RAW, launch_config

DEVICES, SYNTHETIC, ROUNDS = 3000, 40, 120


def test_histograms_are_those_of_the_records_in_tens():
    cohorts = Cohorts(DEVICES, 150, 10, 9, seed=3, availability=Availability(seed=3, round_minutes=20.0))
    state, records = cohorts.init(), no_records()
    for number in range(ROUNDS):
        cohort, state = cohorts.draw(state, number)
        records = records.add(number, cohort)
    synthetic_D = np.arange(DEVICES) >= DEVICES - SYNTHETIC
    shown = participation(observe(records, ROUNDS, cohorts, synthetic_D))
    # Brute force: device by device.
    rounds_of: dict[int, list[int]] = {}
    for number, device in zip(records.rounds_N.tolist(), records.devices_N.tolist(), strict=True):
        if device < DEVICES - SYNTHETIC:
            rounds_of.setdefault(device, []).append(number)
    joined = Counter(len(own) for own in rounds_of.values())
    apart = Counter(after - before for own in rounds_of.values() for before, after in pairwise(own))
    assert shown.participation_histogram == {str(key): count // 10 * 10 for key, count in sorted(joined.items())}
    assert shown.separation_histogram == {str(key): count // 10 * 10 for key, count in sorted(apart.items())}
    assert (shown.observed_min_sep, shown.observed_mins) == (min(apart), min(apart) - 1)
    assert shown.observed_max_participations == max(joined)
    sizes = np.bincount(records.rounds_N, minlength=ROUNDS)
    assert shown.rounds_below_goal == int(np.sum(sizes < 150)) > 0
    assert shown.mean_devices == int(sizes.mean()) // 10 * 10
    assert shown.check_ins % 10 == shown.fewest_check_ins % 10 == 0
    assert 0 < shown.fewest_check_ins < shown.check_ins < DEVICES


def test_the_rounds_hours_are_shown_in_two_digits():
    exact = Timetable(days=12.3456, shortest=3.14159, median=27.182, longest=1618.03, median_by_part=(3.2109, 1499.9))
    shown = timetable(exact)
    assert (shown.run_days, shown.shortest_minutes, shown.median_minutes) == (12, 3.1, 27)
    assert (shown.longest_minutes, shown.median_minutes_by_part) == (1600, (3.2, 1500))


def test_what_happened_is_accounted_with_its_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Fewer participations than allowed, and a coarse encoding: the stage states the guarantee of both."""
    limits = {"max_participations": 4, "secagg": {"bits": 12}, "report_goal": 5, "randomness": "seeded"}
    config = launch_config(mechanism=limits)
    seen = Observation(8, 3, 2, 2, {2: 10}, {3: 10}, 0, 0)
    encoding = plan_encoding(2000, 5, 8)
    point = SimpleNamespace(round=8, validation_recall=0.1, model_dump=lambda exclude: {"validation_recall": 0.1})
    done = SimpleNamespace(
        rounds=8,
        observed=seen,
        encoding=encoding,
        curve=[point],
        synthetic_participations=(),
        probe=None,
        commitments=(Commitment(bytes(32), bytes(32), bytes(32)),),
    )
    trained = SimpleNamespace(done=done, probe=None, model=None)
    inputs = SimpleNamespace(mechanism=mechanisms.build(config.mechanism), planted=None)
    monkeypatch.setattr(stage, "open_inputs", lambda ctx: inputs)
    monkeypatch.setattr(stage.fine_tune_workers, "train_together", lambda ctx, inputs: trained)
    for module in (stage.canaries, stage.audit_trace, stage.export):
        name = "save_model" if module is stage.export else "save"
        monkeypatch.setattr(module, name, lambda *saved: None)
    run = SimpleNamespace(result=lambda name: {"feasible": True})
    settings = SimpleNamespace(gang="")
    ctx = SimpleNamespace(
        config=config, run=run, settings=settings, public=tmp_path, private=tmp_path, before_devices=nullcontext
    )
    stated = stage.fine_tune(ctx)
    happened = (mechanisms.build(config.mechanism), 8, 3, 2, (1e-6,), encoding)
    assert stated.rho == guarantee_of(*happened, twice=False).rho
    assert stated.spend.rho == stated.rho
    assert stated.norm_inflation == encoding.inflated_norm > 1.02


@pytest.mark.parametrize(("off", "differs"), [(0.0, False), (5e-4, False), (0.002, True), (float("nan"), True)])
def test_a_start_that_counts_did_not_move_is_found(off: float, differs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another processor's rounding is no difference; text that moved it beside the counts is one."""
    size = {"embedding_dim": 8, "hidden_dim": 8, "tied": True}
    public, moved, kept = (build_model(ModelConfig(**size), 20, 1) for _ in range(3))
    with torch.no_grad():
        moved.embedding += 1.0
        kept.embedding += 1.0 + off
    monkeypatch.setattr(stage.artifacts, "model", lambda ctx, name: public)
    monkeypatch.setattr(stage.artifacts, "vocabulary", lambda ctx, name: None)
    monkeypatch.setattr(stage.artifacts, "public_streams", lambda ctx, words: (None, None))
    monkeypatch.setattr(stage, "moved_start", lambda ctx, text: moved)
    config = launch_config(counts={"noise_multiplier": 2.0, "model": "network"})
    found = list(stage.start_differences(SimpleNamespace(config=config), kept))
    assert [line.partition(":")[0] for line in found] == ["start.safetensors"] * differs


def test_a_launch_whose_counts_move_no_start_has_none_to_hold() -> None:
    start = build_model(ModelConfig(embedding_dim=8, hidden_dim=8, tied=True), 20, 1)
    for counts in (None, {"noise_multiplier": 2.0, "model": "mixture"}):
        assert not list(stage.start_differences(SimpleNamespace(config=launch_config(counts=counts)), start))


@pytest.mark.slow
@pytest.mark.parametrize("randomness", ["seeded", "secure"])
def test_a_sample_by_a_public_seed_amplifies_nothing(randomness: str) -> None:
    sampling = {"kind": "independent", "sampling": "poisson", "population": 1000, "report_goal": 10}
    mechanism = {key: value for key, value in RAW["mechanism"].items() if key in ("clip_norm", "delta")} | sampling
    raw = RAW | {"mechanism": mechanism | {"rounds": 4, "noise_multiplier": 2.0, "randomness": randomness}}
    config = LaunchConfig.model_validate(raw)
    reached = guarantee_of(Independent(2.0, "poisson", 0.01, 1000), 4, 1, 4, (config.mechanism.delta,))
    assert (stage.amplified(config, reached.amplified) is None) == (randomness == "seeded")


def climbed(leaves: list[bytes]) -> bytes:
    """A tree's root from its leaves up: neighbours join, and one without a neighbour climbs alone."""
    while len(leaves) > 1:
        pairs = [leaves[at : at + 2] for at in range(0, len(leaves), 2)]
        leaves = [hashlib.sha256(b"\x01" + b"".join(pair)).digest() if len(pair) == 2 else pair[0] for pair in pairs]
    return leaves[0]


@pytest.mark.parametrize("rounds", [1, 2, 6, 7, 13])
def test_the_root_of_the_rounds_is_that_of_rfc_6962(rounds: int) -> None:
    made = [Commitment(*(bytes([number, place]) * 16 for place in range(3))) for number in range(rounds)]
    leaves = [hashlib.sha256(b"\x00" + each.content(number)).digest() for number, each in enumerate(made)]
    assert stage.root_of_rounds(made) == climbed(leaves).hex()
    assert rounds == 1 or stage.root_of_rounds(made) != stage.root_of_rounds([*made[1:], made[0]])
