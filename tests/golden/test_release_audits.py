"""Audits of the releases of a whole seeded launch: its own files pass, and files that say otherwise do not."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from evaluation.audit.released.splits import TRAIN, VALIDATION
from federated.rounds import kept_rounds
from federated.rounds.kept_rounds import KeptRound
from pipeline.ground import settings
from pipeline.launch.config import load_kept_launch
from pipeline.releases.release import EVERY_RELEASE
from pipeline.releases.uses import RELEASES
from pipeline.run import artifacts
from pipeline.run.known import run_folder
from pipeline.run.stage import StageContext
from pipeline.stages.audit_releases import audited
from tests.golden.facts import Launched

pytestmark = pytest.mark.slow
MADE = {release.stage: release for release in RELEASES if release.name in ("training", "local_words", "counts")}


@pytest.fixture
def context(seeded: Launched, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], StageContext]]:
    """The launch in the context of one of its stages; its private files are put back afterwards."""
    monkeypatch.setenv("TACIT_HOME", str(seeded.home))
    monkeypatch.chdir(seeded.home)
    here = settings.load()
    config = load_kept_launch(seeded.run / "public" / "launch" / "launch.json")
    run, private = run_folder(here, seeded.run.name), seeded.run / "private"
    aside = private.with_name("private.aside")
    shutil.copytree(private, aside)
    yield lambda stage: StageContext(config, run, here, stage, None, config.population)
    shutil.rmtree(private)
    aside.replace(private)


def failed(ctx: StageContext) -> list[str]:
    verdicts = audited(ctx, MADE[ctx.stage])
    assert tuple(verdict.name for verdict in verdicts) == (*EVERY_RELEASE, *MADE[ctx.stage].proves)
    return [verdict.name for verdict in verdicts if not verdict.passed]


@pytest.mark.parametrize("stage", MADE)
def test_a_launch_passes_and_proves_what_its_releases_say(context: Callable[[str], StageContext], stage: str) -> None:
    assert failed(context(stage)) == []


def test_rounds_that_released_something_else_are_held(context: Callable[[str], StageContext]) -> None:
    ctx = context("fine_tune")
    folder = ctx.private / "rounds"
    for number in kept_rounds.numbers(ctx.config.mechanism.rounds):
        kept = kept_rounds.load(folder, number)
        kept_rounds.save(folder, number, KeptRound(kept.model_P, np.roll(kept.released_P, 1)))
    assert failed(ctx) == ["rounds"]


def test_votes_that_devices_did_not_send_are_held(context: Callable[[str], StageContext]) -> None:
    ctx = context("discover")
    (first, *_) = sorted(Path(ctx.private / "layers").glob("votes-*.npy"))
    votes_d = np.load(first)
    votes_d[[0, int(np.argmax(votes_d[1:])) + 1]] += (1, -1)
    np.save(first, votes_d)
    assert "votes" in failed(ctx)


@pytest.mark.parametrize("stage", MADE)
def test_a_validation_device_in_the_train_split_is_held_in_every_release(
    context: Callable[[str], StageContext], monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    ctx = context(stage)
    store = artifacts.store(ctx)
    split_D = np.where(store.split_D == VALIDATION, TRAIN, store.split_D).astype(np.uint8)
    monkeypatch.setattr(artifacts, "store", lambda _: replace(store, split_D=split_D))
    assert "split" in failed(ctx)


def test_rounds_of_devices_that_do_not_exist_are_held(
    context: Callable[[str], StageContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their text cannot be read: the audit ended in an IndexError, and no verdict was left."""
    monkeypatch.setattr(
        "federated.participation.records.load_records", lambda path, rounds: Cohorts({0: np.array([10**6])})
    )
    verdicts = audited(context("fine_tune"), MADE["fine_tune"])
    assert [verdict.name for verdict in verdicts if not verdict.passed] == ["cohorts"]
    assert {verdict.name for verdict in verdicts} < {*EVERY_RELEASE, *MADE["fine_tune"].proves}, "others are missing"


@dataclass(frozen=True)
class Cohorts:
    """Recorded devices of rounds."""

    cohorts: dict[int, np.ndarray]
