"""The n-gram against scores by kenlm 0.3.0.

The constants are what kenlm said of these very models, each written to an ARPA file by ``evaluation/arpa.py`` of
commit 447b269, by

    python -m venv v && v/bin/pip install kenlm==0.3.0
    v/bin/python -c "import kenlm; m = kenlm.Model('order.arpa'); print(m.score('w1 w2', bos=True, eos=True))"
"""

import numpy as np
import pytest

from pretrain.ngrams.ngram import NGram
from pretrain.text.vocabulary import EOS, SPECIALS, UNK, TokenStream, Vocabulary, join_owners
from tests.helpers.text.next_words import after

SENTENCES = ("w1 w2", "w0", "w3 w10 w31", "w5 w16 w11 w34 w23", "w39 w39 w39", "w1 never w2", "never", "w2 w7 w22 w27")


def known() -> Vocabulary:
    return Vocabulary(SPECIALS + tuple(f"w{number}" for number in range(40)))


def corpus() -> TokenStream:
    """Sentences by a recipe of integers only, so that they are the same everywhere for ever."""
    tokens, state = [], 12345
    for sentence in range(400):
        word = sentence % 40
        for _ in range(1 + sentence % 7):
            state = (1103515245 * state + 12345) % 2**31
            draw = state >> 16
            word = (word * 3 + 1) % 40 if draw % 2 else min(draw % 40, draw // 7 % 40)
            tokens.append(UNK if draw % 29 == 0 else UNK + 1 + word)
        tokens.append(EOS)
    return join_owners([np.array(tokens)])


KENLM = {
    2: (-3.99643, -2.05018, -3.39467, -6.61623, -8.47922, -5.4016, -2.1162, -3.85996),
    3: (-4.21098, -2.39337, -2.87879, -7.15158, -8.43348, -5.18208, -2.23303, -3.46413),
    4: (-4.13846, -2.35365, -3.06776, -7.25973, -8.29585, -5.21651, -2.2291, -3.9148),
}
# kenlm keeps float32.
_CLOSE = 3e-5


@pytest.mark.parametrize("order", KENLM)
def test_kenlm_scores_the_model_as_we_do(order: int) -> None:
    model = NGram.fit(corpus(), known(), order)
    for sentence, expected in zip(SENTENCES, KENLM[order], strict=True):
        ids = known().ids(sentence.split()).tolist()
        own = sum(np.log10(after(model, ids[:place])[word]) for place, word in enumerate([*ids, EOS]))
        assert own == pytest.approx(expected, abs=_CLOSE), sentence
