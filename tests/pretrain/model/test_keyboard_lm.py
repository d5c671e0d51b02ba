"""``KeyboardLM`` against published sizes, a slow independent oracle, and brute force."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pretrain.config import ModelConfig
from pretrain.model.keyboard_lm import KeyboardLM, build_model, parameter_count, sentence_rows
from pretrain.text.batches import find_rows
from pretrain.text.vocabulary import BOS, EOS, PAD
from tests.helpers.audits.close import assert_close


@pytest.mark.parametrize(
    ("words", "tied", "parameters"),
    [(10_000, False, 2_382_250), (20_000, False, 4_312_250), (30_000, False, 6_242_250), (10_000, True, 1_422_250)],
)
def test_paper_sizes(words: int, tied: bool, parameters: int) -> None:
    """Xu et al. 2023, section 1: 2.4M, 4.4M and 6.4M for 10, 20 and 30 thousand words; here 2.4M, 4.3M and 6.2M."""
    model = build_model(ModelConfig(embedding_dim=96, hidden_dim=670, tied=tied), words, seed=0)
    assert parameter_count(model) == parameters


def oracle_logits(model: KeyboardLM, tokens: list[int]) -> np.ndarray:
    """The CIFG-LSTM with projection, one unit at a time, in float64 and plain loops."""
    weights = {name: tensor.detach().double().numpy() for name, tensor in model.state_dict().items()}
    hidden, embedding = model.hidden_dim, model.embedding_dim
    output = weights["embedding"] if model.tied else weights["output"]
    cell, out = [0.0] * hidden, [0.0] * embedding
    logits = []
    for token in tokens:

        def gate(block: int, unit: int, token: int = token, out: list = out) -> float:
            column = block * hidden + unit
            total = weights["gates_b"][column]
            for place in range(embedding):
                total += weights["embedding"][token, place] * weights["gates_x"][place, column]
                total += out[place] * weights["gates_r"][place, column]
            return float(total)

        squashed = []
        for unit in range(hidden):
            forget = 1 / (1 + np.exp(-gate(0, unit)))
            cell[unit] = forget * cell[unit] + (1 - forget) * np.tanh(gate(1, unit))
            squashed.append(np.tanh(cell[unit]) / (1 + np.exp(-gate(2, unit))))
        out = [
            sum(squashed[unit] * weights["projection"][unit, place] for unit in range(hidden))
            for place in range(embedding)
        ]
        logits.append(
            [
                float(output[word] @ np.asarray(out) + weights["output_bias"][word])
                for word in range(model.vocabulary_size)
            ]
        )
    return np.asarray(logits)


@pytest.mark.parametrize("tied", [True, False])
def test_step_equals_the_oracle(tied: bool) -> None:
    torch.manual_seed(5)
    model = KeyboardLM(9, 4, 6, tied=tied)
    for parameter in model.parameters():
        parameter.data = torch.randn_like(parameter)
    tokens = [1, 5, 8, 3, 4]
    logits, _ = model(torch.tensor([tokens]))
    np.testing.assert_allclose(logits[0].detach().numpy(), oracle_logits(model, tokens), atol=1e-4)


def test_state_carries_a_sequence_on(tiny_model: KeyboardLM) -> None:
    tokens = torch.randint(1, 24, (3, 7))
    whole, last = tiny_model(tokens)
    head, state = tiny_model(tokens[:, :4])
    tail, end = tiny_model(tokens[:, 4:], state)
    assert_close(torch.cat([head, tail], dim=1), whole)
    for given_part, expected in zip(end, last, strict=True):
        assert_close(given_part, expected)


def test_weights_are_a_function_of_the_seed(tiny_model: KeyboardLM) -> None:
    config = ModelConfig(embedding_dim=8, hidden_dim=12, tied=True)
    state = torch.get_rng_state()
    again, other = build_model(config, 24, seed=3), build_model(config, 24, seed=4)
    assert torch.equal(again.embedding, tiny_model.embedding)
    assert not torch.equal(again.embedding, other.embedding)
    assert torch.equal(torch.get_rng_state(), state)


def brute_force_rows(tokens: list[int], sequence_words: int) -> list[tuple[list[int], list[int]]]:
    rows, sentence = [], []
    for token in tokens:
        sentence.append(token)
        if token == EOS:
            inputs = [BOS, *sentence[:-1]]
            for first in range(0, len(sentence), sequence_words):
                rows.append((inputs[first : first + sequence_words], sentence[first : first + sequence_words]))
            sentence = []
    return rows


sentences = st.lists(st.lists(st.integers(3, 9), max_size=9), max_size=8)


@pytest.mark.slow
@given(sentences, st.integers(1, 6), st.lists(st.integers(3, 9), max_size=3))
@settings(max_examples=200, deadline=None)
def test_sentence_rows_equal_a_plain_loop(found: list[list[int]], sequence_words: int, unfinished: list[int]) -> None:
    tokens = [token for sentence in found for token in (*sentence, EOS)] + unfinished
    inputs, targets = sentence_rows(np.asarray(tokens, dtype=np.int32), sequence_words)
    expected = brute_force_rows(tokens, sequence_words)
    assert inputs.shape == targets.shape == (len(expected), sequence_words)

    def padded(row: list[int]) -> list[int]:
        return row + [PAD] * (sequence_words - len(row))

    assert inputs.tolist() == [padded(row) for row, _ in expected]
    assert targets.tolist() == [padded(row) for _, row in expected]


@pytest.mark.slow
@given(sentences, st.integers(1, 6))
@settings(max_examples=100, deadline=None)
def test_rows_found_in_place_are_the_sentence_rows(found: list[list[int]], sequence_words: int) -> None:
    tokens = np.asarray([token for sentence in found for token in (*sentence, EOS)], dtype=np.int32)
    rows = find_rows(tokens, sequence_words)
    inputs, targets = sentence_rows(tokens, sequence_words)
    assert len(rows) == len(inputs)
    for number in range(len(rows)):
        row_inputs, row_targets = rows.batch(np.array([number]))
        length = row_inputs.shape[1]
        assert row_inputs[0].tolist() == inputs[number, :length].tolist()
        assert row_targets[0].tolist() == targets[number, :length].tolist()
        assert not inputs[number, length:].any()
    if len(rows):
        together, _ = rows.batch(np.arange(len(rows)))
        assert together.tolist() == inputs[:, : together.shape[1]].tolist()
