"""Next-word metrics: definitions by hand, batching, ties, speed of the code path."""

import numpy as np
import pytest
import torch

from evaluation.arms import metrics
from pretrain.config import ModelConfig
from pretrain.model import KeyboardLM, build_model
from pretrain.vocabulary import EOS, UNK, TokenStream, join_owners


def make_stream(rng: np.random.Generator, devices: int, vocabulary_size: int) -> TokenStream:
    owners = []
    for _ in range(devices):
        sentences = [
            np.append(rng.integers(UNK, vocabulary_size, size=rng.integers(0, 12)), EOS)
            for _ in range(rng.integers(0, 6))
        ]
        owners.append(np.concatenate([np.empty(0, dtype=np.int64), *sentences]))
    return join_owners(owners)


def one_by_one(model: KeyboardLM, stream: TokenStream) -> metrics.PerDevice:
    """The definition, word after word, without batches: the oracle."""
    rows = np.zeros((len(stream), 6))
    for device in range(len(stream)):
        prefix = [1]
        for token in stream.owner(device).tolist():
            if token == EOS:
                prefix = [1]
                continue
            with torch.no_grad():
                logits = model.double()(torch.tensor([prefix]))[0][0, -1]
            best = [int(word) + 4 for word in torch.argsort(logits[4:], descending=True, stable=True)[:3]]
            known = token != UNK
            loss = -float(torch.log_softmax(logits, 0)[token]) if known else 0.0
            rows[device] += [1, token == best[0], token in best, known, known and token == best[0], loss]
            prefix.append(token)
    return metrics.PerDevice(*rows.T)


@pytest.fixture
def model() -> KeyboardLM:
    return build_model(ModelConfig(embedding_dim=6, hidden_dim=9, tied=False), 23, seed=3)


def test_every_count_equals_the_definition(model: KeyboardLM) -> None:
    stream = make_stream(np.random.default_rng(0), 40, 23)
    got, expected = metrics.recall(model, stream), one_by_one(model, stream)
    assert got.top3_D.sum() > got.top1_D.sum() > 0
    for name in ("words_D", "top1_D", "top3_D", "invocab_words_D", "invocab_top1_D"):
        np.testing.assert_array_equal(getattr(got, name), getattr(expected, name), err_msg=name)
    np.testing.assert_allclose(got.loss_D, expected.loss_D, rtol=1e-12)


def test_a_word_outside_the_vocabulary_is_a_miss_even_if_the_model_loves_unk(model: KeyboardLM) -> None:
    with torch.no_grad():
        model.output_bias[UNK] = 50.0
        model.output_bias[7] = 20.0
    got = metrics.recall(model, join_owners([np.array([UNK, 7, UNK, EOS])]))
    assert (got.words_D[0], got.top1_D[0], got.top3_D[0]) == (3, 1, 1)
    assert (got.invocab_words_D[0], got.invocab_top1_D[0]) == (1, 1)


@pytest.mark.parametrize("batch_words", [1, 7, 100])
def test_the_result_does_not_depend_on_the_batch(model: KeyboardLM, batch_words: int) -> None:
    stream = make_stream(np.random.default_rng(1), 60, 23)
    with torch.no_grad():
        # Equal rows are where rounding would decide.
        model.output[10:16] = model.output[10]
        model.output_bias[10:16] = model.output_bias.max() + 1
    whole, parts = metrics.recall(model, stream), metrics.recall(model, stream, batch_words=batch_words)
    np.testing.assert_array_equal(whole.top1_D, parts.top1_D)
    np.testing.assert_array_equal(whole.top3_D, parts.top3_D)
    np.testing.assert_allclose(whole.loss_D, parts.loss_D, rtol=1e-12)


def test_ties_go_to_the_lower_id(model: KeyboardLM) -> None:
    with torch.no_grad():
        model.output.zero_()
        model.output_bias.zero_()
    sentences = [np.array([word, EOS]) for word in (4, 5, 6, 7)]
    got = metrics.recall(model, join_owners(sentences))
    assert got.top1_D.tolist() == [1, 0, 0, 0]
    assert got.top3_D.tolist() == [1, 1, 1, 0]


def test_devices_without_words_count_nothing(model: KeyboardLM) -> None:
    got = metrics.recall(model, join_owners([np.array([EOS, EOS]), np.empty(0, np.int32), np.array([5, EOS])]))
    assert got.words_D.tolist() == [0, 0, 1]
    empty = metrics.recall(model, join_owners([]))
    assert len(empty) == 0


def test_wrong_vocabulary_cut_sentence_and_broken_model_are_errors(model: KeyboardLM) -> None:
    with pytest.raises(ValueError, match="outside the model's vocabulary of 23"):
        metrics.recall(model, join_owners([np.array([23, EOS])]))
    with pytest.raises(ValueError, match="does not end with <eos>"):
        metrics.recall(model, join_owners([np.array([5]), np.array([6, EOS])]))
    with torch.no_grad():
        model.output_bias[5] = float("nan")
    with pytest.raises(ArithmeticError, match="not finite"):
        metrics.recall(model, join_owners([np.array([6, EOS])]))


def test_the_model_that_is_measured_stays_as_it_was(model: KeyboardLM) -> None:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    metrics.recall(model, make_stream(np.random.default_rng(2), 5, 23))
    assert all(
        value.dtype == torch.float32 and torch.equal(value, before[name]) for name, value in model.state_dict().items()
    )
