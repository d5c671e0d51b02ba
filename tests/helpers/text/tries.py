"""Discoveries of local words that are small enough for a test."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from discovery import discover as trie
from discovery.config import TrieConfig
from discovery.results import DiscoveryResult

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
KEY = bytes(range(32))
PLANTED = ("haha", "lol", "yeah", "cool")


def trie_config(**changes: object) -> TrieConfig:
    """Settings under which six hundred devices find the words that all of them type."""
    values = {"kind": "ldp-triehh", "epsilon0": 8.0, "delta": 1e-6, "messages_per_device": 4, "honest_share": 1.0}
    return TrieConfig.model_validate(values | {"layers": 6, "max_prefixes": 30} | changes)


def typists(count: int = 600) -> list[list[str]]:
    """Words of devices: a known one, one that nobody else types, and some of ``PLANTED``."""
    rng = np.random.default_rng(0)
    rare = ["".join(rng.choice(list(ALPHABET), size=5)) for _ in range(count)]
    return [["the", rare[number], *rng.choice(PLANTED, size=3).tolist()] for number in range(count)]


def discovered(folder: Path, people: Sequence[Sequence[str]], **given: object) -> DiscoveryResult:
    """Words of these people that no keyboard knows; ``the`` is known."""
    usual = {"known_words": frozenset({"the"}), "alphabet": ALPHABET, "config": trie_config(), "key": KEY}
    return trie.discover(people, directory=folder, **usual | given)
