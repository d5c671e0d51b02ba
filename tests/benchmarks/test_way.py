"""Paths without noise: as long as they say, within the longest step of the law, and the same after a kill."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.utility import way
from benchmarks.utility.arms import Hits
from benchmarks.utility.cell import Cell
from benchmarks.utility.crossing import judged
from benchmarks.utility.populations import People, PublicStart
from federated.planning import law
from federated.planning.gain import NOISY_WAY
from pretrain.config import ModelConfig
from pretrain.model.export import save_model
from pretrain.model.keyboard_lm import build_model
from tests.helpers.text.typed_text import stream, text, vocabulary

MODEL = ModelConfig(embedding_dim=4, hidden_dim=4, tied=True)
TRACK = way.Track(Cell("chat", 32, "train", noise=False, mechanism="blt", rounds=32, participations=4), 20.0)


@pytest.fixture
def people(tmp_path: Path) -> People:
    words = vocabulary()
    weights = tmp_path / "start.safetensors"
    save_model(build_model(MODEL, len(words), 1), weights)
    start = PublicStart(words, stream(text(tmp_path / "public"), words), weights, MODEL, 1)
    trains, tests = (stream(text(tmp_path / str(seed), 32, seed), words) for seed in (1, 2))
    return People("few", start, trains, tests)


@pytest.mark.parametrize("track", way.TRACKS, ids=lambda track: f"{track.way:.0f}")
def test_a_path_ends_where_it_says_and_no_step_is_longer_than_measured(track: way.Track) -> None:
    # Momentum of 0.9: the mean update of a round counts (1 - 0.9^left) / 0.1.
    weights = sum((1 - 0.9**left) / 0.1 for left in range(1, track.cell.rounds + 1))
    step = track.server.learning_rate * track.cell.clip
    assert step * weights == pytest.approx(track.way)
    assert track.after(track.cell.rounds, track.server) == pytest.approx(track.way)
    assert step < law.LONGEST_STRIDE
    assert track.after(64, track.server) < NOISY_WAY < track.way


@pytest.mark.slow
def test_a_killed_path_goes_on_with_the_scores_that_it_had(
    tmp_path: Path, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(way, "TRACKS", (TRACK,))
    way.go(TRACK, people, tmp_path / "whole", tmp_path, {})
    whole = (tmp_path / "way.md").read_text(encoding="utf-8")
    assert "| 32 | 20 |" in whole

    def killed(name: str, *given: Any) -> Hits:
        hits = judged(name, *given)
        if name.endswith("-16"):
            raise KeyboardInterrupt
        return hits

    monkeypatch.setattr(way, "judged", killed)
    with pytest.raises(KeyboardInterrupt):
        way.go(TRACK, people, tmp_path / "killed", tmp_path, {})
    monkeypatch.setattr(way, "judged", judged)
    assert [each.rounds for each in way.found(TRACK, people, tmp_path / "killed")] == [8, 16]
    way.go(TRACK, people, tmp_path / "killed", tmp_path, {})
    assert (tmp_path / "way.md").read_text(encoding="utf-8") == whole
    first, last = (
        np.load(tmp_path / "whole" / "hits" / "few" / f"{TRACK.name}-{done}.npz")["top1_D"] for done in (8, 32)
    )
    assert not np.array_equal(first, last), "a model that stands still has no path"
