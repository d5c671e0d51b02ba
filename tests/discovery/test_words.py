"""From a device's words to found words: the device's path, whole runs, filters."""

from pathlib import Path

import numpy as np
import pytest

from discovery import discover as trie
from discovery.config import TrieConfig
from discovery.coverage import coverage
from discovery.device import votes as shards
from discovery.device.answer import END, Broadcast, report
from discovery.device.keystream import Keystream
from discovery.device.randomizer import of_size, subset_selection
from discovery.filters import PASSED, read_blocklist, verdicts

KEY = bytes(range(32))
CONFIG = TrieConfig(
    kind="ldp-triehh", epsilon0=8.0, delta=1e-6, messages_per_device=4, honest_share=1.0, layers=6, max_prefixes=30
)
ALPHABET = "abcdefghijklmnopqrstuvwxyz"
PLANTED = ("haha", "lol", "yeah", "cool")


def heard(words: list[str], layer: int = 1, prefixes: tuple[str, ...] = ("",)) -> set[str | None]:
    """Candidates behind a device's messages, read with a randomiser that all but never lies."""
    broadcast = Broadcast(layer, prefixes, ALPHABET + END)
    randomizer = of_size(200.0, broadcast.domain, 1)
    sent = report(words, frozenset({"the"}), broadcast, randomizer, CONFIG, Keystream(KEY, "d"))
    assert sent.shape == (4, 1)
    items = set(sent.ravel().tolist())
    return {None if item == broadcast.none else broadcast.candidate(item) for item in items}


def test_device_says_only_what_may_be_said() -> None:
    assert heard(["haha", "the", "zzzzzzzzz", "naïve"]) == {"h", None}
    assert heard(["haha", "hello"], layer=3, prefixes=("he",)) == {"hel", None}
    assert heard(["ha", "he"], layer=3, prefixes=("ha",)) == {"ha" + END, None}
    assert heard([]) == {None}


def devices(count: int = 600) -> list[list[str]]:
    rng = np.random.default_rng(0)
    rare = ["".join(rng.choice(list(ALPHABET), size=5)) for _ in range(count)]
    return [["the", rare[number], *rng.choice(PLANTED, size=3).tolist()] for number in range(count)]


def run(folder: Path, people: list[list[str]], key: bytes = KEY, config: TrieConfig = CONFIG, **more: object):
    return trie.discover(
        people, known_words=frozenset({"the"}), alphabet=ALPHABET, config=config, key=key, directory=folder, **more
    )


@pytest.mark.slow
def test_finds_what_many_type_and_nothing_else(tmp_path: Path) -> None:
    found = run(tmp_path, devices())
    assert {word.word for word in found.words} == set(PLANTED)
    for word in found.words:
        assert 0 < word.low < word.share < word.high
    assert found.device_level_epsilon0 == 32.0
    assert found.epsilon_central == max(row.clones for row in found.rows) <= 8.0
    assert found.epsilon_attack <= found.epsilon_blanket <= found.epsilon_central
    assert all(row.messages == 400 for row in found.rows)


@pytest.mark.slow
def test_rare_words_and_noise_alone_find_nothing(tmp_path: Path) -> None:
    people = [[row[1]] for row in devices()]
    assert not run(tmp_path, people).words


@pytest.mark.slow
def test_killed_between_layers_ends_the_same(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", devices())

    class Killed(Exception):
        pass

    def stop(point: dict) -> None:
        if point["layer"] == 3:
            raise Killed

    with pytest.raises(Killed):
        run(tmp_path / "cut", devices(), progress=stop)
    done = {path.name for path in (tmp_path / "cut").glob("*.json")}
    assert done == {f"layer-0{number}.json" for number in (1, 2, 3)}
    assert run(tmp_path / "cut", devices()) == whole


@pytest.mark.slow
def test_a_retry_sends_the_same_bits_and_another_key_others(tmp_path: Path) -> None:
    first = run(tmp_path / "a", devices())
    assert run(tmp_path / "b", devices()) == first
    assert run(tmp_path / "c", devices(), key=KEY[::-1]) != first


@pytest.mark.slow
def test_layers_of_other_words_are_refused(tmp_path: Path) -> None:
    run(tmp_path, devices())
    other = devices()
    other[-1][-1] = next(word for word in PLANTED if word != other[-1][-1])
    with pytest.raises(ValueError, match="a discovery with other devices"):
        run(tmp_path, other)


def test_no_surviving_prefix_ends_early(tmp_path: Path) -> None:
    found = run(tmp_path, [["the"]] * 60, config=CONFIG.model_copy(update={"epsilon0": 30.0}))
    assert len(found.rows) == 1
    assert not found.words


def test_too_few_devices_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="lower layers"):
        run(tmp_path, [["haha"]] * 3)


def test_domain_counts_every_candidate_and_none() -> None:
    broadcast = Broadcast(2, ("a", "b"), "xy" + END)
    names = [broadcast.candidate(item) for item in range(broadcast.none)]
    assert names == ["ax", "ay", "a" + END, "bx", "by", "b" + END]
    assert [broadcast.item(name) for name in names] == list(range(6))
    assert broadcast.item("cx") is None
    assert broadcast.item("aq") is None
    assert subset_selection(8.0, broadcast.domain).domain == 7


def test_filters_say_why_a_word_may_not_go_on(tmp_path: Path) -> None:
    listed = tmp_path / "blocked.txt"
    listed.write_text("# reviewed\n\nslur\n  straße \n", encoding="utf-8")
    words = {
        "haha": None, "it's": None, "mp3": None, "e.g": None, "co-op": None, "éa": None,
        "call1234": "digits", "a@b.org": "e-mail", "@bob": "handle", "www.x": "web address",
        "shop.xyz": "web address", "de89abcdef": "account number", "x": "one letter", "--": "no letter",
        "a\u200bb": "invisible character", "Slur": "blocklist", "STRASSE": "blocklist",
    }  # fmt: skip
    assert verdicts(words, blocked=read_blocklist(listed)) == [reason or PASSED for reason in words.values()]


def test_coverage_is_a_share_of_tokens() -> None:
    assert coverage(["haha", "lol", "lol"], [{"haha": 6, "xyzzy": 2}], 0.9) == (0.75, 0.0, 1.0)
    assert coverage(["haha"], [{}], 0.9)[0] == coverage(["haha"], [], 0.9)[0] == 0.0


def test_coverage_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    rates, sizes = rng.beta(2, 3, size=20_000), rng.integers(0, 60, size=20_000)
    covered = rng.binomial(sizes, rates)
    truth = covered.sum() / sizes.sum()
    hits = too_narrow = 0
    for sample_of in rng.integers(0, 20_000, size=(300, 80)):
        devices = [{"haha": int(covered[d]), "zzz": int(sizes[d] - covered[d])} for d in sample_of]
        share, low, high = coverage(["haha"], devices, 0.95)
        hits += low <= truth <= high
        total = sum(sum(counts.values()) for counts in devices)
        assert share == sum(counts["haha"] for counts in devices) / total
        # Tokens of a device are alike: an interval that counts tokens is too narrow.
        too_narrow += abs(share - truth) <= 1.96 * np.sqrt(share * (1 - share) / total)
    assert 0.91 <= hits / 300 <= 0.98
    assert too_narrow / 300 < 0.75
    assert coverage(["haha"], [{}, {}], 0.9) == (0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="confidence"):
        coverage(["haha"], [{"haha": 1}], 1.0)


@pytest.mark.slow
def test_one_by_one_and_together_find_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = run(tmp_path / "alone", devices())
    monkeypatch.setattr(shards, "WORTH_COMPILING", 1)
    monkeypatch.setattr(shards, "SHARD_DEVICES", 37)
    assert run(tmp_path / "together", devices()) == alone


def test_no_letters_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="alphabet"):
        trie.discover(devices(), known_words=frozenset(), alphabet="", config=CONFIG, key=KEY, directory=tmp_path)
