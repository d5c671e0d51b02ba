"""Vocabularies, token streams and word stores: what they refuse, and that ids stay what they were."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from pretrain.text import vocabulary
from pretrain.text.vocabulary import EOS, SPECIALS, UNK, TokenStream, Vocabulary, from_counts, join_owners, join_streams
from pretrain.text.words import SENTENCE_END, join_words, open_words, write_words

OWNERS = [[["a", "b"], [], ["b", "c", "b"]], [], [["d"]]]


def test_specials_come_first_and_words_are_unique() -> None:
    with pytest.raises(ValueError, match="words: the first four must be"):
        Vocabulary(("a", *SPECIALS))
    with pytest.raises(ValueError, match="words: a word stands twice"):
        Vocabulary((*SPECIALS, "a", "a"))


def test_from_counts_ranks_by_count_then_alphabet() -> None:
    built = from_counts({"b": 2, "a": 2, "c": 5, "d": 1}, size=7)
    assert built.words == (*SPECIALS, "c", "a", "b")
    assert built.ids(["c", "zzz", "b"]).tolist() == [4, UNK, 6]


def test_extend_keeps_old_ids_and_its_budget() -> None:
    base = from_counts({"a": 2, "b": 1}, size=6)
    grown = vocabulary.extend(base, ["b", "x", "x", "y", "z"], max_new=2)
    assert grown.words == (*base.words, "x", "y")
    assert grown.digest != base.digest
    assert vocabulary.extend(base, ["x"], max_new=0).digest == base.digest


def test_save_and_load(tmp_path: Path) -> None:
    base = from_counts({"señor": 2, "it's": 1}, size=6)
    vocabulary.save(base, tmp_path / "words.json")
    assert vocabulary.load(tmp_path / "words.json") == base


def test_streams_join_and_select() -> None:
    stream = join_owners([np.array([4, EOS]), np.array([], dtype=np.int64), np.array([5, 6, EOS])])
    assert stream.tokens_N.dtype == np.int32
    assert [stream.owner(number).tolist() for number in range(len(stream))] == [[4, EOS], [], [5, 6, EOS]]
    both = join_streams([stream, join_owners([]), stream])
    assert len(both) == 6
    assert both.owner(5).tolist() == [5, 6, EOS]
    assert (both.tokens_N.dtype, both.offsets_D1.dtype) == (np.int32, np.int64)
    assert both.select(np.array([2, 0])).tokens_N.tolist() == [5, 6, EOS, 4, EOS]
    assert len(join_owners([])) == 0


def test_word_store_round_trip(tmp_path: Path) -> None:
    store = write_words(tmp_path, OWNERS)
    assert len(store) == 3
    assert store.num_words == 6
    assert store.lexicon == ("a", "b", "c", "d")
    assert store.owner(0).tolist() == [1, 2, SENTENCE_END, 2, 3, 2, SENTENCE_END]
    assert store.word_counts() == {"a": 1, "b": 3, "c": 1, "d": 1}
    words = from_counts({"b": 3, "d": 1}, size=6)
    everything = store.encode(words)
    assert everything.tokens_N.tolist() == [UNK, 4, EOS, 4, UNK, 4, EOS, 5, EOS]
    some = store.encode(words, np.array([2, 1]))
    assert isinstance(some, TokenStream)
    assert (some.tokens_N.tolist(), some.offsets_D1.tolist()) == ([5, EOS], [0, 2, 2])


def test_a_store_of_no_owner_opens(tmp_path: Path) -> None:
    store = write_words(tmp_path, [])
    assert (len(store), store.num_words) == (0, 0)
    assert len(store.encode(from_counts({"a": 1}, 5)).tokens_N) == 0


def test_long_stores_are_flushed_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = write_words(tmp_path / "whole", OWNERS * 50)
    monkeypatch.setattr("pretrain.text.words.FLUSH_TOKENS", 10)
    pieces = write_words(tmp_path / "pieces", OWNERS * 50)
    assert pieces.digest == whole.digest


@pytest.mark.parametrize("cuts", [(), (1,), (1, 2), (0, 3)])
def test_pieces_joined_are_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuts: tuple[int, ...]) -> None:
    monkeypatch.setattr("pretrain.text.words.FLUSH_TOKENS", 2)
    owners = [*OWNERS[::-1], OWNERS[0]]
    whole, ends = write_words(tmp_path / "whole", owners), (0, *cuts, len(owners))
    each = [write_words(tmp_path / f"{end}", owners[first:end]) for first, end in pairwise(ends)]
    joined = join_words(tmp_path / "joined", each)
    assert (joined.digest, joined.lexicon) == (whole.digest, whole.lexicon)
    names = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "joined").iterdir())
    for name in names:
        assert (tmp_path / "joined" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


@pytest.mark.parametrize("name", ["tokens.bin", "offsets.npy", "lexicon.json"])
def test_a_changed_byte_is_found(tmp_path: Path, name: str) -> None:
    write_words(tmp_path, OWNERS)
    content = bytearray((tmp_path / name).read_bytes())
    content[-2] ^= 1
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match="digest does not match"):
        open_words(tmp_path)


def test_an_unfinished_store_is_refused(tmp_path: Path) -> None:
    def killed():
        yield OWNERS[0]
        raise KeyboardInterrupt

    write_words(tmp_path, OWNERS)
    with pytest.raises(KeyboardInterrupt):
        write_words(tmp_path, killed())
    with pytest.raises(ValueError, match=r"no meta.json.*unfinished"):
        open_words(tmp_path)


def test_another_format_is_refused(tmp_path: Path) -> None:
    write_words(tmp_path, OWNERS)
    meta = json.loads((tmp_path / "meta.json").read_text(encoding="utf-8"))
    (tmp_path / "meta.json").write_text(json.dumps(meta | {"format": "other"}), encoding="utf-8")
    with pytest.raises(ValueError, match="format 'other'"):
        open_words(tmp_path)
