"""Splits by the devices' ids, made again, and who trained by them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evaluation.audit.released.splits import (
    TEST,
    TRAIN,
    VALIDATION,
    cohorts_audit,
    sampled,
    split_audit,
    splits_of,
)
from federated.config.population import VALIDATION_FRACTION, MadeUpFilePopulation, key_of
from federated.devices import store
from federated.devices.pieces import device_ids
from federated.participation.secret_sample import SampledCohorts
from pretrain.randomness.noise import seeded_key

IDS, SECRET = [f"made-up-{number}" for number in range(300)], bytes(range(32))
SPLIT_D = splits_of(IDS, "made_up_files:people", SECRET, 0.2, VALIDATION_FRACTION)
TRAINING = int(np.sum(SPLIT_D == TRAIN))


def used(split_D: np.ndarray) -> dict[int, np.ndarray]:
    return {split: np.flatnonzero(split_D == split) for split in (TRAIN, VALIDATION, TEST)}


def test_splits_are_those_of_the_store(tmp_path: Path) -> None:
    rows = [{"client_id": one, "text": "hello there", "locale": "en-US"} for one in IDS]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "people.parquet")
    paths = [str(tmp_path / "people.parquet")]
    config = MadeUpFilePopulation(
        source="made_up_files", name="people", paths=paths, test_fraction=0.2, max_words_per_device=9
    )
    folder, key = tmp_path / "store", store.split_key(key_of(config), SECRET)
    store.build_store(config, "en-US", 0, folder, key)
    shares = config.test_fraction, VALIDATION_FRACTION
    found = splits_of(device_ids(folder), key_of(config), SECRET, *shares)
    assert np.array_equal(found, store.open_store(folder).split_D)
    assert np.bincount(found, minlength=3).min() > 10


def test_those_who_train_pass() -> None:
    assert split_audit(SPLIT_D, used(SPLIT_D)).passed
    assert cohorts_audit(TRAINING + 5, [np.array([0, TRAINING - 1]), np.array([TRAINING + 4])]).passed
    assert cohorts_audit(TRAINING, []).passed


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("split", [VALIDATION, TEST])
def test_a_held_out_device_in_the_train_split_is_seen(seed: int, split: int) -> None:
    held_out = used(SPLIT_D)[split]
    stored_D = SPLIT_D.copy()
    stored_D[held_out[seed % len(held_out)]] = TRAIN
    assert not split_audit(SPLIT_D, used(stored_D)).passed
    twice = used(SPLIT_D) | {TRAIN: np.flatnonzero(stored_D == TRAIN)}
    assert not split_audit(SPLIT_D, twice).passed, "it is in its own split as well"


def test_devices_beyond_those_that_train_are_seen() -> None:
    assert not cohorts_audit(TRAINING + 5, [np.array([TRAINING + 5])]).passed
    assert not cohorts_audit(TRAINING + 5, [np.array([-1])]).passed


@pytest.mark.parametrize("size", [None, 7])
def test_a_secret_sample_is_the_key_s(size: int | None) -> None:
    """Drawn by another program than training's; by a public seed it would be others."""
    rule = SampledCohorts(TRAINING, size or 20, 0.1, size is None, SECRET, rounds=9)
    cohorts = [rule.draw(rule.init(), number)[0] for number in range(9)]
    own = [sampled(SECRET, number, TRAINING, 0.1, size) for number in range(9)]
    assert all(map(np.array_equal, cohorts, own))
    assert cohorts_audit(TRAINING, cohorts, own).passed
    seeds = [sampled(seeded_key(0), number, TRAINING, 0.1, size) for number in range(9)]
    verdict = cohorts_audit(TRAINING, seeds, own)
    assert not verdict.passed
    assert "sample" in verdict.sentence
    assert not cohorts_audit(TRAINING, [*cohorts[:8], cohorts[7]], own).passed
