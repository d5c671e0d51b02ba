"""ARPA files: against scores by kenlm 0.3.0, and read back by a reader of their own.

The constants are what kenlm says of these very files, by

    python -m venv v && v/bin/pip install kenlm==0.3.0
    v/bin/python -c "import kenlm; m = kenlm.Model('order.arpa'); print(m.score('w1 w2', bos=True, eos=True))"
"""

from pathlib import Path

import numpy as np
import pytest

from evaluation.arms.ngram import NGram
from pretrain.vocabulary import EOS, SPECIALS, UNK, TokenStream, Vocabulary, join_owners
from tests.evaluation import arpa
from tests.helpers.next_words import after

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


def written(order: int, folder: Path) -> Path:
    path = folder / f"{order}.arpa"
    arpa.write(NGram.fit(corpus(), known(), order), known(), path)
    return path


class Reader:
    """The file, as the format's back-off rule reads it."""

    def __init__(self, path: Path) -> None:
        self.prob: dict[tuple[str, ...], float] = {}
        self.backoff: dict[tuple[str, ...], float] = {}
        length = 0
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.endswith("-grams:"):
                length = int(line[1])
            elif length and line and line[0] != "\\":
                columns = line.split("\t")
                words = tuple(columns[1].split(" "))
                assert len(words) == length
                self.prob[words] = float(columns[0])
                if len(columns) == 3:
                    self.backoff[words] = float(columns[2])
        self.order = length

    def log10(self, context: tuple[str, ...], word: str) -> float:
        context = context[len(context) - self.order + 1 :] if len(context) >= self.order else context
        if (*context, word) in self.prob:
            return self.prob[(*context, word)]
        return self.backoff.get(context, 0.0) + self.log10(context[1:], word)

    def score(self, sentence: str) -> float:
        words = [word if (word,) in self.prob else "<unk>" for word in sentence.split()]
        line = ("<s>", *words, "</s>")
        return sum(self.log10(line[:place], line[place]) for place in range(1, len(line)))


KENLM = {
    2: (-3.99643, -2.05018, -3.39467, -6.61623, -8.47922, -5.4016, -2.1162, -3.85996),
    3: (-4.21098, -2.39337, -2.87879, -7.15158, -8.43348, -5.18208, -2.23303, -3.46413),
    4: (-4.13846, -2.35365, -3.06776, -7.25973, -8.29585, -5.21651, -2.2291, -3.9148),
}
# kenlm keeps float32.
_CLOSE = 3e-5


@pytest.mark.parametrize("order", KENLM)
def test_kenlm_scores_our_file_as_we_score_the_text(order: int, tmp_path: Path) -> None:
    reader, model = Reader(written(order, tmp_path)), NGram.fit(corpus(), known(), order)
    for sentence, expected in zip(SENTENCES, KENLM[order], strict=True):
        ids = known().ids(sentence.split()).tolist()
        own = sum(np.log10(after(model, ids[:place])[word]) for place, word in enumerate([*ids, EOS]))
        assert own == pytest.approx(expected, abs=_CLOSE), sentence
        assert reader.score(sentence) == pytest.approx(expected, abs=_CLOSE), sentence


def test_the_same_check_refuses_a_file_without_back_off_and_another_order(tmp_path: Path) -> None:
    reader = Reader(written(3, tmp_path))
    assert any(abs(reader.score(sentence) - score) > 0.1 for sentence, score in zip(SENTENCES, KENLM[2], strict=True))
    reader.backoff.clear()
    assert any(abs(reader.score(sentence) - score) > 0.1 for sentence, score in zip(SENTENCES, KENLM[3], strict=True))


def test_the_file_is_whole_and_its_first_length_is_a_distribution(tmp_path: Path) -> None:
    path = written(3, tmp_path)
    text = path.read_text(encoding="utf-8")
    for length in (1, 2, 3):
        told = int(text.split(f"ngram {length}=")[1].split("\n")[0])
        block = text.split(f"\\{length}-grams:\n")[1].split("\n\n")[0].splitlines()
        assert told == len(block) > 0
    reader = Reader(path)
    unigrams = {words: prob for words, prob in reader.prob.items() if len(words) == 1 and words != ("<s>",)}
    assert ("<pad>",) not in unigrams
    assert sum(10**prob for prob in unigrams.values()) == pytest.approx(1, abs=1e-7)
    for context in ((), ("w1",), ("<s>", "w2")):
        total = sum(10 ** reader.log10(context, word[0]) for word in unigrams)
        assert total == pytest.approx(1, abs=1e-6)


def test_another_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="vocabulary: 4 words, the model has 44"):
        arpa.write(NGram.fit(corpus(), known(), 2), Vocabulary(SPECIALS), tmp_path / "x.arpa")
