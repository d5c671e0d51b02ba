"""Configuration of private word discovery: local (LDP TrieHH, Sun & Sun 2024), or with a trusted aggregator."""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from pretrain.config import LEAST_AMOUNT, Config, Fraction, Line, SpendingBlock

# Words that a pretended typist types, where coverage is projected from public text; asks no device.
PROJECTED_WORDS = 200
# Deviations above noise that a finished word needs where no rate of false discoveries is set.
SIGNIFICANCE_Z = 4.0


# The part of a central discovery's delta that is the chance of a word of one device alone being released. Of 0.1, 0.3
# and 0.5 it found most words of typed chat, by little (LOG, "Discovery").
FAILURE_SHARE = 0.3
# So much noise is still written exactly on the grid of sums.
MOST_NOISE = 1e5


class TrieConfig(Config):
    """A local discovery: nobody is trusted. Privacy parameters have no defaults: the YAML states them."""

    kind: Literal["ldp-triehh"] = Field(description="nobody is trusted with words: LDP TrieHH")
    epsilon0: PositiveFloat = Field(ge=1e-3, le=100, description="local epsilon of one message (item level)")
    delta: Fraction = Field(
        ge=1e-30, description="what of the launch's delta words have: at it all messages of a device are certified"
    )
    messages_per_device: PositiveInt = Field(
        le=10_000, description="contribution bound C; every device sends exactly C"
    )
    honest_share: Annotated[float, Field(ge=0.0, le=1.0)] = Field(
        description="share of the other devices of a layer that are assumed to answer as agreed and to tell nobody; "
        "certificates count on their messages alone"
    )
    sampler: Literal["random", "greedy"] = Field(
        default="random",
        description="which of its unknown words a device tells of: any, or those that it typed most, as in the paper",
    )
    layers: Annotated[int, Field(ge=2, le=64)] = Field(description="trie depth L; words have at most L - 1 characters")
    max_prefixes: PositiveInt = Field(le=1_000_000, description="cap on prefixes kept per layer")
    false_discovery_rate: Fraction | None = Field(
        default=None,
        description="share of a layer's words that nobody types, at most and on average; if not set, a fixed threshold",
    )
    anonymity: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = Field(
        default=None,
        description="a word typed into fewer messages is published with at most one chance in a million, if set",
    )
    blocklist: Line | None = Field(default=None, description="file of words never to suggest in this locale")


class CentralConfig(SpendingBlock):
    """A discovery by an aggregator that is trusted, as training's is. Privacy parameters have no defaults."""

    kind: Literal["central"] = Field(description="an aggregator is trusted with words, as training's is")
    noise_multiplier: Annotated[float, Field(ge=LEAST_AMOUNT, le=MOST_NOISE)] = Field(
        description="deviation of the noise, where a device moves all sums by at most 1"
    )
    words_per_device: Annotated[int, Field(ge=1, le=10_000)] = Field(
        description="distinct unknown words that a device contributes at most"
    )
    delta: Fraction = Field(ge=1e-30, description="delta of the statement on words, the threshold's failure included")
    blocklist: Line | None = Field(default=None, description="file of words never to suggest in this locale")

    @property
    def failure(self) -> float:
        """Largest probability that a word of one device alone is released."""
        return FAILURE_SHARE * self.delta


DiscoveryConfig = Annotated[TrieConfig | CentralConfig, Field(discriminator="kind")]
# Fields that no answer depends on: changing one does not make the answers another discovery's.
AFTERWARDS = frozenset({"blocklist"})
