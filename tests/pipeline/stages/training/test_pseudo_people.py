"""Pieces of public text in place of a twin's devices."""

import numpy as np
import pytest

from pipeline.stages.training.twin import pseudo_people
from pretrain.text.vocabulary import EOS, TokenStream, join_owners
from tests.helpers.launches.small_run import stream


def sentences(text: TokenStream) -> list[tuple[int, ...]]:
    ends = np.flatnonzero(text.tokens_N == EOS) + 1
    return [tuple(part.tolist()) for part in np.split(text.tokens_N, ends) if len(part)]


def test_owners_are_whole_sentences_each_owned_once() -> None:
    text = stream(200, 5)
    people = pseudo_people(text, 40, 3)
    assert len(people) == 40
    assert all(people.owner(number)[-1] == EOS for number in range(len(people)))
    remaining = sentences(text)
    for sentence in sentences(people):
        remaining.remove(sentence)
    assert np.array_equal(pseudo_people(text, 40, 3).tokens_N, people.tokens_N)
    assert not np.array_equal(pseudo_people(text, 40, 4).tokens_N, people.tokens_N)


def test_budgets_are_reached_by_the_last_sentence() -> None:
    text = join_owners([np.tile([5, 6, 7, 8, 9, 10, EOS], 40)] * 30)
    # Sentences of 6 words: a budget of 20 takes four.
    assert set(np.diff(pseudo_people(text, 50, 3).offsets_D1)) == {4 * 7}


def test_text_that_is_too_short_is_cut_again() -> None:
    short = join_owners([np.array([5, 6, 7, EOS])])
    assert sentences(pseudo_people(short, 3, 1)) == [(5, 6, 7, EOS)] * 3
    with pytest.raises(ValueError, match="holds no sentence"):
        pseudo_people(join_owners([]), 3, 1)
