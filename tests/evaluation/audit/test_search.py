"""The likeliest continuations against all 20^3 of them, where beam search misses some."""

import itertools

import pytest
import torch

from evaluation.audit.exposure import beam_search
from evaluation.audit.search import best_first
from pretrain.config import ModelConfig
from pretrain.model.keyboard_lm import KeyboardLM, build_model
from pretrain.text.vocabulary import BOS

WORDS = 20


def peaked(seed: int) -> KeyboardLM:
    model = build_model(ModelConfig(embedding_dim=8, hidden_dim=12, tied=False), WORDS + 4, seed)
    with torch.no_grad():
        model.projection *= 6
        model.embedding *= 4
        model.output_bias[:4] += 5  # specials would be first everywhere
    return model


def all_of_them(model: KeyboardLM, prefix: tuple[int, ...]) -> list[tuple[int, ...]]:
    secrets = list(itertools.product(range(4, WORDS + 4), repeat=3))
    rows = torch.tensor([[BOS, *prefix, *secret] for secret in secrets])
    double = build_model(ModelConfig(embedding_dim=8, hidden_dim=12, tied=False), WORDS + 4, 0).double()
    double.load_state_dict(model.state_dict())
    with torch.no_grad():
        log_probs = torch.log_softmax(double(rows)[0], dim=-1)
    total = sum(log_probs[:, 2 + place].gather(1, rows[:, 3 + place, None])[:, 0] for place in range(3))
    return [secrets[place] for place in total.argsort(descending=True).tolist()]


@pytest.mark.slow
def test_the_list_is_exact_and_beam_search_is_not_always() -> None:
    missed = 0
    for seed in range(12):
        model, prefix = peaked(seed), (5 + seed % 10, 9)
        expected = all_of_them(model, prefix)[:5]
        found = best_first(model, prefix, 3, 5)
        assert found.exact
        assert list(found.words) == expected
        assert list(found.log_probs) == sorted(found.log_probs, reverse=True)
        assert found.opened <= WORDS + WORDS**2
        missed += set(beam_search(model, prefix, 3, 5)) != set(expected)
    assert missed >= 1


def test_a_budget_that_runs_out_is_said_and_the_list_is_what_was_found() -> None:
    model = build_model(ModelConfig(embedding_dim=8, hidden_dim=12, tied=False), WORDS + 4, 1)  # nearly flat
    cut = best_first(model, (5, 9), 3, 5, budget=3)
    assert not cut.exact
    assert cut.opened == 3
    assert len(cut.words) == 5
    whole = best_first(model, (5, 9), 3, 5)
    assert whole.exact
    assert sum(whole.log_probs) >= sum(cut.log_probs)


@pytest.mark.slow
@pytest.mark.parametrize(("length", "count"), [(1, 3), (2, 500)])
def test_other_lengths_and_lists_longer_than_a_level(length: int, count: int) -> None:
    model = peaked(3)
    found = best_first(model, (6, 7), length, count)
    assert found.exact
    assert len(set(found.words)) == min(count, WORDS**length)
    assert all(len(words) == length and min(words) >= 4 for words in found.words)
