"""Configuration of private counts, the second way to learn from devices."""

from typing import Annotated, Literal

from pydantic import Field

from pretrain.config import Amount, SpendingBlock

Ships = Literal["network", "mixture", "counts"]
# Weight of a pair at the start of a sentence, relative to a pair after a word. The start is one context among hundreds,
# with most of the gain of counts (every seventh word is typed there, and half of the uses of discovered words). A
# weight of 2 halves its noise, without a measurable loss of other counts to the clip; a weight of 3 costs a tenth of a
# point.
START_WEIGHT = 2.0
CONTEXTS = 500


class CountsConfig(SpendingBlock):
    """Noisy counts of words and pairs, released once: in addition to training, or instead of it."""

    noise_multiplier: Amount = Field(
        description="standard deviation of the noise, in clip norms: rho is 1 / (2 noise_multiplier^2)"
    )
    model: Literal["network", "mixture", "counts", "start-mixture"] = Field(
        description="shipped model: the network alone, trained from a start adapted by the counts; network and counts "
        "mixed; the counts alone; or the counts mixed with the network of public text. The last two train nothing on "
        "devices"
    )

    contexts: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=CONTEXTS, description="words of public text whose next word is counted, a sentence's start among them"
    )

    @property
    def moves_start(self) -> bool:
        """Return whether training starts from the network of public text, adapted by the counts."""
        return self.model == "network"

    @property
    def trains(self) -> bool:
        """Return whether a network is trained on devices in addition to the counts."""
        return self.model in ("network", "mixture")

    @property
    def ships(self) -> Ships:
        """Models that the launch publishes."""
        return "mixture" if self.model == "start-mixture" else self.model
