"""Whole discoveries: what they find, what they keep, and which of them may be gone on with."""

from pathlib import Path

import pytest

from discovery.config import TrieConfig
from tests.helpers.text.tries import KEY, PLANTED, discovered, trie_config, typists


@pytest.mark.slow
def test_finds_what_many_type_and_nothing_else(tmp_path: Path) -> None:
    found = discovered(tmp_path, typists())
    assert {word.word for word in found.words} == set(PLANTED)
    for word in found.words:
        assert 0 < word.low < word.share < word.high
    assert found.device_level_epsilon0 == 32.0
    assert found.epsilon_central == max(row.clones for row in found.rows) <= 8.0
    assert found.epsilon_attack <= found.epsilon_blanket <= found.epsilon_central
    assert all(row.messages == 400 for row in found.rows)


@pytest.mark.slow
def test_rare_words_and_noise_alone_find_nothing(tmp_path: Path) -> None:
    people = [[row[1]] for row in typists()]
    assert not discovered(tmp_path, people).words


def test_no_surviving_prefix_ends_early(tmp_path: Path) -> None:
    found = discovered(tmp_path, [["the"]] * 60, config=trie_config(epsilon0=30.0))
    assert len(found.rows) == 1
    assert not found.words


def test_too_few_devices_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="lower layers"):
        discovered(tmp_path, [["haha"]] * 3)


def test_no_letters_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="alphabet"):
        discovered(tmp_path, typists(), alphabet="")


SMALL = trie_config(epsilon0=6.0, messages_per_device=2, layers=4, max_prefixes=20)
PEOPLE = [["lol", "the", "haha"[: 1 + number % 3]] for number in range(120)]


def small(directory: Path, **changes):
    return discovered(directory, **{"people": PEOPLE, "alphabet": "ahlot", "config": SMALL} | changes)


def changed(**fields) -> TrieConfig:
    return SMALL.model_copy(update=fields)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"config": changed(epsilon0=2.0)},
        {"config": changed(messages_per_device=3)},
        {"config": changed(max_prefixes=5)},
        {"known_words": frozenset({"the", "lol"})},
        {"alphabet": "ahlo"},
        {"key": KEY[::-1]},
        {"people": [*PEOPLE[:-1], ["lol", "the", "lol"]]},
    ],
    ids=["epsilon0", "messages", "prefixes", "known", "alphabet", "key", "people"],
)
def test_layers_of_another_discovery_are_not_resumed(tmp_path, change):
    whole = small(tmp_path)
    (tmp_path / "layer-03.json").unlink()
    before = contents(tmp_path)  # who was asked, too
    with pytest.raises(ValueError, match="start a new launch"):
        small(tmp_path, **change)
    assert contents(tmp_path) == before
    assert small(tmp_path, config=changed(blocklist="list.txt")) == whole  # read after the discovery


def test_layers_that_say_nothing_of_their_origin_are_not_resumed(tmp_path):
    small(tmp_path)
    (tmp_path / "fingerprint").unlink()
    with pytest.raises(ValueError, match="unknown discovery"):
        small(tmp_path)


def test_what_is_kept_holds_no_word_that_was_not_found(tmp_path):
    secret = "hatlo"
    small(tmp_path, people=[*PEOPLE, [secret] * 50], config=changed(layers=6, epsilon0=10.0))
    kept = b"".join(contents(tmp_path).values())
    assert b"layer" in kept
    assert secret.encode() not in kept


def test_a_folder_that_was_open_is_closed_before_anything_is_written(tmp_path):
    (tmp_path / "layers").mkdir(mode=0o755)
    small(tmp_path / "layers")
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "layers", tmp_path / "layers/participation"))
