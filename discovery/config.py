"""Configuration of private word discovery: local (LDP TrieHH, Sun & Sun 2024), or with a trusted aggregator."""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from pretrain.config import LEAST_AMOUNT, Config, Fraction, LaunchPath, SpendingBlock

# Largest expected share of a layer's words that nobody types.
FALSE_DISCOVERY_RATE = 0.05


# Share of a central discovery's delta for the release of a word of one device alone. Among 0.1, 0.3 and 0.5 this share
# found most words of typed chat, by a small margin (LOG, "Discovery").
FAILURE_SHARE = 0.3
# Largest noise multiplier whose noise is exact on the grid of sums.
MOST_NOISE = 1e5


class TrieConfig(Config):
    """A local discovery, without a trusted party. Privacy parameters have no defaults: the YAML states them."""

    kind: Literal["ldp-triehh"] = Field(description="no party is trusted with words: LDP TrieHH")
    epsilon0: PositiveFloat = Field(ge=1e-3, le=100, description="local epsilon of one message (item level)")
    delta: Fraction = Field(
        ge=1e-30, description="share of the launch's delta for words, at which all messages of a device are certified"
    )
    messages_per_device: PositiveInt = Field(
        le=10_000, description="contribution bound C; every device sends exactly C"
    )
    honest_share: Annotated[float, Field(ge=0.0, le=1.0)] = Field(
        description="share of the other devices of a layer that are assumed to answer honestly and to keep "
        "their messages secret; certificates use their messages only"
    )
    sampler: Literal["random", "greedy"] = Field(
        default="random",
        description="selection of the OOV words that a device reports: random, or the most frequent, as in the paper",
    )
    layers: Annotated[int, Field(ge=2, le=64)] = Field(description="trie depth L; words have at most L - 1 characters")
    max_prefixes: PositiveInt = Field(le=1_000_000, description="cap on prefixes kept per layer")
    anonymity: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = Field(
        default=None,
        description="a word typed into fewer messages is published with at most one chance in a million, if set",
    )
    blocklist: LaunchPath | None = Field(
        default=None, description="file of words never to suggest in this locale, from the launch file's folder"
    )


class CentralConfig(SpendingBlock):
    """A discovery by a trusted aggregator, with the trust of training. Privacy parameters have no defaults."""

    kind: Literal["central"] = Field(description="an aggregator is trusted with words, as in training")
    noise_multiplier: Annotated[float, Field(ge=LEAST_AMOUNT, le=MOST_NOISE)] = Field(
        description="standard deviation of the noise; one device moves all sums by at most 1"
    )
    words_per_device: Annotated[int, Field(ge=1, le=10_000)] = Field(
        description="largest number of distinct OOV words that a device contributes"
    )
    delta: Fraction = Field(ge=1e-30, description="delta of the statement on words, the threshold's failure included")
    blocklist: LaunchPath | None = Field(
        default=None, description="file of words never to suggest in this locale, from the launch file's folder"
    )

    @property
    def failure(self) -> float:
        """Largest probability that a word of one device alone is released."""
        return FAILURE_SHARE * self.delta


DiscoveryConfig = Annotated[TrieConfig | CentralConfig, Field(discriminator="kind")]
# Fields that do not affect the answers: changing one does not make another discovery.
AFTERWARDS = frozenset({"blocklist"})
