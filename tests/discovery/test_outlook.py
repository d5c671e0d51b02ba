"""Outlook of both kinds of discovery, against what discoveries really say and find."""

import re
from pathlib import Path

import pytest

from discovery import outlook, participation
from discovery.central.contributions import Shard
from discovery.central.select import select
from discovery.certificates.group import device
from discovery.config import CentralConfig
from discovery.device.answer import letters_of
from discovery.device.randomizer import subset_selection
from discovery.device.typed import TypedWords
from tests.helpers.text.tries import trie_config

ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def test_the_central_share_is_where_every_second_word_is_found() -> None:
    config = CentralConfig(kind="central", noise_multiplier=2.0, words_per_device=4, delta=1e-6)
    share, devices = outlook.least_share(config, 4_000, 4), 4_000
    groups, holders = 200, round(share * devices)
    # Every device fills its places; each word is on as many devices as the share says.
    held: list[list[str]] = [[] for _ in range(groups * holders // 4)]
    for number in range(groups):
        for place in range(holders):
            held[(number * holders + place) % len(held)].append(f"w{number}")
    found = select(lambda: [Shard(0, TypedWords.gather(held))], len(held), frozenset(), config, bytes(range(32)))
    assert {len(words) for words in held} == {4}
    assert 0.35 * groups < len(found.words) < 0.65 * groups


@pytest.mark.slow
@pytest.mark.parametrize(("held", "bound"), [(12, 4), (12, 12), (12, 40), (3, 12)])
def test_devices_that_hold_more_or_less_than_they_contribute_find_words_of_the_stated_share(held: int, bound: int):
    config = CentralConfig(kind="central", noise_multiplier=1.0, words_per_device=bound, delta=1e-6)
    devices = 4_000
    holders = round(outlook.least_share(config, devices, held) * devices)
    groups = held * devices // holders
    held_D: list[list[str]] = [[] for _ in range(devices)]
    for place in range(groups * holders):
        held_D[place % devices].append(f"w{place // holders}")
    found = select(lambda: [Shard(0, TypedWords.gather(held_D))], devices, frozenset(), config, bytes(range(32)))
    assert max(len(words) for words in held_D) == held
    assert 0.3 * groups < len(found.words) < 0.7 * groups


def test_a_goal_is_reached_where_it_can_be_and_the_nearest_end_is_taken_elsewhere() -> None:
    assert outlook.solved(lambda at: 3 * at, 6.0, 1.0, 10.0) == pytest.approx(2.0)
    assert outlook.solved(lambda at: -3 * at, -6.0, 1.0, 10.0) == pytest.approx(2.0)
    assert outlook.solved(lambda at: 3 * at, 60.0, 1.0, 10.0) == 10.0
    assert outlook.solved(lambda at: -3 * at, -60.0, 1.0, 10.0) == 10.0
    assert outlook.solved(lambda at: 3 * at, 0.0, 1.0, 10.0) == 1.0


@pytest.mark.slow
def test_more_devices_hide_one_and_find_rarer_words() -> None:
    config = trie_config(epsilon0=4.0, messages_per_device=5, max_prefixes=50)
    few, many = (outlook.local(config, devices, ALPHABET) for devices in (60, 2_000_000))
    assert few.local == many.local == 20.0
    assert few.shuffled > 10 > many.shuffled > 0
    shares = [outlook.reach(config, devices, ALPHABET, 8_000).shares for devices in (60, 2_000_000)]
    assert shares[0][0] > shares[1][0]


def test_what_can_be_found_by_nobody_is_a_share_of_one() -> None:
    config = CentralConfig(kind="central", noise_multiplier=50.0, words_per_device=9, delta=1e-6)
    assert outlook.least_share(config, 10, 9) == outlook.least_share(config, 0, 9) == 1.0


@pytest.mark.slow
def test_what_shuffling_promises_is_that_of_the_layer_that_hides_a_device_least() -> None:
    """A discovery of the real sizes: no layer of it is worse than the first."""
    config = trie_config(epsilon0=4.0, messages_per_device=5, max_prefixes=50)
    devices, known = 400_000, frozenset(f"{a}{b}{c}abc" for a in ALPHABET for b in ALPHABET for c in ALPHABET)
    sizes = participation.group_sizes(devices, config, known)
    letters = len(letters_of(ALPHABET))
    domains = [letters + 1, letters * letters + 1] + [50 * letters + 1] * 4
    stated = [
        device(subset_selection(4.0, domain), size // 10 * 10 * 5, 5, 1e-6)
        for size, domain in zip(sizes, domains, strict=True)
    ]
    seen = outlook.local(config, devices, ALPHABET).shuffled
    assert max(stated) == stated[0]
    assert seen == pytest.approx(stated[0], rel=0.02)


def test_devices_hold_as_many_words_as_in_the_committed_table() -> None:
    page = Path("benchmarks/results/vocabulary.md").read_text(encoding="utf-8")
    rows = [re.findall(r"\d+", line) for line in page.splitlines() if line.startswith("| such words of a person")]
    assert len(rows) == 6
    for base, numbers in zip((4_000, 8_000, 20_000), zip(*rows, strict=True), strict=True):
        assert outlook.held(base) == (min(map(int, numbers)), max(map(int, numbers)))


def test_new_words_are_those_of_the_committed_table() -> None:
    page = Path("benchmarks/results/vocabulary.md").read_text(encoding="utf-8").partition("Public talk")[2]
    rows = [re.findall(r"[\d.,]+", line) for line in page.splitlines() if re.match(r"\| [\d.]+% \|", line)]
    seen = 0
    for percent, *cells in rows:
        for base, words, part in zip((4_000, 8_000, 20_000), cells[::2], cells[1::2], strict=True):
            if float(percent) > 10:
                continue
            many, covered = outlook.typed_by(float(percent) / 100, base)
            assert many == pytest.approx(int(words.replace(",", "")))
            assert 100 * covered == pytest.approx(float(part))
            seen += 1
    assert seen == 24
    # Between the rows, and for bases between those of the table, the nearest one.
    assert 188 < outlook.typed_by(0.007, 7_000)[0] < 536
    assert outlook.typed_by(1e-9, 8_000) == outlook.typed_by(0.001, 8_000), "no row says more"
