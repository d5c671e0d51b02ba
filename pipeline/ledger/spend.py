"""Privacy loss of one release, as a stage states it and a ledger entry stores it."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Split = Literal["train", "validation", "test"]
# Fields of a spend that an entry of the ledger keeps in its binding.
BESIDE = ("failure", "split", "messages", "device_epsilon", "device_delta")


class Spend(BaseModel):
    """Privacy loss of one release to its unit and, for messages about items, also to their device.

    Guarantee: but for an event of probability ``failure`` the release is ``rho``-zCDP for one device of ``split``
    (approximate zCDP, Bun & Steinke 2016, definition 8.1), and a device of another split loses nothing. Epsilon at a
    delta is then the Gaussian curve at that delta less the failures.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    unit: Literal["device", "item"]
    adjacency: str = Field(description="'zero-out' for training, 'swap' for discovery")
    rho: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] | None = Field(description="zCDP; unit device only")
    epsilon: Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
    delta: Annotated[float, Field(ge=0.0, lt=1.0)]
    note: str = ""
    failure: Annotated[float, Field(ge=0.0, lt=1.0)] = Field(
        default=0.0, description="probability with which rho or epsilon does not hold; it adds up over releases"
    )
    split: Split = Field(default="train", description="split whose devices bear the loss")
    messages: Annotated[int, Field(ge=0)] = Field(default=0, description="messages about items that a device sends")
    device_epsilon: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = Field(
        default=0.0, description="loss to all messages of a device, at device_delta; unit item only"
    )
    device_delta: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0

    def model_post_init(self, _context: object) -> None:
        if (self.unit == "device") != (self.rho is not None):
            raise ValueError(
                f"rho: {self.rho!r} with unit {self.unit!r}; a device-level spend states rho, "
                "an item-level one leaves it None because the two never add up"
            )
        if self.unit == "item" and self.epsilon and not (self.messages and self.device_epsilon):
            raise ValueError(
                f"device_epsilon: {self.device_epsilon} with {self.messages} messages of epsilon {self.epsilon}; state "
                "the device's loss to all of them, which counts against the budget of the device"
            )
