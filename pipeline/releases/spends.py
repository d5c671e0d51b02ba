"""Spend of each release of a launch, from its block of the launch file: what it costs before anything is asked."""

from collections.abc import Collection

from discovery.config import CentralConfig, TrieConfig
from pipeline.config import LaunchConfig
from pipeline.stage import Spend


def gaussian(rho: float, delta: float, note: str) -> Spend:
    """A device-level spend of Gaussian releases to devices that train."""
    from federated.accounting.gaussian import epsilon_of_rho  # scipy is slow to import

    return Spend(
        unit="device", adjacency="zero-out", rho=rho, epsilon=epsilon_of_rho(rho, delta), delta=delta, note=note
    )


def counts(rho: float, delta: float) -> Spend:
    """The one release of counts."""
    return gaussian(rho, delta, "counts")


def evaluated(rho: float, delta: float) -> Spend:
    """The one release about held-out devices: who trains loses nothing to it."""
    return gaussian(rho, delta, "evaluation").model_copy(update={"split": "test"})


def central_discovery(config: CentralConfig) -> Spend:
    """The ledger entry of a central discovery: approximate zCDP of one device, known exactly beforehand.

    Guarantee: that of ``discovery.central.select.select``; epsilon at ``delta`` by the exact Gaussian curve at what of
    it the threshold's failure leaves (the hockey-stick divergence of the two adds up, Gopi et al. 2020, theorem 5.1).
    """
    from federated.accounting.gaussian import epsilon_of_rho  # scipy is slow to import

    epsilon = epsilon_of_rho(config.rho, config.delta - config.failure)
    return Spend(
        unit="device",
        adjacency="zero-out",
        rho=config.rho,
        epsilon=epsilon,
        delta=config.delta,
        note="words",
        failure=config.failure,
    )


def local_discovery(epsilon0: float, messages: int, certified: float, delta: float, note: str) -> Spend:
    """The ledger entry of a local discovery: of one typed word, and of all messages of a device.

    Guarantee: item-level epsilon0-LDP; a device that sends ``messages`` loses ``messages * epsilon0`` whoever collects
    them, or ``certified`` at ``delta`` where that is less, under what the certificate assumes
    (``discovery.certificates.group``). Swap adjacency covers zero-out: a device that typed nothing sends as many
    messages that name no word.

    Args:
      certified: epsilon of all messages of a device at ``delta``.
    """
    local = messages * epsilon0
    shuffled = certified < local
    return Spend(
        unit="item",
        adjacency="swap",
        rho=None,
        epsilon=epsilon0,
        delta=0.0,
        note=note,
        messages=messages,
        device_epsilon=certified if shuffled else local,
        device_delta=delta if shuffled else 0.0,
    )


def planned_words(
    config: TrieConfig, locale: str, devices: int | None, known_words: Collection[str] | None = None
) -> Spend:
    """Worst-case cost of a local discovery, before anybody is asked.

    Guarantee: no layer has fewer messages than are counted on here as long as ``devices`` are there and answer; where
    fewer do, the spend that is stated afterwards is larger, and the gates hold the launch.

    Args:
      devices: that train, at least; None where nobody knows, so that the local bound is all there is.
      known_words: of the public vocabulary, once it is made.
    """
    local = config.messages_per_device * config.epsilon0
    if devices is None or devices < config.layers:
        return local_discovery(config.epsilon0, config.messages_per_device, local, config.delta, "local, planned")
    from discovery import outlook  # scipy is slow to import
    from pretrain import text

    seen = outlook.local(config, devices, text.alphabet(locale), known_words)
    note = f"local, planned for {devices} devices"
    return local_discovery(config.epsilon0, config.messages_per_device, seen.shuffled, config.delta, note)


def planned(
    config: LaunchConfig, training_rho: float, devices: int | None, known_words: Collection[str] | None = None
) -> dict[str, Spend]:
    """Every release of a launch by its stage, at worst, in the order in which they happen.

    Args:
      training_rho: of training within the enforced limits.
      devices, known_words: see ``planned_words``.
    """
    delta, spends = config.mechanism.delta, dict[str, Spend]()
    if isinstance(config.discovery, CentralConfig):
        spends["discover"] = central_discovery(config.discovery)
    else:
        spends["discover"] = planned_words(config.discovery, config.locale, devices, known_words)
    if config.counts is not None:
        spends["count"] = counts(config.counts.rho, delta)
    if config.trains:
        spends["fine_tune"] = gaussian(training_rho, delta, f"{config.mechanism.kind}, planned")
    if config.evaluation is not None:
        spends["ab_test"] = evaluated(config.evaluation.rho, delta)
    return spends
