"""Configuration of private counts, the second way to learn from devices."""

from typing import Literal

from pydantic import Field

from pretrain.config import Amount, SpendingBlock

Ships = Literal["network", "mixture", "counts"]
# Of a pair at the start of a sentence, beside one after a word. It is one context among hundreds, where most of what
# counts can teach lies (every seventh word is typed there, and half of the uses of discovered words): twice halves its
# noise, and what devices lose of all else to the clip was not measurable; three times costs a tenth of a point.
START_WEIGHT = 2.0


class CountsConfig(SpendingBlock):
    """Noisy counts of words and pairs, released once: beside training, or in its place."""

    noise_multiplier: Amount = Field(
        description="standard deviation of the noise, in clip norms: rho is 1 / (2 noise_multiplier^2)"
    )
    model: Literal["network", "mixture", "counts", "start-mixture"] = Field(
        description="what ships: the network alone, trained from a start that the counts moved; network and counts "
        "mixed; the counts alone; or the counts mixed with the network of public text. With the last two nothing is "
        "trained on devices"
    )

    @property
    def moves_start(self) -> bool:
        """Return whether training begins with the network of public text moved by the counts."""
        return self.model == "network"

    @property
    def trains(self) -> bool:
        """Return whether a network is trained on devices beside the counts."""
        return self.model in ("network", "mixture")

    @property
    def ships(self) -> Ships:
        """Models that the launch publishes."""
        return "mixture" if self.model == "start-mixture" else self.model
