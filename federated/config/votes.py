"""Configuration of a private vote over public sentences."""

from pydantic import Field

from pretrain.config import Amount, Config


class VotesConfig(Config):
    """Each device votes once for the groups of public sentences that are like what it types."""

    noise_multiplier: Amount = Field(
        description="standard deviation of the noise, in votes of one device: rho is 1 / (2 noise_multiplier^2)"
    )

    @property
    def rho(self) -> float:
        """Device-level rho of the one release."""
        return 1 / (2 * self.noise_multiplier**2)
