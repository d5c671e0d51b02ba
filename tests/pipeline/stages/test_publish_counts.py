"""Publication where nothing was trained: counts alone, or with the network of public text."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig
from pipeline.run.known import run_folder
from pipeline.verify import replay
from pretrain.dictionary import binary
from pretrain.dictionary.from_model import Arm, words_of
from pretrain.model.keyboard_lm import build_model
from pretrain.model.predictor import KeyboardPredictor
from pretrain.ngrams import counted
from pretrain.text.vocabulary import BOS
from tests.helpers.launches.pipeline_launch import launch_config
from tests.helpers.launches.publishable import WORDS, launch

pytestmark = [
    # MLflow's own code uses what SQLAlchemy 2.1 deprecates, and warns about type hints of its own.
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType.*:UserWarning"),
]


@pytest.mark.slow
def test_counts_alone_are_published_and_served_without_a_network(tracked: Settings, tmp_path: Path):
    done = launch(tracked, tmp_path, counts={"noise_multiplier": 1.5, "model": "counts"})
    assert (done["published"], done["parity_max_difference"], done["int8"]) == (True, 0.0, None)
    names = ("bundle.json", "counts.npz", "disclosure.json", "en-US.combined", "en-US.dict", "truecase.json")
    assert done["files"] == [f"bundle/{name}" for name in ("README.md", *names, "vocabulary.json")]
    model, predictor = counted.load(done["bundle"] / "counts.npz"), KeyboardPredictor(done["bundle"])
    see, you = WORDS.ids(["see", "you"])
    expected_V = model.dense(np.array([[see, you]]))[0]
    np.testing.assert_array_equal(predictor.probabilities(["see", "you"]), expected_V)
    words = binary.from_bytes((done["bundle"] / "en-US.dict").read_bytes()).words
    assert {word.lower(): entry.frequency for word, entry in words.items()} == {
        word: entry.frequency for word, entry in words_of(Arm(None, model), WORDS).items()
    }
    (done["bundle"] / "counts.npz").unlink()
    with pytest.raises(ValueError, match=r"lacks counts\.npz"):
        KeyboardPredictor(done["bundle"])


@pytest.mark.slow
def test_counts_with_the_network_of_public_text_are_published_as_their_mixture(tracked: Settings, tmp_path: Path):
    done = launch(tracked, tmp_path, counts={"noise_multiplier": 1.5, "model": "start-mixture"})
    about = json.loads((done["bundle"] / "bundle.json").read_text(encoding="utf-8"))
    assert about["ships"] == "mixture"
    counts, predictor = counted.load(done["bundle"] / "counts.npz"), KeyboardPredictor(done["bundle"])
    see, you = WORDS.ids(["see", "you"])
    start = build_model(launch_config().model, len(WORDS), launch_config().seed)
    logits_1TV, _ = start(torch.tensor([[BOS, see, you]], dtype=torch.int64))
    expected_V = (
        counts.dense(np.array([[see, you]]))[0] + torch.softmax(logits_1TV[0, -1], dim=0).detach().numpy()
    ) / 2
    np.testing.assert_allclose(predictor.probabilities(["see", "you"]), expected_V, atol=1e-5)
    # What keyboards install is that arm too, and says so.
    read = binary.from_bytes((done["bundle"] / "en-US.dict").read_bytes())
    assert read.attributes["arm"] == about["dictionary_of"] == done["dictionary_of"] == "start-mixture"
    frequencies = {word.lower(): entry.frequency for word, entry in read.words.items()}
    assert frequencies == {word: entry.frequency for word, entry in words_of(Arm(start, counts), WORDS).items()}
    assert frequencies != {word: entry.frequency for word, entry in words_of(Arm(start, None), WORDS).items()}
    run = run_folder(tracked, done["run_id"])
    config = LaunchConfig.model_validate_json((run.path / "public" / "launch" / "launch.json").read_bytes())
    record = run.record("publish")
    assert record is not None
    assert replay.replay_one("publish", config, run, tracked, record, True).passed
