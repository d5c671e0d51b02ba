"""Participation: nobody answers whole, and only what arrived is certified."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from discovery import participation, state
from discovery.results import DiscoveryResult
from tests.helpers.text.tries import ALPHABET, KEY, PLANTED, discovered, trie_config, typists

CONFIG = trie_config()


def test_groups_part_the_population():
    groups = participation.assign(101, CONFIG, KEY, frozenset())
    assert len(groups) == 6
    asked = np.concatenate(list(groups.values()))
    assert len(set(asked.tolist())) == len(asked) == 100, "whole tens"
    assert 0 <= asked.min() < asked.max() <= 100
    everybody = np.concatenate(list(participation.assign(100, CONFIG, KEY, frozenset()).values()))
    assert sorted(everybody.tolist()) == list(range(100))
    assert max(map(len, groups.values())) - min(map(len, groups.values())) <= 1


def test_who_is_asked_in_which_layer_is_secret():
    groups = participation.assign(600, CONFIG, KEY, frozenset())
    others = participation.assign(600, CONFIG, KEY[::-1], frozenset())
    for place, group in groups.items():
        assert len(np.intersect1d(group, others[place])) < 0.5 * len(group)
        # Neighbours of the store, whose order is that of client ids, are not neighbours in a layer.
        assert np.mean(np.diff(group) == 1) < 0.5


def test_layers_have_devices_by_what_is_alive_in_them():
    config = CONFIG.model_copy(update={"max_prefixes": 40})
    words = [first + second for first in ALPHABET for second in ALPHABET[:4]] + ["abcde"]
    sizes = participation.group_sizes(600, config, words)
    # 26 candidates of one letter, 40 of the 104 that a cap lets through, the same of their ends, and one long word.
    assert sum(sizes) == 600
    assert sizes[0] < sizes[1] > sizes[3]
    assert [sizes[place] / sizes[0] for place in (1, 2, 3, 4, 5)] == pytest.approx(
        [(alive / 26) ** 0.25 for alive in (40, 40, 1, 1, 1)], rel=0.03
    )
    groups = participation.assign(600, config, KEY, words)
    assert [len(groups[layer]) for layer in range(1, 7)] == sizes
    assert participation.group_sizes(6, config, words) == [1] * 6


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[Path, DiscoveryResult]:
    """A discovery of all devices, and where it was written; to be read alone."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, discovered(folder, typists(1200))


@pytest.mark.slow
def test_a_device_answers_in_one_layer_only(whole):
    folder, found = whole
    table = pq.read_table(folder / "participation")
    asked = table["device"].to_numpy()
    assert len(np.unique(asked)) == len(asked) == 1200
    assert {row.layer for row in found.rows} == set(table["layer"].to_pylist())
    assert {word.word for word in found.words} == set(PLANTED)
    assert table["answered"].to_numpy().all()


@pytest.mark.slow
@pytest.mark.parametrize("inside", [True, False], ids=["in a layer", "between layers"])
def test_killed_anywhere_ends_the_same(whole, tmp_path, monkeypatch, inside):
    class Killed(Exception):
        pass

    save = state.save

    def saved(folder: Path, closed: state.LayerState, votes_d: np.ndarray) -> None:
        save(folder, closed, votes_d)
        if closed.row.layer == 2:
            raise Killed

    monkeypatch.setattr(state, "save", saved)
    with pytest.raises(Killed):
        discovered(tmp_path / "cut", typists(1200))
    monkeypatch.undo()
    assert {path.name for path in (tmp_path / "cut").glob("*.json")} == {"layer-01.json", "layer-02.json"}
    if inside:  # what was asked just before the crash is asked again of the same devices, and answered the same
        (tmp_path / "cut" / "layer-02.json").unlink()
    assert discovered(tmp_path / "cut", typists(1200)) == whole[1]


@pytest.mark.slow
def test_records_that_contradict_the_layers_are_noticed(whole, tmp_path):
    found = whole[1]
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    participation.check(tmp_path, found.rows, 4)
    with pytest.raises(ArithmeticError, match="certificate is not true"):
        participation.check(tmp_path, (found.rows[0].model_copy(update={"messages": 404}),), 4)
    participation.record(tmp_path, 7, np.array([5, 6]))
    group = participation.assign(1200, CONFIG, KEY, frozenset())[1]
    participation.record(tmp_path, 7, group[:3])
    with pytest.raises(ArithmeticError, match="asked in two layers"):
        participation.check(tmp_path, found.rows[:1], 4)


@pytest.mark.slow
def test_k_anonymity_raises_the_threshold_and_is_kept(whole, tmp_path):
    plain = whole[1]
    strict = discovered(tmp_path / "strict", typists(1200), config=trie_config(anonymity=120))
    assert all(a.word_votes < b.word_votes for a, b in zip(plain.rows, strict.rows, strict=False) if a.layer > 1)
    assert all(row.one_holder_chance <= 0.05 for row in plain.rows)
    assert {word.word for word in strict.words} <= {word.word for word in plain.words}
    impossible = discovered(tmp_path / "impossible", typists(1200), config=trie_config(anonymity=1201))
    assert not impossible.words
    assert all(row.word_votes > row.messages for row in impossible.rows)


@pytest.mark.slow
def test_votes_that_somebody_else_adds_up_find_the_same(tmp_path):
    """The sums are the same to the bit, so nothing else may differ; each is of single devices, and of one stream."""
    streams: list[tuple[int, int, str]] = []

    def add_up(votes, count, items, stream):
        each = list(votes)
        assert {int(votes_d.sum()) for votes_d in each} == {each[0].sum()}
        streams.append((len(each), items, stream))
        assert len(each) == count
        return np.sum(each, axis=0)

    people = typists(240)
    plain = discovered(tmp_path / "plain", people)
    summed = discovered(tmp_path / "summed", people, add_up=add_up)
    assert summed == plain
    assert len({stream for _, _, stream in streams}) == len(streams) == len(plain.rows)
    assert sum(count for count, _, _ in streams) == sum(row.messages for row in plain.rows) // 4
