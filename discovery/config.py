"""Configuration of private word discovery (LDP TrieHH, Sun & Sun 2024)."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, PositiveFloat, PositiveInt

from pretrain.config import Config, Fraction, Line

# Words that a pretended typist types, where coverage is projected from public text; asks no device.
PROJECTED_WORDS = 200
# Deviations above noise that version 0.1 asked of each finished word; a rate of false discoveries replaces it.
SIGNIFICANCE_Z = 4.0


class DiscoveryConfig(Config):
    """One discovery. Privacy parameters have no defaults: the YAML states them."""

    retired: ClassVar[Mapping[str, Any]] = {
        "sampler": "random",
        "alphabet": "locale",
        "dropout": 0.0,
        "projected_words": PROJECTED_WORDS,
        "significance_z": SIGNIFICANCE_Z,
    }
    since_0_1: ClassVar[Mapping[str, Any]] = {"false_discovery_rate": None}

    epsilon0: PositiveFloat = Field(ge=1e-3, le=100, description="local epsilon of one message (item level)")
    delta: Fraction = Field(ge=1e-30, description="delta of the shuffled, central statement")
    messages_per_device: PositiveInt = Field(
        le=10_000, description="contribution bound C; every device sends exactly C"
    )
    layers: Annotated[int, Field(ge=2, le=64)] = Field(description="trie depth L; words have at most L - 1 characters")
    max_prefixes: PositiveInt = Field(le=1_000_000, description="cap on prefixes kept per layer")
    passes: Annotated[int, Field(ge=1, le=16)] = Field(
        default=1, description="runs over the trie, each on devices of its own and without the words found before"
    )
    false_discovery_rate: Fraction | None = Field(
        default=None,
        description="share of a layer's words that nobody types, at most and on average; if not set, a fixed threshold",
    )
    anonymity: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = Field(
        default=None,
        description="a word typed into fewer messages is published with at most one chance in a million, if set",
    )
    blocklist: Line | None = Field(default=None, description="file of words never to suggest in this locale")
