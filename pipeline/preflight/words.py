"""Privacy loss of local and of central word discovery, for a launch's own population."""

from dataclasses import dataclass, field

from discovery import outlook
from discovery.config import CentralConfig, TrieConfig
from discovery.outlook import Reach
from pipeline.launch.config import LaunchConfig
from pipeline.preflight.vocabulary import found
from pipeline.releases.central_words import central_discovery
from pretrain.text import tokenise
from reports.losses import strength, up


@dataclass(frozen=True)
class LocalWords:
    """Cost of word discovery under local differential privacy.

    Attributes:
      chosen: True if the launch file uses local discovery.
      local, shuffled: see ``discovery.outlook.LocalOutlook``.
      reach: words that it may find.
    """

    kind: str
    chosen: bool
    local: float
    shuffled: float
    delta: float
    reach: Reach
    messages_per_device: int
    epsilon0: float
    honest_share: float

    def __str__(self) -> str:
        messages = "1 message" if self.messages_per_device == 1 else f"{self.messages_per_device} messages"
        return (
            f"{self.kind}: trusts no party: {messages} at {self.epsilon0:g} cost epsilon "
            f"{up(self.local)} a device; shuffled, {up(self.shuffled)} a device at delta {self.delta:g} "
            f"({strength(self.shuffled)}) if {self.honest_share:.0%} of the others are honest; "
            f"{found(self.reach)}"
        )


@dataclass(frozen=True)
class CentralWords:
    """Cost of word discovery by a trusted aggregator.

    Attributes:
      chosen: True if the launch file uses central discovery.
      reach: words that it may find.
    """

    kind: str
    chosen: bool
    rho: float = field(metadata={"json": False})
    epsilon: float
    delta: float
    reach: Reach
    noise_multiplier: float
    words_per_device: int

    def __str__(self) -> str:
        return (
            f"{self.kind}: trusts an aggregator: epsilon {up(self.epsilon)} a device at delta {self.delta:g} "
            f"with noise_multiplier {self.noise_multiplier:.4g} and {self.words_per_device} words a "
            f"device; {found(self.reach)}"
        )


def both_ways(config: LaunchConfig, devices: int) -> tuple[LocalWords | CentralWords, ...]:
    """Cost of the launch file's own kind of word discovery, then of the other kind.

    Args:
      devices: number of training devices.
    """
    own, alphabet, base = config.discovery, tokenise.alphabet(config.locale), config.vocabulary.base_size
    if isinstance(own, CentralConfig):
        other = outlook.LOCAL.model_copy(update={"delta": own.delta})
        return _central(own, devices, alphabet, base, True), _local(other, devices, alphabet, base, False)
    reaching = outlook.as_far_reaching(own, devices, alphabet, base)
    return _local(own, devices, alphabet, base, True), _central(reaching, devices, alphabet, base, False)


def _local(config: TrieConfig, devices: int, alphabet: str, base: int, chosen: bool) -> LocalWords:
    projected = outlook.local(config, devices, alphabet)
    return LocalWords(
        kind=config.kind,
        chosen=chosen,
        **vars(projected),
        reach=outlook.reach(config, devices, alphabet, base),
        messages_per_device=config.messages_per_device,
        epsilon0=config.epsilon0,
        honest_share=config.honest_share,
    )


def _central(config: CentralConfig, devices: int, alphabet: str, base: int, chosen: bool) -> CentralWords:
    spend = central_discovery(config)
    return CentralWords(
        kind=config.kind,
        chosen=chosen,
        rho=config.rho,
        epsilon=spend.epsilon,
        delta=spend.delta,
        reach=outlook.reach(config, devices, alphabet, base),
        noise_multiplier=config.noise_multiplier,
        words_per_device=config.words_per_device,
    )
