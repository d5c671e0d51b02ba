"""The one number of a launch that finds words locally: they, once shuffled, and everything else, of one device."""

from collections.abc import Mapping
from typing import Any

from discovery.certificates.group import device
from discovery.device.randomizer import subset_selection
from pipeline.config import LaunchConfig
from pipeline.covered.spends import device_spends, loss_together, planned_evaluation
from pipeline.run_dir import RunDir
from reports.disclosure.findings import DiscoveryGuarantee
from reports.disclosure.together import Together
from reports.losses import strength

# Of the launch's delta, what words have. Group privacy leaves one message a tiny part of it anyway, so that another
# share changes epsilon by a hundredth (LOG, "One number where words are found locally").
WORDS_SHARE = 0.5


_TRUSTED_WITH_WORDS = (
    "The aggregator that discovers words sees a bounded number of words that each device typed, adds them up, adds "
    "noise, and keeps only words that pass a threshold: the trust that training needs too. It forgets the others."
)
_SHUFFLED = (
    "The one number counts on messages of word discovery being shuffled: nobody links one to its sender, or to another "
    "of the same sender. Against somebody who does, a device has the local guarantee alone."
)
_SUMMED_SECURELY = (
    "The one number counts on votes of word discovery being added up securely: nobody sees one device's. Against "
    "somebody who does, a device has the local guarantee alone."
)


def together(config: LaunchConfig, run: RunDir) -> Together | None:
    """The bound of a launch that has trained; None where words are part of rho, or have no guarantee worth the name.

    Guarantee: ``composed``.

    Raises:
      StageInputMissing: see ``spends.device_spends``.
    """
    if config.central_discovery is not None:
        return None
    words = words_after_shuffling(run.result("discover"), WORDS_SHARE * config.mechanism.delta)
    if words is None:
        return None
    held_out = planned_evaluation(config)
    trains = [spend for spend in device_spends(config, run) if spend.split == "train"]
    noised = loss_together(trains, (1 - WORDS_SHARE) * config.mechanism.delta)
    return composed(words, noised.epsilon, config.mechanism.delta, held_out.epsilon if held_out else 0.0)


def composed(words_epsilon: float, noised_epsilon: float, delta: float, held_out_epsilon: float = 0.0) -> Together:
    """Words and noised releases of one device as one bound at ``delta``, of which each has its share.

    Guarantee: unit one device; adjacency zero-out: what it gives is replaced by what a device gives that typed nothing,
    which to word discovery is as many messages that name no word, so swapping covers it. Each of both holds whatever
    the other gave, and epsilon and delta of such add up (basic composition, Dwork and Roth 2014, theorem 3.16). A
    device that is held out takes part in neither, and loses what evaluation costs.

    Args:
      words_epsilon, noised_epsilon: at their shares of ``delta``.
      held_out_epsilon: of a held-out device, at ``delta``.
    """
    return Together(
        epsilon=max(words_epsilon + noised_epsilon, held_out_epsilon),
        delta=delta,
        words_epsilon=words_epsilon,
        words_delta=WORDS_SHARE * delta,
        noised_epsilon=noised_epsilon,
        noised_delta=(1 - WORDS_SHARE) * delta,
    )


def words_after_shuffling(discovered: Mapping[str, Any], delta: float) -> float | None:
    """Epsilon at ``delta`` of all messages of a device, in the worst layer, from what the discovery states of layers.

    Guarantee: ``discovery.certificates.group.group``; a device answers in one layer. None where that is weak. It counts
    on messages that nobody links to their sender: they are shuffled, or only their sum is seen.
    """
    stated = DiscoveryGuarantee.model_validate({name: discovered[name] for name in _STATED if name in discovered})
    worst = 0.0
    # What is weak is seen in the layer that hides one message least.
    for layer in sorted(stated.layers, key=lambda layer: -layer.blanket):
        randomizer = subset_selection(stated.epsilon0, layer.domain)
        messages = max(layer.messages, stated.messages_per_device)
        worst = max(worst, device(randomizer, messages, stated.messages_per_device, delta))
        if strength(worst) == "weak":
            return None
    return worst or None


def trusts(config: LaunchConfig, whole: Together | None) -> tuple[str, ...]:
    """What the launch's number counts on about word discovery, in a sentence."""
    if config.central_discovery is not None:
        return (_TRUSTED_WITH_WORDS,)
    if whole is None:
        return ()
    return (_SUMMED_SECURELY if config.mechanism.secagg else _SHUFFLED,)


_STATED = tuple(DiscoveryGuarantee.model_fields)
