"""Configuration of private counts, the second way to learn from devices."""

from typing import Literal

from pydantic import Field

from pretrain.config import Amount, Config

Ships = Literal["network", "mixture", "counts"]


class CountsConfig(Config):
    """Noisy counts of words and pairs, released once: beside training, or in its place."""

    noise_multiplier: Amount = Field(
        description="standard deviation of the noise, in clip norms: rho is 1 / (2 noise_multiplier^2)"
    )
    model: Literal["network", "mixture", "counts", "start-mixture"] = Field(
        description="what ships: the network alone, the counts being compared only; network and counts mixed; the "
        "counts alone; or the counts mixed with the network of public text. With the last two nothing is trained on "
        "devices"
    )

    @property
    def rho(self) -> float:
        """Device-level rho of the one release."""
        return 1 / (2 * self.noise_multiplier**2)

    @property
    def trains(self) -> bool:
        """Whether a network is trained on devices beside them."""
        return self.model in ("network", "mixture")

    @property
    def ships(self) -> Ships:
        """What the launch publishes."""
        return "mixture" if self.model == "start-mixture" else self.model
