"""The adapter for kebbie: suggestions of a bundle, by brute force; kebbie itself is not needed."""

import pickle
from pathlib import Path

import pytest
import torch

from benchmarks.peers.kebbie_keyboard import BundleCorrector, BundleKeyboard
from pretrain.config import ModelConfig
from pretrain.model import export
from pretrain.model.keyboard_lm import KeyboardLM, build_model
from pretrain.text import vocabulary as vocabularies
from tests.helpers.launches.published import list_files
from tests.helpers.text.typed_text import WORDS, vocabulary


def model() -> KeyboardLM:
    built = build_model(ModelConfig(embedding_dim=8, hidden_dim=12, tied=False), len(vocabulary()), 5)
    built.output.data *= 4
    return built


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    export.export_onnx(model(), folder / "model.onnx")
    vocabularies.save(vocabulary(), folder / "vocabulary.json")
    list_files(folder, locale="en-US")
    return folder


def scores(words: list[str]) -> dict[str, float]:
    """Log-probability of every word after others, from the model itself."""
    ids = torch.tensor([[1, *vocabulary().ids(words).tolist()]])
    with torch.no_grad():
        log_probs = torch.log_softmax(model()(ids)[0][0, -1], 0)
    return {word: float(log_probs[number]) for number, word in enumerate(vocabulary().words) if number >= 4}


def best(scores: dict[str, float]) -> list[str]:
    return sorted(scores, key=lambda word: -scores[word])[:3]


def test_next_words_are_the_models(bundle: Path) -> None:
    keyboard = BundleKeyboard(bundle)
    assert keyboard.next_words("Stop. the hello") == best(scores(["the", "hello"]))
    starts = best(scores([]))
    assert keyboard.next_words("It is good.") == [word.capitalize() for word in starts]
    assert keyboard.next_words("") == [word.capitalize() for word in starts]


@pytest.mark.slow
def test_completions_begin_as_typed_and_the_language_model_orders_them(bundle: Path) -> None:
    keyboard = BundleKeyboard(bundle)
    after = scores(["go"])
    completions = keyboard.complete("go ", "the")
    assert set(completions) <= set(WORDS)
    # Hit on the middle of their keys, letters leave little doubt.
    same = {word: after[word] for word in WORDS if word.startswith("the")}
    assert completions == best(same)
    assert keyboard.complete("go ", "The") == [word.capitalize() for word in best(same)]
    assert keyboard.complete("go ", "") == keyboard.next_words("go ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "meant"), [("hwllo", "hello"), ("wrold", "world"), ("hllo", "hello"), ("Workk", "Work")]
)
def test_typos_are_corrected(bundle: Path, typed: str, meant: str) -> None:
    assert meant in BundleKeyboard(bundle).correct("it ", typed)


@pytest.mark.slow
def test_what_was_typed_may_stay(bundle: Path) -> None:
    keyboard = BundleKeyboard(bundle)
    assert keyboard.correct("it ", "qqqqq") == ["qqqqq"]
    assert keyboard.correct("it ", "l33t") == ["l33t"]
    assert keyboard.correct("it ", "hello")[0] == "hello"


def test_a_keyboard_pickles_as_its_folder(bundle: Path) -> None:
    keyboard = BundleKeyboard(bundle)
    packed = pickle.dumps(keyboard)
    assert len(packed) < 1000
    assert pickle.loads(packed).next_words("it is") == keyboard.next_words("it is")


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"lacks model\.onnx, vocabulary\.json, bundle\.json"):
        BundleKeyboard(tmp_path / "nowhere")


@pytest.mark.slow
def test_the_class_overrides_what_kebbie_calls(bundle: Path) -> None:
    """kebbie 0.5.1 calls these methods with these arguments and takes lists of words."""
    made = BundleCorrector(bundle)
    touches = [(0.0, 0.0)] * 5
    assert made.auto_correct("it ", touches, "hwllo") == made.keyboard.correct("it ", "hwllo")
    assert made.auto_complete("it ", touches[:2], "he") == made.keyboard.complete("it ", "he")
    assert made.predict_next_word("it ") == made.keyboard.next_words("it ")
