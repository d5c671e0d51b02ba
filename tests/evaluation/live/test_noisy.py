"""Metrics of a live experiment from noisy sums: coverage, the split of devices, days, and the audit's own reading."""

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from evaluation.audit.released.live import live_audit
from evaluation.live import devices, noisy
from evaluation.live.compare import MISMATCH
from evaluation.live.logs import CONTROL, DEVICE_SCHEMA, TREATMENT
from evaluation.noisy.questions import WORDS, Sums
from federated.counts.bounded_sum import released_sum
from pipeline.experiments.audit import cells_of, rows_of
from pretrain.randomness.noise import seeded_key
from tests.helpers.audits.live_logs import FIRST, WRONG, device_logs, table, written

FEATURES = ("NWP",)


def released(folder: Path, logs: pa.Table, days: int, noise_multiplier: float, seed: int) -> np.ndarray:
    """The release of some logs."""
    read = devices.read([written(logs, folder / "logs.parquet")], FIRST, days)
    clip_norm, size = noisy.layout(FEATURES).clip_norm, noisy.size(FEATURES, days)
    each = noisy.contributions(read, FEATURES)
    return released_sum(each, size, noise_multiplier, seeded_key(seed), "experiment", clip_norm)


def test_without_much_noise_metrics_are_those_of_the_logs(tmp_path: Path):
    logs = device_logs(600, 2, 1, words=500.0, share=0.4)
    arms = noisy.read(released(tmp_path, logs, 2, 2.0**-20, 1), FEATURES, 2, 2.0**-20)
    seen = noisy.compare(arms, FEATURES, 0.4)
    per_device = logs.group_by(["device", "arm"]).aggregate([("picked", "sum"), ("shown", "sum")])
    rate = np.array(per_device["picked_sum"]) / np.array(per_device["shown_sum"])
    treated = np.array(per_device["arm"]) == TREATMENT
    means = {row.arm: row.estimate.value for row in seen.arms if row.metric == "prate"}
    # At its own rates, whatever it typed; a device above the bound weighs a little less.
    assert means[TREATMENT] == pytest.approx(rate[treated].mean(), rel=0.02)
    assert means[CONTROL] == pytest.approx(rate[~treated].mean(), rel=0.02)
    assert arms[TREATMENT].devices == pytest.approx(treated.sum(), rel=0.02)
    assert arms[CONTROL].day_T == pytest.approx((~treated).sum(), rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("noise_multiplier", [2.0**-20, 2.0])
def test_intervals_of_the_change_cover_it_as_often_as_they_say(tmp_path: Path, noise_multiplier: float):
    """Equal arms, so the change is 0; 1 to 9 misses of 100 are within two standard deviations of 95%."""
    missed, runs = dict.fromkeys(("prate", "words_modified", "words_per_minute"), 0), 100
    for seed in range(runs):
        logs = device_logs(1_000, 1, seed)
        arms = noisy.read(released(tmp_path, logs, 1, noise_multiplier, seed), FEATURES, 1, noise_multiplier)
        for row in noisy.compare(arms, FEATURES, 0.5).differences:
            if row.metric in missed:
                assert row.relative is not None
                missed[row.metric] += not row.relative.low <= 0 <= row.relative.high
    assert all(1 <= misses <= 9 for misses in missed.values()), missed


def counting(devices_: float, deviation: float) -> noisy.ArmSums:
    return noisy.ArmSums(Sums({WORDS: devices_}, {WORDS: deviation}), np.empty(0), 0.0)


def test_a_split_as_planned_is_stopped_as_seldom_as_it_says():
    rng, share, deviation, runs = np.random.default_rng(3), 0.05, 60.0, 20_000
    treated = rng.binomial(20_000, share, runs)
    noise = deviation * rng.standard_normal((2, runs))
    new, old = treated + noise[0], 20_000 - treated + noise[1]
    chances = [
        noisy.sample_ratio(counting(one, deviation), counting(other, deviation), share).chance
        for one, other in zip(new, old, strict=True)
    ]
    for level in (0.05, 0.01):
        assert np.mean(np.array(chances) < level) == pytest.approx(level, abs=4 * math.sqrt(level / runs))
    assert noisy.sample_ratio(counting(1_350.0, deviation), counting(18_650.0, deviation), share).chance < MISMATCH


def test_a_day_without_rows_is_seen_where_the_noise_allows(tmp_path: Path):
    least = noisy.least_devices(2.0, 3)
    logs = device_logs(3 * least, 3, 4)
    lost = pc.and_(pc.equal(logs["day"], FIRST), pc.equal(logs["arm"], CONTROL))
    arms = noisy.read(released(tmp_path, logs.filter(pc.invert(lost)), 3, 2.0, 4), FEATURES, 3, 2.0)
    assert noisy.missing_days(arms[CONTROL]).tolist() == [True, False, False]
    assert noisy.missing_days(arms[TREATMENT]).tolist() == [False, False, False]


def test_release_and_audit_leave_out_the_same_devices(tmp_path: Path):
    """Every impossible row, a device twice and one in both arms: an honest release passes whatever its logs hold."""
    odd = [{"device": f"odd {number}", **wrong} for number, wrong in enumerate(WRONG)]
    odd += [{"device": "twice"}, {"device": "twice"}, {"device": "both"}]
    odd += [{"device": "both", "day": FIRST.replace(day=3), "arm": "treatment"}, {"device": None}, {"day": None}]
    logs = pa.concat_tables([device_logs(30, 2, 6), table({"device": "fine"}, *odd)]).cast(DEVICE_SCHEMA)
    released_U = released(tmp_path, logs, 2, 0.5, 6)
    rows = rows_of([tmp_path / "logs.parquet"], FIRST, 2)
    clip_norm = noisy.layout(FEATURES).clip_norm
    verdicts = live_audit(released_U, rows, cells_of(FEATURES, 2), 0.5, clip_norm, seeded_key(6), "files", "files")
    assert all(verdict.passed for verdict in verdicts)


def test_nobody_at_all_is_no_error(tmp_path: Path):
    released_U = released(tmp_path, table({"device": None}), 2, 0.5, 7)
    seen = noisy.compare(noisy.read(released_U, FEATURES, 2, 0.5), FEATURES, 0.5)
    assert not seen.differences
    rows = rows_of([tmp_path / "logs.parquet"], FIRST, 2)
    clip_norm = noisy.layout(FEATURES).clip_norm
    verdicts = live_audit(released_U, rows, cells_of(FEATURES, 2), 0.5, clip_norm, seeded_key(7), "files", "files")
    assert all(verdict.passed for verdict in verdicts)
