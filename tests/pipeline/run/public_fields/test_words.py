"""Central discovery under neighbouring text with its releases held fixed: what the stage states is the same.

Evaluation under a budget has the same test beside its code (``test_nothing_else_of_the_devices_leaves``).
"""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from discovery.central import forms, total, weighted_gaussian
from discovery.config import CentralConfig
from pipeline.ground.settings import Settings
from pipeline.run import artifacts
from pipeline.run.run_dir import RunDir
from pipeline.run.stage import StageContext
from pipeline.stages.discover import discover
from pretrain.text.vocabulary import SPECIALS, Vocabulary
from tests.helpers.launches.pipeline_launch import launch_config

BASE = Vocabulary((*SPECIALS, "see", "you", "soon"))
OTHERS = [["see", "haha", "you", f"own{device}"] for device in range(59)]
CENTRAL = CentralConfig(kind="central", noise_multiplier=1.5, words_per_device=5, delta=1e-6)
PUBLIC_NUMBERS = (int, float)


class Replay:
    """Releases as they were made the first time, and what public numbers each was asked with."""

    def __init__(self) -> None:
        self.made: list[object] = []
        self.asked: list[list[object]] = []

    def once(self, release: Callable[..., object]) -> Callable[..., object]:
        def released(*given: object, **more: object) -> object:
            number = len(self.asked[-1])
            self.asked[-1].append([each for each in given if isinstance(each, PUBLIC_NUMBERS)])
            if len(self.asked) == 1:
                self.made.append(release(*given, **more))
            return self.made[number]

        return released


@pytest.fixture
def world(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], tuple[dict, bytes]]:
    """The stage's result and its words where the last of sixty devices typed these words."""
    config = launch_config().model_copy(update={"discovery": CENTRAL})
    replay = Replay()
    monkeypatch.setattr(artifacts, "vocabulary", lambda ctx, stage: BASE)
    for module, name in ((weighted_gaussian, "release"), (total, "noisy_total"), (forms, "noisy_forms")):
        monkeypatch.setattr(module, name, replay.once(getattr(module, name)))

    def stated(last: list[str]) -> tuple[dict, bytes]:
        store = SimpleNamespace(typed_words={"train": [*OTHERS, last]}.__getitem__)
        monkeypatch.setattr(artifacts, "store", lambda ctx: store)
        replay.asked.append([])
        ctx = StageContext(
            config, RunDir(settings.runs_dir, f"launch-{len(replay.asked)}"), settings, "discover", b"k" * 32
        )
        result = discover(ctx).model_dump(mode="json")
        assert replay.asked[-1] == replay.asked[0], "a release was asked with another public number"
        return result, (ctx.private / "words.json").read_bytes()

    return stated


def test_nothing_that_discovery_states_tells_neighbours_apart(world: Callable[[list[str]], tuple[dict, bytes]]) -> None:
    true = world(["see", "haha", "own59"])
    assert true[0]["words_found"] == 1
    for last in ([], ["haha"], ["never", "before"]):
        assert world(last) == true, last
