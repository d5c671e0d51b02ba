"""Seeded launches compute what ``make_today.py`` recorded, on whatever machine.

Between them they make every release: words found locally or by an aggregator, counts beside training and alone,
training, evaluation. What a processor's low bits may move is compared to the digits that they leave alone.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from pipeline.ground import settings
from pipeline.launch.config import load_kept_launch
from pipeline.run import artifacts
from pipeline.run.known import run_folder
from pipeline.run.run_dir import GIVEN, RESULT
from pipeline.stages import fine_tune
from pipeline.stages.graph import STAGES
from pipeline.verify.replay import replay_one
from pretrain.model.keyboard_lm import KeyboardLM
from reports.disclosure.document import Disclosure
from tests.golden import facts
from tests.golden.facts import Launched
from tests.golden.seeded_launch import FROZEN
from tests.helpers.reports.contradictions import contradictions

RECORDED = json.loads((Path(__file__).parent / "today.json").read_text(encoding="utf-8"))
# How near a fact must be on another processor, relative to itself and in all.
NEAR = {
    "exact": None,
    "amounts": {"rel": 1e-6},
    "losses": {"rel": 1e-4},
    # A rank among 10,000 continuations moves by a few places where low bits of the scores differ.
    "ranks": {"rel": 0, "abs": 20},
    # Lengths differ by 2e-8 of themselves and directions by 9e-7 between AVX-512 and SSE.
    "norms": {"rel": 1e-4},
    "directions": {"rel": 0, "abs": 1e-4},
    # One word of the fifty that a device may tell of, should two suggestions change places.
    "released": {"rel": 0, "abs": 0.03},
}

pytestmark = pytest.mark.slow


@pytest.fixture(params=FROZEN)
def run(request: pytest.FixtureRequest, runs: dict[str, Launched]) -> Launched:
    return runs[request.param]


@pytest.mark.parametrize("kind", NEAR)
def test_what_was_recorded_is_computed(run: Launched, kind: str) -> None:
    found, recorded = facts.select(run.found)[kind], RECORDED[run.run.name.split("-")[1]][kind]
    assert found.keys() == recorded.keys()
    if (near := NEAR[kind]) is None:
        assert found == recorded
    else:
        numbers = {name for name, value in recorded.items() if value is not None}
        assert numbers == {name for name, value in found.items() if value is not None}
        assert [found[name] for name in numbers] == pytest.approx([recorded[name] for name in numbers], **near)


def test_every_release_is_in_one_of_them() -> None:
    committed = {name.split("/")[2] for launch in RECORDED.values() for name in launch["exact"] if "/commit/" in name}
    assert committed == {"discover", "count", "fine_tune", "ab_test"}
    assert {launch["exact"]["decision"] for launch in RECORDED.values()} == {"launch", "hold"}


def test_every_stage_opens_what_the_list_of_stages_says(runs: dict[str, Launched]) -> None:
    """Of others nothing, in any launch; what it needs in each where it releases something; the rest in one at least."""
    never = {(name, other) for name, stage in STAGES.items() for other in stage.opens}
    for launch in runs.values():
        for path in sorted((launch.run / "public").glob(f"*/{RESULT}")):
            record = json.loads(path.read_text(encoding="utf-8"))
            stage = STAGES[record["stage"]]
            opened = {name.partition("/")[0] for name in record["inputs"]} - {GIVEN}
            released = not stage.spends or record["ledger"].keys() & {"reserve", "reuse"}
            assert set(stage.needs if released else ()) <= opened <= set(stage.opens), stage.name
            never -= {(stage.name, other) for other in opened}
    # An approval covers the record of every stage, and none of these launches asks for one.
    assert {name for name, _ in never} <= {"publish"}


def test_a_network_that_ships_alone_beside_counts_begins_with_the_start_that_they_moved(
    runs: dict[str, Launched],
) -> None:
    starts = {name: launch.run / "public" / "fine_tune" / "start.safetensors" for name, launch in runs.items()}
    assert {name for name, path in starts.items() if path.is_file()} == {"central"}
    moved, public = (
        np.concatenate([weights.ravel() for _, weights in sorted(load_file(path).items())])
        for path in (starts["central"], runs["central"].run / "public" / "adapt" / "model.safetensors")
    )
    assert 0.1 < np.linalg.norm(moved - public) / np.linalg.norm(public) < 10


def test_verify_moves_the_start_again(runs: dict[str, Launched], monkeypatch: pytest.MonkeyPatch) -> None:
    home, folder = runs["central"].home, runs["central"].run
    monkeypatch.setenv("TACIT_HOME", str(home))
    monkeypatch.chdir(home)
    here, config = settings.load(), load_kept_launch(folder / "public" / "launch" / "launch.json")
    run = run_folder(here, folder.name)
    record = run.record("fine_tune")
    assert record is not None
    assert replay_one("fine_tune", config, run, here, record, of_this_code=True).passed
    # Another text than that of the counts has moved the start that training and record agree on.
    monkeypatch.setattr(fine_tune, "moved_start", lambda ctx, text: scaled(artifacts.model(ctx, "adapt")))
    found = replay_one("fine_tune", config, run, here, record, of_this_code=True)
    assert found.passed is False
    assert "of the way that counts move the start lies between it and a second run" in found.detail


def scaled(model: KeyboardLM) -> KeyboardLM:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 1.01
    return model


def test_what_was_released_is_shown_to_be_what_it_should_be(seeded: Launched) -> None:
    """By the whole pipeline: another process draws the noise of a restarted BLT with adaptive clipping again."""
    assert seeded.found["gate/released/passed"] is True
    assert seeded.found["gate/audit_power/passed"] is True


def test_its_report_contradicts_itself_nowhere(run: Launched) -> None:
    content = (run.run / "public" / "report" / "disclosure.json").read_bytes()
    assert contradictions(Disclosure.model_validate_json(content)) == []
