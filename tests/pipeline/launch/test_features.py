"""A keyboard that follows a bundle's settings does what the comparison judged."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from evaluation.arms.arm import neural
from evaluation.arms.held_out import HeldOut
from evaluation.comparison.results import ComposeSetting
from evaluation.keyboard import script as keystrokes
from evaluation.keyboard import sessions, strip, typist
from evaluation.keyboard.layouts import keyboard
from pipeline.launch import features
from pretrain.config import ModelConfig
from pretrain.dictionary.content import frequency
from pretrain.dictionary.from_model import Arm, word_scores, words_of
from pretrain.model import export
from pretrain.model.keyboard_lm import KeyboardLM, build_model
from pretrain.model.predictor import KeyboardPredictor
from pretrain.text import vocabulary
from pretrain.text.vocabulary import SPECIALS, UNK
from pretrain.writing import truecasing
from tests.helpers.launches.published import list_files
from tests.helpers.text import typed_text

THRESHOLD = -3.1
WORDS = typed_text.vocabulary()
ROW = ComposeSetting("private", THRESHOLD, 0.1, 0.06, "rate")


def opinionated() -> KeyboardLM:
    model = build_model(ModelConfig(embedding_dim=8, hidden_dim=12, tied=False), len(WORDS), 3)
    model.output.data *= 40.0
    return model


def comparison(folder: Path, *rows: ComposeSetting) -> Path:
    path = folder / "comparison.json"
    path.write_text(json.dumps({"compose": [vars(row) for row in rows]}), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    model = opinionated()
    export.export_onnx(model, folder / "model.onnx")
    vocabulary.save(WORDS, folder / "vocabulary.json")
    truecasing.save({}, folder / "truecase.json")
    rows = replace(ROW, arm="start", threshold_nats=-1.0), ROW
    compose = features.compose_settings(comparison(folder, *rows))
    stated = features.write(("NWP", "SC", "OTF"), Arm(model, None), compose, folder, "network")
    list_files(folder, locale="en-US", features=stated)
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> HeldOut:
    return typed_text.text(tmp_path_factory.mktemp("text"))


def test_the_bundle_says_what_the_comparison_used(bundle: Path, tmp_path: Path) -> None:
    stated = json.loads((bundle / "bundle.json").read_text(encoding="utf-8"))["features"]
    assert stated["NWP"] == {"suggestions": strip.SHOWN, "history_weight": 0.2, "network_weight": 1.0}
    assert stated["SC"] == {"threshold_nats": THRESHOLD, "phrase_words": 2, "equal": "rate", "trigger_rate": 0.06}
    assert stated["OTF"] == {"weight": 1.0, "spelling_nats": 2.5, "word_scores": "word_scores.npy"}
    # A launch's bundle is for its features alone.
    for feature in ("NWP", "OTF"):
        folder = tmp_path / feature
        folder.mkdir()
        alone = features.write((feature,), Arm(opinionated(), None), (), folder, "mixture")
        assert set(alone) == {feature}
        assert [path.name for path in folder.iterdir()] == (["word_scores.npy"] if feature == "OTF" else [])
    with pytest.raises(ValueError, match="no threshold for phrases"):
        features.write(("SC",), Arm(opinionated(), None), (), tmp_path, "network")


def test_phrases_are_those_of_the_sessions(bundle: Path, text: HeldOut) -> None:
    arm, predictor = neural(opinionated()), KeyboardPredictor(bundle)
    offered = []
    for start, length in list(zip(text.starts_S, text.lengths_S, strict=True))[:25]:
        said = [text.spellings[number] for number in text.word_P[start : start + length]]
        log_probs_1V, state = arm.start([np.empty(0, np.int64)])
        for place, word in enumerate(said):
            (sure,), (phrase,) = sessions.sureness(arm, log_probs_1V, state, -50.0)
            assert abs(sure - THRESHOLD) > 1e-4, "the graph is float32"
            expected = [WORDS.words[index] for index in phrase] if sure >= THRESHOLD else []
            got = predictor.phrase(" ".join(said[:place]) + " ")
            assert [each.lower() for each in got] == expected
            offered.append(bool(got))
            log_probs_1V, state = arm.step(WORDS.ids([word]).astype(np.int64), state)
    assert 0.05 < np.mean(offered) < 0.95


def test_a_silent_arm_stays_silent(bundle: Path, tmp_path: Path) -> None:
    for path in bundle.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    about = json.loads((bundle / "bundle.json").read_text(encoding="utf-8"))
    about["features"]["SC"]["threshold_nats"] = None
    (tmp_path / "bundle.json").write_text(json.dumps(about), encoding="utf-8")
    assert KeyboardPredictor(tmp_path).phrase("see ") == []
    del about["features"]["SC"], about["features"]["OTF"]
    (tmp_path / "bundle.json").write_text(json.dumps(about), encoding="utf-8")
    with pytest.raises(ValueError, match="not published for SC"):
        KeyboardPredictor(tmp_path).phrase("see ")
    with pytest.raises(ValueError, match="not published for OTF"):
        KeyboardPredictor(tmp_path).reading("", "se", {"se": 0.0})


def test_readings_are_those_that_the_simulated_keyboard_commits(bundle: Path, text: HeldOut) -> None:
    """At the start of each sentence, where the context is the same whatever was committed."""
    prepared = keystrokes.prepare(text, WORDS, "en-US", typist.SLOPPY, 3)
    session, predictor = sessions.simulate(prepared, text, neural(opinionated())), KeyboardPredictor(bundle)
    characters = keyboard(
        "en-US", "".join({*"".join(text.spellings), *"".join(WORDS.words[len(SPECIALS) :])})
    ).characters
    corrected = literal_kept = 0
    for word in text.starts_S:
        if session.how_P[word] != strip.TYPED or session.noticed_P[word]:
            continue
        touched = prepared.literal_T[prepared.touches_P1[word] : prepared.touches_P1[word + 1]]
        literal = "".join(characters[number] for number in touched)
        places = range(prepared.readings_P1[word], prepared.readings_P1[word + 1])
        fits = {WORDS.words[prepared.reading_id[place]]: prepared.reading_score[place] for place in places}
        fits.setdefault(literal, prepared.literal_P[word])
        got = predictor.reading("", literal, fits)
        committed = int(session.committed_P[word])
        assert got == (literal if committed == UNK else WORDS.words[committed])
        corrected += got != literal
        literal_kept += committed == UNK
    assert corrected > 3
    assert literal_kept
    with pytest.raises(ValueError, match="lacks the literal reading"):
        predictor.reading("", "qq", {"the": -1.0})


def test_word_scores_are_those_of_the_dictionary_unrounded(bundle: Path) -> None:
    model = opinionated()
    scores_V = np.load(bundle / "word_scores.npy", allow_pickle=False)
    assert (scores_V.dtype, scores_V.shape) == (np.float32, (len(WORDS),))
    np.testing.assert_array_equal(scores_V, word_scores(Arm(model, None)))
    prob_V = np.exp(scores_V.astype(np.float64))
    assert prob_V.sum() == pytest.approx(1.0, abs=1e-6)
    others = [number for number in range(len(SPECIALS)) if number != UNK]
    assert not prob_V[others].any()
    known = 1 - prob_V[UNK]
    for word, entry in words_of(Arm(model, None), WORDS).items():
        assert abs(frequency(prob_V[WORDS.index[word]] / known) - entry.frequency) <= 1, word


def test_word_scores_of_a_model_without_context_are_its_biases() -> None:
    model = build_model(ModelConfig(embedding_dim=4, hidden_dim=6, tied=False), len(WORDS), 1)
    with torch.no_grad():
        model.output.zero_()
        model.output_bias.copy_(torch.linspace(-2, 2, len(WORDS)))
    bias_V = model.output_bias.detach().double().numpy().copy()
    bias_V[[number for number in range(len(SPECIALS)) if number != UNK]] = -np.inf
    expected_V = bias_V - np.log(np.exp(bias_V).sum())
    np.testing.assert_allclose(word_scores(Arm(model, None)), expected_V, rtol=1e-5)
