"""LatinIME's scale and its four bits, against exact arithmetic and figures of the published dictionaries."""

from fractions import Fraction

import pytest

from pretrain.dictionary.content import Dictionary, Word, bigram_level, fits, frequency, read_frequency
from tests.helpers.text.dictionaries import HEADER


def test_a_frequency_loses_8_589_steps_a_halving():
    assert [frequency(2.0**-halvings) for halvings in (0, 1, 2, 10, 20)] == [255, 246, 238, 169, 83]
    assert (frequency(0.0), frequency(1e-12)) == (1, 1), "a word that may be typed is never 0, which means profanity"
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match=r"probability: .* outside 0 to 1"):
            frequency(wrong)


def test_the_scale_is_that_of_published_dictionaries():
    # Shares of 3.46M words of public English, and what AOSP's en_US, version 54, says of them.
    for share, published in ((0.0561, 222), (0.0216, 214), (0.0118, 200), (0.0119, 192), (0.0012, 164)):
        assert abs(frequency(share) - published) <= 9


def exact_level(unigram: int, bigram: int) -> int:
    """``getBigramFrequencyDiff`` in fractions."""
    step = Fraction(255 - unigram) / Fraction(33, 2)
    if step == 0:
        return 0
    above = (max(unigram, bigram) - (1 + unigram + step / 2)) / step
    return max(int(above), 0)


@pytest.mark.slow
def test_levels_are_exact():
    wrong = []
    for unigram in (*range(0, 256, 5), 254):
        for bigram in range(256):
            exact = exact_level(unigram, bigram)
            # Where a bigram lies on a border of two levels, float32 may fall on either side, as in AOSP's encoder.
            on_border = unigram < 255 and exact != exact_level(unigram, bigram - 1)
            if bigram_level(unigram, bigram) not in ({exact, exact - 1} if on_border else {exact}):
                wrong.append((unigram, bigram))
    assert wrong == []
    assert {bigram_level(0, bigram) for bigram in range(256)} == set(range(16))


def test_levels_are_read_as_the_middle_of_their_step():
    for unigram in range(256):
        step = Fraction(255 - unigram) / Fraction(33, 2)
        read = [read_frequency(unigram, level) for level in range(16)]
        assert read == sorted(read)
        for level, value in enumerate(read):
            assert unigram <= value <= 255
            assert -1 <= value - (unigram + (level + 1) * step) <= Fraction(1, 1000)


def test_a_bigram_never_lowers_a_word():
    words = {"the": Word(222), "of": Word(214, {"the": 3})}
    (read,) = Dictionary(HEADER, words).as_keyboards_read_it().words["of"].bigrams.values()
    assert read == 224, "level 0 of 16.5 steps from 222 to 255"


def test_what_people_type_fits():
    assert all(fits(text) for text in ("a" * 47, "l'", "at&t", "c++", ":)", "=)", "<3", "#1", "😀", "ж", "a b"))


def test_what_no_keyboard_reads_is_refused():
    with pytest.raises(ValueError, match="attributes: lack locale, version"):
        Dictionary({"dictionary": "main:en"}, {})
    for words, reason in (
        *(({text: Word(1)}, "no dictionary can hold") for text in ("", "a" * 48, "a,b", " a", "a\n", "a\x1fb")),
        ({"a": Word(256)}, "'a' has frequency 256; give 0 to 255"),
        ({"a": Word(1, {"a": -1})}, "'a' has frequency -1"),
        ({"a": Word(1, {"b": 2})}, "followed by 'b', which is no word"),
    ):
        with pytest.raises(ValueError, match=reason):
            Dictionary(HEADER, words)
