"""Growing keeps what the model knew, and gives new words a sensible start."""

import math
from pathlib import Path

import pytest
import torch

from pretrain.config import AdaptConfig, ModelConfig
from pretrain.model.keyboard_lm import KeyboardLM, build_model
from pretrain.text.vocabulary import SPECIALS, UNK, TokenStream, Vocabulary, extend
from pretrain.training.extend import adapt, grow, similar_words
from tests.helpers.audits.close import assert_close
from tests.helpers.text.pretrain_streams import chain_stream

OLD = Vocabulary((*SPECIALS, "walk", "walked", "talking", "the", "banana"))
NEW = extend(OLD, ["walking", "xyzzy"], max_new=5)


def model_of(vocabulary: Vocabulary, tied: bool = False) -> KeyboardLM:
    return build_model(ModelConfig(embedding_dim=8, hidden_dim=12, tied=tied), len(vocabulary), seed=3)


def test_similar_words_share_spelling() -> None:
    near, far = similar_words(("walking", "xyzzy"), OLD, most=5)
    assert {OLD.words[number] for number, _ in near} == {"walk", "walked", "talking"}
    # Trigrams of <walking> and <talking>: 5 of 7 are shared, and nothing is closer.
    assert OLD.words[near[0][0]] == "talking"
    assert sum(share for _, share in near) == pytest.approx(1.0)
    assert near[0][1] > near[-1][1]
    assert far == []
    assert len(similar_words(("walking",), OLD, most=1)[0]) == 1


@pytest.mark.parametrize("tied", [True, False])
def test_old_words_keep_their_rows_and_logits(tied: bool) -> None:
    model = model_of(OLD, tied)
    grown = grow(model, OLD, NEW)
    tokens = torch.tensor([[1, 5, 4, 8]])
    assert_close(grown(tokens)[0][..., : len(OLD)], model(tokens)[0], rtol=0, atol=1e-6)
    assert grown.vocabulary_size == len(NEW)
    for name in ("embedding", "output_bias") + (() if tied else ("output",)):
        assert torch.equal(grown.state_dict()[name][: len(OLD)], model.state_dict()[name])


@pytest.mark.parametrize("tied", [True, False])
def test_new_rows_come_from_words_spelt_alike_or_from_unk(tied: bool) -> None:
    model = model_of(OLD, tied)
    grown = grow(model, OLD, NEW)
    near = similar_words(("walking",), OLD, most=5)[0]
    for name in ("embedding",) if tied else ("embedding", "output"):
        old_VE, new_VE = model.state_dict()[name], grown.state_dict()[name]
        assert_close(new_VE[len(OLD)], sum(share * old_VE[number] for number, share in near))
        assert_close(new_VE[len(OLD) + 1], old_VE[UNK])
    expected = model.output_bias[UNK].item() - math.log(2 * 2)
    assert grown.output_bias[len(OLD) :].tolist() == pytest.approx([expected] * 2)


def test_nothing_new_changes_nothing() -> None:
    model = model_of(OLD)
    grown = grow(model, OLD, OLD)
    assert grown is not model
    for name, tensor in model.state_dict().items():
        assert torch.equal(grown.state_dict()[name], tensor)


def test_vocabularies_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="old: 11 words, but the model has 9 rows"):
        grow(model_of(OLD), NEW, NEW)
    with pytest.raises(ValueError, match="new: must begin with the words of old"):
        grow(model_of(OLD), OLD, Vocabulary((*SPECIALS, "the", "walk")))


def grown_stream(owners: int, seed: int) -> TokenStream:
    return chain_stream(owners, seed, words=len(NEW) - len(SPECIALS))


def test_adapting_by_no_step_measures_only(tmp_path: Path) -> None:
    model = grow(model_of(OLD), OLD, NEW)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    config = AdaptConfig(steps=0, batch_sentences=16, learning_rate=0.05)
    curve = adapt(config, model, grown_stream(20, 1), grown_stream(5, 2), 8, 1, tmp_path)
    assert [point.step for point in curve.points] == [0]
    for name, tensor in model.state_dict().items():
        assert torch.equal(before[name], tensor)
