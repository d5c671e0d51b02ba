"""The release of evaluation is made once: a retry, other sums or another champion change nothing of it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evaluation.noisy.questions import CLIP_NORM, TYPING_CLIP_NORM
from federated.counts.bounded_sum import MOST_DEVICES
from pipeline.ground import settings
from pipeline.publication.registry import PublishedModel
from pipeline.releases.evaluation import RELEASED
from pipeline.run.run_dir import RunDir
from pipeline.run.stage import StageContext
from pipeline.stages.kept_release import STREAM, ReleaseFile
from pretrain.randomness.noise import FIXED_POINT, gaussian, seeded_key
from tests.helpers.launches.pipeline_launch import launch_config

Z, SIZE = 1.5, 4
THEN, NOW = (
    {
        "NWP": PublishedModel("keyboard-en-US-NWP", version, "earlier", "d" * 64),
        "OTF": PublishedModel("keyboard-en-US-OTF", version - 2, "earlier", "d" * 64),
    }
    for version in (3, 4)
)


@pytest.fixture
def ctx(tmp_path: Path) -> StageContext:
    return context(tmp_path)


def context(tmp_path: Path, **ab_test: object) -> StageContext:
    config = launch_config(evaluation={"noise_multiplier": Z}, ab_test={"buckets": 5, **ab_test})
    here = settings.load({"TACIT_HOME": str(tmp_path)})
    return StageContext(config, RunDir(tmp_path, "launch-1"), here, "ab_test", seeded_key(4))


def kept_by(ctx: StageContext) -> ReleaseFile:
    return ReleaseFile(ctx.private / RELEASED)


def vectors(value: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    yield np.arange(SIZE), np.full(SIZE, value)


@pytest.mark.parametrize(("words", "clip_norm"), [(0, CLIP_NORM), (100, TYPING_CLIP_NORM)])
def test_the_sums_have_the_launch_file_s_noise(tmp_path: Path, words: int, clip_norm: float) -> None:
    ctx = context(tmp_path, session_words=words)
    released = kept_by(ctx).release(ctx.config, ctx.noise_key, THEN, 1)(SIZE, lambda: vectors(0.1))
    noise = clip_norm * np.rint(Z * gaussian(seeded_key(4), STREAM, 0, SIZE) * FIXED_POINT) / FIXED_POINT
    np.testing.assert_allclose(released - noise, 0.1, atol=1e-5)


def test_other_sums_never_get_the_same_noise(ctx: StageContext) -> None:
    first = kept_by(ctx).release(ctx.config, ctx.noise_key, THEN, 1)(SIZE, lambda: vectors(0.1))
    asked = []
    retry = kept_by(ctx)
    again = retry.release(ctx.config, ctx.noise_key, NOW, 1)(SIZE, lambda: asked.append(1) or vectors(0.4))
    np.testing.assert_array_equal(first, again)
    assert asked == [], "nobody is asked twice"
    # What users had when it was made, whoever was published since.
    assert retry.champions("NWP") == THEN
    path = ctx.private / "released.json"
    assert path.stat().st_mode & 0o777 == 0o600
    kept = json.loads(path.read_text("utf-8"))
    assert (kept["champion"]["version"], kept["others"]["OTF"]["version"]) == (3, 1)
    # As it was kept before a launch had several features.
    del kept["others"]
    path.write_text(json.dumps(kept), "utf-8")
    assert retry.champions("NWP") == {"NWP": THEN["NWP"]}


def test_a_finished_launch_is_derived_from_its_devices(ctx: StageContext) -> None:
    first = kept_by(ctx).release(ctx.config, ctx.noise_key, {}, 1)(SIZE, lambda: vectors(0.1))
    again = ReleaseFile(None)
    np.testing.assert_array_equal(first, again.release(ctx.config, ctx.noise_key, {}, 1)(SIZE, lambda: vectors(0.1)))
    assert not np.array_equal(first, again.release(ctx.config, ctx.noise_key, {}, 1)(SIZE, lambda: vectors(0.2)))
    assert again.champions("NWP") is None
    assert kept_by(ctx).champions("NWP") == {}, "nothing was published then"


def test_vectors_are_made_after_the_noise(ctx: StageContext, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> np.ndarray:
        raise ArithmeticError("no noise")

    monkeypatch.setattr("pretrain.randomness.noise.gaussian", broken)
    asked = []
    with pytest.raises(ArithmeticError, match="no noise"):
        kept_by(ctx).release(ctx.config, ctx.noise_key, {}, 1)(SIZE, lambda: asked.append(1) or vectors(0.1))
    assert asked == []


def test_more_devices_than_a_sum_holds_are_refused_before(ctx: StageContext) -> None:
    with pytest.raises(ValueError, match="count at most"):
        kept_by(ctx).release(ctx.config, ctx.noise_key, {}, MOST_DEVICES + 1)
    other = replace(ctx, key=seeded_key(5))
    assert not (other.private / "released.json").exists()
