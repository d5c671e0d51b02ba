"""Words that were found locally: what they cost a device, and what that counts on."""

from collections.abc import Mapping
from typing import Any

from discovery.certificates.group import device, honest_messages
from discovery.config import TrieConfig
from discovery.device.randomizer import subset_selection
from pipeline.config import LaunchConfig
from pipeline.releases.spends import local_discovery
from pipeline.stage import Spend
from reports.disclosure.findings import DiscoveryGuarantee
from reports.disclosure.total import Total

_TRUSTED_WITH_WORDS = (
    "The aggregator that discovers words sees a bounded number of words that each device typed, adds them up, adds "
    "noise, and keeps only words that pass a threshold: the trust that training needs too. It forgets the others."
)
_HIDDEN = {
    "shuffled": "messages of word discovery being shuffled: nobody links one to its sender, or to another of the same "
    "sender",
    "summed": "votes of word discovery being added up securely: nobody sees one device's",
}
_LOCAL = (
    "Word discovery counts on nobody: the one number has the local guarantee of all messages of a device, which holds "
    "against whoever collects them. Shuffling would certify no less, with as few devices as a layer has."
)


def words_of(discovered: Mapping[str, Any]) -> Spend:
    """Spend of a local discovery, from its result: for reused words, the spend of the launch that paid for them."""
    stated = guarantee_of(discovered)
    note = f"local; central {stated.epsilon_central:.4g} at delta {stated.delta:g} by the privacy blanket"
    return local_discovery(
        stated.epsilon0, stated.messages_per_device, stated.device_epsilon_central, stated.delta, note
    )


def certified(discovered: Mapping[str, Any]) -> float:
    """Epsilon of all messages of a device in the worst layer, derived again from what a discovery states of layers.

    Guarantee: ``discovery.certificates.group.group`` with the share of honest devices that the launch file assumes; a
    device answers in one layer. It counts on messages that nobody links to their sender.
    """
    stated = guarantee_of(discovered)
    return max(
        device(
            subset_selection(stated.epsilon0, layer.domain),
            honest_messages(layer.messages, stated.messages_per_device, stated.honest_share),
            stated.messages_per_device,
            stated.delta,
        )
        for layer in stated.layers
    )


def guarantee_of(discovered: Mapping[str, Any]) -> DiscoveryGuarantee:
    """The guarantee in the result of a local discovery."""
    return DiscoveryGuarantee.model_validate({name: discovered[name] for name in _STATED if name in discovered})


def trusts(config: LaunchConfig, whole: Total) -> tuple[str, ...]:
    """Assumptions of the launch's number about word discovery."""
    words = whole.words
    if words is None:
        return (_TRUSTED_WITH_WORDS,)
    if words.how == "local":
        return (_LOCAL,)
    assert isinstance(config.discovery, TrieConfig), "words are apart from noised releases"
    return (
        f"The one number counts on {_HIDDEN[words.how]}. It assumes that {config.discovery.honest_share:.0%} of the "
        "other devices of a layer answer as agreed and tell nobody what they sent; fewer hide a device less. Against "
        "whoever links its messages a device has the local guarantee alone.",
    )


_STATED = tuple(DiscoveryGuarantee.model_fields)
