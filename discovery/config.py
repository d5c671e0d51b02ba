"""Configuration of private word discovery (LDP TrieHH, Sun & Sun 2024)."""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from pretrain.config import Config


class DiscoveryConfig(Config):
    """One single-pass discovery. Privacy parameters have no defaults: the YAML states them."""

    epsilon0: PositiveFloat = Field(description="local epsilon of one message (item level)")
    delta: Annotated[float, Field(gt=0.0, lt=1.0)] = Field(description="delta of the shuffled, central statement")
    messages_per_device: PositiveInt = Field(description="contribution bound C; every device sends exactly C")
    layers: Annotated[int, Field(ge=2, le=64)] = Field(description="trie depth L; words have at most L - 1 characters")
    max_prefixes: PositiveInt = Field(description="cap on prefixes kept per layer")
    sampler: Literal["random", "greedy"] = "random"
    significance_z: Annotated[float, Field(ge=0.0)] = Field(
        default=4.0, description="finished words must stand this many standard deviations above noise"
    )
    alphabet: Literal["locale", "printable"] = "locale"
