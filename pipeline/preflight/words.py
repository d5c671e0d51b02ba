"""Privacy loss of local and of central word discovery, for a launch's own population."""

from dataclasses import dataclass, field

from discovery import outlook
from discovery.config import MOST_NOISE, CentralConfig, TrieConfig
from discovery.outlook import Reach
from pipeline.launch.config import LaunchConfig
from pipeline.preflight.vocabulary import found
from pipeline.releases.central_words import central_discovery
from pretrain.text import tokenise
from reports.losses import strength, up

_REACH, _COST = "at equal reach", "at equal epsilon"
# Local epsilons of one message and noise multipliers among which the other kind is sought.
_LOCAL, _NOISE = (1e-3, 20.0), (1e-3, MOST_NOISE)


@dataclass(frozen=True)
class LocalWords:
    """Cost of word discovery under local differential privacy.

    Attributes:
      compared: ``this file``, or what it has in common with the file's own discovery.
      local, shuffled: see ``discovery.outlook.LocalOutlook``.
      reach: words that it may find.
    """

    kind: str
    compared: str
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
            f"{self.kind}, {self.compared}: trusts no party: {messages} at {self.epsilon0:.4g} cost epsilon "
            f"{up(self.local)} a device; shuffled, {up(self.shuffled)} a device at delta {self.delta:g} "
            f"({strength(self.shuffled)}) if {self.honest_share:.0%} of the others are honest; "
            f"{found(self.reach)}"
        )


@dataclass(frozen=True)
class CentralWords:
    """Cost of word discovery by a trusted aggregator.

    Attributes:
      compared: see ``LocalWords``.
      reach: words that it may find.
    """

    kind: str
    compared: str
    rho: float = field(metadata={"json": False})
    epsilon: float
    delta: float
    reach: Reach
    noise_multiplier: float
    words_per_device: int

    def __str__(self) -> str:
        return (
            f"{self.kind}, {self.compared}: trusts an aggregator: epsilon {up(self.epsilon)} a device at delta "
            f"{self.delta:g} with noise_multiplier {self.noise_multiplier:.4g} and {self.words_per_device} words a "
            f"device; {found(self.reach)}"
        )


def both_ways(config: LaunchConfig, devices: int) -> tuple[LocalWords | CentralWords, ...]:
    """The launch file's word discovery, then the other kind where it reaches as far and where it costs as much.

    A local discovery is compared by one message of a device: at equal epsilon several find less.

    Args:
      devices: number of training devices.
    """
    own, alphabet, base = config.discovery, tokenise.alphabet(config.locale), config.vocabulary.base_size
    few, many = outlook.held(base)

    def centrally(noise: float) -> CentralConfig:
        return CentralConfig(kind="central", noise_multiplier=noise, words_per_device=many, delta=own.delta)

    def locally(epsilon0: float) -> TrieConfig:
        return outlook.one_message(devices, epsilon0, own.delta)

    if isinstance(own, CentralConfig):
        stated = _central(own, devices, alphabet, base, "this file")
        reach, cost = stated.reach.shares[0], stated.epsilon
        far = outlook.solved(lambda at: outlook.local_share(locally(at), devices, alphabet), reach, *_LOCAL)
        dear = outlook.solved(lambda at: outlook.local(locally(at), devices, alphabet).shuffled, cost, *_LOCAL)
        others = [(locally(at), as_) for at, as_ in ((far, _REACH), (dear, _COST))]
        return stated, *(_local(each, devices, alphabet, base, as_) for each, as_ in others)
    found = _local(own, devices, alphabet, base, "this file")
    far = outlook.solved(lambda at: outlook.least_share(centrally(at), devices, few), found.reach.shares[0], *_NOISE)
    dear = outlook.solved(lambda at: central_discovery(centrally(at)).epsilon, found.shuffled, *_NOISE)
    ends = ((far, _REACH), (dear, _COST))
    return found, *(_central(centrally(at), devices, alphabet, base, as_) for at, as_ in ends)


def _local(config: TrieConfig, devices: int, alphabet: str, base: int, compared: str) -> LocalWords:
    projected = outlook.local(config, devices, alphabet)
    return LocalWords(
        kind=config.kind,
        compared=compared,
        **vars(projected),
        reach=outlook.reach(config, devices, alphabet, base),
        messages_per_device=config.messages_per_device,
        epsilon0=config.epsilon0,
        honest_share=config.honest_share,
    )


def _central(config: CentralConfig, devices: int, alphabet: str, base: int, compared: str) -> CentralWords:
    spend = central_discovery(config)
    return CentralWords(
        kind=config.kind,
        compared=compared,
        rho=config.rho,
        epsilon=spend.epsilon,
        delta=spend.delta,
        reach=outlook.reach(config, devices, alphabet, base),
        noise_multiplier=config.noise_multiplier,
        words_per_device=config.words_per_device,
    )
