"""Configuration of private word discovery (LDP TrieHH, Sun & Sun 2024)."""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from pretrain.config import Config, Fraction


class Anonymity(Config):
    """A word typed into fewer than ``holders`` messages is published with at most probability ``chance``."""

    holders: PositiveInt
    chance: Fraction


class DiscoveryConfig(Config):
    """One discovery. Privacy parameters have no defaults: the YAML states them."""

    epsilon0: PositiveFloat = Field(description="local epsilon of one message (item level)")
    delta: Fraction = Field(description="delta of the shuffled, central statement")
    messages_per_device: PositiveInt = Field(description="contribution bound C; every device sends exactly C")
    layers: Annotated[int, Field(ge=2, le=64)] = Field(description="trie depth L; words have at most L - 1 characters")
    max_prefixes: PositiveInt = Field(description="cap on prefixes kept per layer")
    passes: Annotated[int, Field(ge=1, le=16)] = Field(
        default=1, description="runs over the trie, each on devices of its own and without the words found before"
    )
    sampler: Literal["random", "greedy"] = "random"
    significance_z: Annotated[float, Field(ge=0.0)] = Field(
        default=4.0, description="finished words must stand this many standard deviations above noise"
    )
    anonymity: Anonymity | None = Field(default=None, description="absolute threshold on published words, if any")
    alphabet: Literal["locale", "printable"] = "locale"
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = Field(
        default=0.0, description="share of asked devices that never answer, simulated"
    )
    projected_words: PositiveInt = Field(
        default=200,
        description="words a pretended typist types, where coverage is projected from public text; asks no device",
    )
    blocklist: str | None = Field(default=None, description="file of words never to suggest in this locale")
