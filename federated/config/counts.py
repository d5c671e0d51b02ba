"""Configuration of private counts, the second way to learn from devices."""

from typing import Literal

from pydantic import Field

from pretrain.config import Amount, Config


class CountsConfig(Config):
    """Noisy counts of words and pairs, released once: beside training, or in its place."""

    noise_multiplier: Amount = Field(
        description="standard deviation of the noise, in clip norms: rho is 1 / (2 noise_multiplier^2)"
    )
    model: Literal["network", "mixture", "counts"] = Field(
        description="what ships: the network alone, the counts being compared only; network and counts mixed; or the "
        "counts alone, and then nothing is trained on devices"
    )

    @property
    def rho(self) -> float:
        """Device-level rho of the one release."""
        return 1 / (2 * self.noise_multiplier**2)
