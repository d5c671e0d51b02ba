"""Participation: nobody answers whole, and only what arrived is certified."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from discovery import discover as trie
from discovery import participation
from discovery.config import TrieConfig
from discovery.results import DiscoveryResult

KEY = bytes(range(32))
LETTERS = "abcdefghijklmnopqrstuvwxyz"
CONFIG = TrieConfig(
    kind="ldp-triehh",
    epsilon0=8.0,
    delta=1e-6,
    messages_per_device=4,
    honest_share=1.0,
    layers=6,
    max_prefixes=30,
)
PLANTED = ("haha", "lol", "yeah", "cool")


def devices(count: int = 1200) -> list[list[str]]:
    rng = np.random.default_rng(0)
    rare = ["".join(rng.choice(list(LETTERS), size=5)) for _ in range(count)]
    return [["the", rare[number], *rng.choice(PLANTED, size=3).tolist()] for number in range(count)]


def run(folder: Path, people: list[list[str]] | None = None, progress=None, add_up=None, **changes) -> DiscoveryResult:
    config = TrieConfig.model_validate(CONFIG.model_dump() | changes)
    people = devices() if people is None else people
    return trie.discover(
        people,
        known_words=frozenset({"the"}),
        alphabet=LETTERS,
        config=config,
        key=KEY,
        directory=folder,
        progress=progress,
        add_up=add_up,
    )


def test_groups_part_the_population():
    groups = participation.assign(101, CONFIG, KEY, frozenset())
    assert len(groups) == 6
    assert sorted(np.concatenate(list(groups.values())).tolist()) == list(range(101))
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
    words = [first + second for first in LETTERS for second in LETTERS[:4]] + ["abcde"]
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
    return folder, run(folder)


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
def test_killed_in_a_layer_ends_the_same(whole, tmp_path):
    class Killed(Exception):
        pass

    def stop(point: dict) -> None:
        if point["layer"] == 2:
            raise Killed

    with pytest.raises(Killed):
        run(tmp_path / "cut", progress=stop)
    # What was asked just before the crash is asked again of the same devices, and answered the same.
    (tmp_path / "cut" / "layer-02.json").unlink()
    assert run(tmp_path / "cut") == whole[1]


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
    strict = run(tmp_path / "strict", anonymity=120)
    assert all(a.word_votes < b.word_votes for a, b in zip(plain.rows, strict.rows, strict=False) if a.layer > 1)
    assert all(row.one_holder_chance < 1e-3 for row in plain.rows)
    assert {word.word for word in strict.words} <= {word.word for word in plain.words}
    impossible = run(tmp_path / "impossible", anonymity=1201)
    assert not impossible.words
    assert all(row.word_votes == row.messages + 1 for row in impossible.rows)


def test_too_few_devices_for_all_layers_is_said(tmp_path):
    with pytest.raises(ValueError, match="6 layers need as many"):
        run(tmp_path, devices(5))


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

    people = devices(240)
    plain, summed = run(tmp_path / "plain", people), run(tmp_path / "summed", people, add_up=add_up)
    assert summed == plain
    assert len({stream for _, _, stream in streams}) == len(streams) == len(plain.rows)
    assert sum(count for count, _, _ in streams) == sum(row.messages for row in plain.rows) // 4
