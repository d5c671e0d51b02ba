"""Rounds of a whole seeded launch, challenged afterwards: honest ones are equal, forged ones are named."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np
import pytest

from federated.rounds import commitments, kept_rounds
from pipeline.ground import settings
from pipeline.launch.config import load_kept_launch
from pipeline.run.known import run_folder
from pipeline.run.stage import StageContext
from pipeline.stages.fine_tune import ROUNDS
from pipeline.verify import challenge as challenges
from pipeline.verify.challenge import challenge
from tests.evaluation.audit.released.training_bugs import other_rows, public_key, weaker
from tests.golden.facts import Launched

pytestmark = pytest.mark.slow


@pytest.fixture
def ctx(seeded: Launched, monkeypatch: pytest.MonkeyPatch) -> Iterator[StageContext]:
    """The launch; its files of training are put back afterwards."""
    monkeypatch.setenv("TACIT_HOME", str(seeded.home))
    monkeypatch.chdir(seeded.home)
    here = settings.load()
    config = load_kept_launch(seeded.run / "public" / "launch" / "launch.json")
    run = run_folder(here, seeded.run.name)
    folders = [seeded.run / half / "fine_tune" for half in ("public", "private")]
    for folder in folders:
        shutil.copytree(folder, folder.with_name("aside"))
    yield StageContext(config, run, here, "fine_tune", None, config.population)
    for folder in folders:
        shutil.rmtree(folder)
        folder.with_name("aside").replace(folder)


def asked(ctx: StageContext, *rounds: int) -> dict[str, tuple[bool | None, str]]:
    made = challenge(ctx.config, ctx.run, ctx.settings, rounds)
    return {check.id: (check.passed, check.detail) for check in made}


def test_honest_rounds_are_equal_and_nothing_is_written(ctx: StageContext) -> None:
    before = {path: path.read_bytes() for path in ctx.run.path.rglob("*") if path.is_file()}
    found = asked(ctx, 2, 6)
    assert {"root", "published", "round:2", "round:6"} <= set(found)
    assert all(passed for passed, _ in found.values()), found
    assert {path: path.read_bytes() for path in ctx.run.path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("field", commitments.FIELDS)
def test_a_round_changed_in_the_commitments_is_named_and_the_root_with_it(ctx: StageContext, field: str) -> None:
    path = ctx.public / ROUNDS
    rounds = list(commitments.read(path))
    rounds[1] = replace(rounds[1], **{field: bytes(32)})
    commitments.write(rounds, path)
    found = asked(ctx, 2)
    assert found["root"][0] is False
    assert found["round:2"] == (False, f"another {field.replace('released', 'released sum')} than was committed")


def test_a_kept_model_that_was_changed_is_named(ctx: StageContext) -> None:
    folder = ctx.private / "rounds"
    first = kept_rounds.starts(ctx.config.mechanism.rounds)[0]
    kept = kept_rounds.load_start(folder, first)
    forged = replace(kept.server, weights_P=kept.server.weights_P + 1e-3)
    arrays = {"weights": forged.weights_P, "momentum": forged.momentum_P, "second": forged.second_P}
    np.savez(folder / kept_rounds.STARTS / f"round-{first:08d}.npz", **arrays, clips=np.array(kept.clips))
    found = asked(ctx, first + 1)
    assert found[f"start:{first + 1}"] == (False, f"the model kept after round {first} is not the committed one")
    assert found[f"round:{first + 1}"][0] is False


@pytest.mark.parametrize(
    ("fault", "differs"),
    [(weaker(0.5), "released sum"), (public_key, "released sum"), (other_rows, "released sum")],
    ids=["noise", "key", "text"],
)
def test_a_root_over_forged_rounds_does_not_stand_a_challenge(
    ctx: StageContext, fault: Callable[[], AbstractContextManager[None]], differs: str
) -> None:
    """Whoever trains otherwise than the launch says commits to other rounds than an honest run makes.

    The fault is in the second run, as the first is shared: a comparison has two sides.
    """
    with fault():
        found = asked(ctx, 1)
    passed, detail = found["round:1"]
    assert passed is False
    assert f"another {differs} than was committed" in detail
    assert found["root"][0] is True


def test_elsewhere_bits_cannot_be_compared(ctx: StageContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(challenges, "processor", lambda: "another processor")
    assert all(passed for passed, _ in asked(ctx, 1).values()), "equal bits are equal anywhere"
    with weaker(0.5)():
        passed, detail = asked(ctx, 1)["round:1"]
    assert passed is None
    assert detail.startswith("cannot be compared bit by bit here (made on ")
    (ctx.private / "rounds" / "processor").write_text("00000000000000 of another kind\n", encoding="utf-8")
    passed, detail = asked(ctx, 1)["rounds"]
    assert passed is None
    assert detail.startswith("cannot be compared bit by bit here: ")


@pytest.mark.parametrize("rounds", [(0,), (7,), ()])
def test_rounds_that_never_were_are_refused(ctx: StageContext, rounds: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="give some of 1 to 6"):
        challenge(ctx.config, ctx.run, ctx.settings, rounds)
