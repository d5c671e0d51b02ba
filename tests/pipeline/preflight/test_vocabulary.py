"""Sizes of a vocabulary: from public text that a file holds, and from the reach of a discovery."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from discovery.outlook import Reach
from pipeline.preflight import vocabulary
from pipeline.preflight.draft import SAMPLE_WORDS
from pipeline.preflight.vocabulary import LEAST_TIMES, count_packaged, found, propose
from pretrain.config import C4_REVISION, C4Corpus, FileCorpus


def finds(most: int = 300, share: float = 0.02) -> Callable[[int], Reach]:
    """A discovery that may find so many words, whatever the base."""
    return lambda base: Reach((share, 2 * share), most // 10, most, 0.01, 0.12)


def corpus(path: Path, times: int, words: int) -> FileCorpus:
    """Text of ``words`` words that it has ``times`` times each, and of as many that it has once."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    often = [f"{first}{second}{third}" for first in letters for second in letters for third in letters][:words]
    lines = [" ".join(often)] * times + [" ".join(f"{word}{word}{word}" for word in often)]
    path.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines), encoding="utf-8")
    return FileCorpus(source="files", train=(str(path),), max_tokens=10**6, max_validation_tokens=1_000)


def test_the_base_is_what_public_text_has_often_enough(tmp_path: Path) -> None:
    # Of 21 documents the first, the eleventh and the last, of rare words, are held out of the counts.
    made = propose(corpus(tmp_path / "text.jsonl", 20, 2_350), "en-US", 8_000, finds())
    assert made.base == 2_300, "rounded down to hundreds"
    assert f"2,300 words, those that public text has {LEAST_TIMES} times, which cover 65% of it" in made.reason
    assert propose(corpus(tmp_path / "rare.jsonl", 5, 2_350), "en-US", 8_000, finds()).base == 1_000, "the fewest"
    assert propose(corpus(tmp_path / "most.jsonl", 20, 2_350), "en-US", 1_500, finds()).base == 1_500


def test_text_of_fewer_words_than_the_smallest_base_gives_all_of_them(tmp_path: Path) -> None:
    made = propose(corpus(tmp_path / "text.jsonl", 20, 59), "en-US", 8_000, finds())
    assert made.base == 2 * 59 + 4, "both kinds of words, and the four special tokens"
    assert made.reason.startswith("Vocabulary: 122 words, all of public text; ")


def test_text_that_goes_on_has_its_words_more_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = corpus(tmp_path / "text.jsonl", 20, 2_350)
    monkeypatch.setattr(vocabulary, "READ_WORDS", 5 * 2_350)
    assert propose(text, "en-US", 8_000, finds()).base == 2_300, "a million words have each of them a hundred times"
    short = text.model_copy(update={"max_tokens": 5 * 2_350})
    assert propose(short, "en-US", 8_000, finds()).base == 1_000


@pytest.mark.slow
@pytest.mark.parametrize(("source", "language"), vocabulary.PACKAGED_TEXTS)
def test_counts_of_packaged_text_are_those_that_stand_beside_the_code(source: str, language: str) -> None:
    stated = json.loads(vocabulary.PACKAGED.read_text(encoding="utf-8"))[source][language]
    assert stated == json.loads(json.dumps(vars(count_packaged(source, language)))), "python -m " + vocabulary.__name__
    assert stated["words"] < SAMPLE_WORDS, "a drafted launch reads all of it"


def test_new_words_have_room_for_all_that_may_be_found_but_not_for_a_second_base(tmp_path: Path) -> None:
    c4 = C4Corpus(source="c4", subset="en", revision=C4_REVISION, max_tokens=10**6, max_validation_tokens=10**3)
    assert [propose(c4, "en-US", 8_000, finds(most)).new for most in (5, 315, 940, 9_000)] == [200, 400, 1_000, 2_000]
    made = propose(c4, "en-US", 8_000, finds())
    assert made.base == 8_000
    assert made.reason.endswith(
        "it finds a word that 2% of devices hold, or 4% where each holds many unknown words: about 30 to 300 new "
        "words, 1 to 12% of what people type."
    )
    assert found(finds(share=1.0)(8_000)) == "finds at most words that all devices hold"
