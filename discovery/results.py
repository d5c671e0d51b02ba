"""What a discovery says to the world, and what it keeps between layers."""

from pydantic import BaseModel, ConfigDict

from discovery.amplification import CERTIFICATE


class FoundWord(BaseModel):
    """A finished word and the share of its layer's messages that held it, with a 95% interval."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    word: str
    layer: int
    share: float
    low: float
    high: float


class Layer(BaseModel):
    """One layer as the report shows it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layer: int
    messages: int
    domain: int
    kept: int
    finished: int
    epsilon_central: float


class Bounds(BaseModel):
    """Central epsilon of one layer, from the messages received, three ways; bytes of one message."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    clones: float
    blanket: float
    attack: float
    message_bytes: int


class LayerState(BaseModel):
    """A finished layer. Votes are noisy, so all of it may be kept; the words are not reviewed yet."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    row: Layer
    prefixes: tuple[str, ...]
    words: tuple[FoundWord, ...]
    bounds: Bounds


class DiscoveryResult(BaseModel):
    """Public: words are outputs of the private mechanism, and nothing else here depends on a device.

    Guarantee: item-level ``epsilon0``-LDP under swap adjacency; ``messages_per_device * epsilon0``
    for a whole device; (epsilon_central, delta) for the item after shuffling, at the worst
    layer. None of these adds to the rho of training, whose unit is the device.

    Attributes:
      epsilon_central: by ``certificate``.
      epsilon_blanket: the same statement by the privacy blanket, never larger.
      epsilon_attack: what an explicit attack reaches; the truth lies between.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    words: tuple[FoundWord, ...]
    layers: tuple[Layer, ...]
    epsilon0: float
    messages_per_device: int
    device_level_epsilon0: float
    epsilon_central: float
    epsilon_blanket: float
    epsilon_attack: float
    delta: float
    certificate: str = CERTIFICATE
    unit: str = "item"
    adjacency: str = "swap"

    @property
    def guarantee(self) -> str:
        """The whole statement in words."""
        return (
            f"One typed word (unit: item, adjacency: swap): {self.epsilon0:g}-local differential privacy, whoever "
            f"sees the message. All {self.messages_per_device} messages of a device: {self.device_level_epsilon0:g}, "
            f"local. One typed word after shuffling, at the worst of {len(self.layers)} layers: "
            f"({self.epsilon_central:.4g}, {self.delta:g}) by {self.certificate}, if messages cannot be linked to "
            "devices. Each device answers in one layer only. Never add this to the rho of training: its unit is the "
            "device."
        )
