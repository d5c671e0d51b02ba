"""Privacy cost of words in ``tacit plan``, local and central, at the launch's own population."""

from dataclasses import asdict

from discovery import outlook
from discovery.config import CentralConfig, TrieConfig
from pipeline.launch.config import LaunchConfig
from pipeline.releases.central_words import central_discovery
from pretrain import text
from reports.losses import strength, up


def both_ways(config: LaunchConfig, devices: int) -> tuple[list[dict], list[str]]:
    """JSON and lines of the file's own way of finding words, and of the other one beside it.

    Args:
      devices: that train.
    """
    local, alphabet = config.discovery, text.alphabet(config.locale)
    if isinstance(local, CentralConfig):
        ways: tuple[TrieConfig | CentralConfig, ...] = (local, outlook.LOCAL.model_copy(update={"delta": local.delta}))
    else:
        ways = (local, outlook.as_far_reaching(local, devices, alphabet))
    rows, lines = [], [f"Words of {devices:,} devices, this file's way first:"]
    for place, way in enumerate(ways):
        if isinstance(way, CentralConfig):
            content, line = _central(way, devices)
        else:
            content, line = _local(way, devices, alphabet)
        rows.append({"kind": way.kind, "chosen": place == 0} | content)
        lines.append(f"  {way.kind}: {line}")
    return rows, lines


def _local(config: TrieConfig, devices: int, alphabet: str) -> tuple[dict, str]:
    seen = outlook.local(config, devices, alphabet)
    line = (
        f"nobody is trusted: {config.messages_per_device} messages at {config.epsilon0:g} are epsilon "
        f"{up(seen.local)} a device; shuffled, {up(seen.shuffled)} a device at delta {seen.delta:g} "
        f"({strength(seen.shuffled)}) if {config.honest_share:.0%} of the others are honest; {_finds(seen.least_share)}"
    )
    return asdict(seen), line


def _central(config: CentralConfig, devices: int) -> tuple[dict, str]:
    spend, share = central_discovery(config), outlook.least_share(config, devices)
    line = (
        f"an aggregator is trusted: rho {config.rho:.4g}, epsilon {up(spend.epsilon)} a device at delta "
        f"{spend.delta:g} with noise_multiplier {config.noise_multiplier:.4g} and {config.words_per_device} words a "
        f"device; {_finds(share)}"
    )
    content = {"rho": config.rho, "epsilon": spend.epsilon, "delta": spend.delta, "least_share": share}
    return content | {"noise_multiplier": config.noise_multiplier, "words_per_device": config.words_per_device}, line


def _finds(share: float) -> str:
    """Rarest words that a discovery finds every second time, in words, by the share of devices that must hold one."""
    percent = float(f"{100 * share:.2g}")
    return (
        f"finds a word that {percent:g}% of devices hold"
        if percent < 100
        else "finds at most words that all devices hold"
    )
