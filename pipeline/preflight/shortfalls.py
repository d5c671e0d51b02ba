"""Refusals of later stages, by the launch file and by rounded counts of devices, before the first reservation.

Guarantee: counts are rounded down, so whatever ``too_few`` lets pass has at least as many devices as it was asked
about, and none of its stages finds too few later. Sums have at most nine devices more than the counts say, and are held
against their limits with as many. ``tacit check``, ``tacit plan`` and the stage ``plan`` ask these functions, and
the first spend of a launch asks ``of_file`` again, as the public vocabulary is known by then; stages after it refuse
nothing that these could know (``tests/pipeline/preflight/test_shortfalls.py``).
"""

from collections.abc import Mapping

from discovery.config import TrieConfig
from pipeline.launch.config import LaunchConfig

# Of fewer devices, rounded down to tens, a tenth is nobody or one.
FEW = 20
# What rounding down to tens hides.
_HIDDEN = 9


def of_file(config: LaunchConfig, parameters: int | None = None) -> list[str]:
    """Steps of later stages that the launch file's own fields rule out.

    Args:
      parameters: of the model, at least; None before the public vocabulary is known.
    """
    if not config.trains:
        return []
    from evaluation.audit.directions import unauditable

    rounds, sample = config.mechanism.rounds, config.mechanism.secret_sample
    # Under a timer a canary joins as soon as it may.
    share = 1.0 if sample is None else 1 - (1 - sample.rate) ** rounds
    return [f"audit.directions: {line}" for line in unauditable(config.audit.directions, rounds, share, parameters)]


def parameters(config: LaunchConfig, words: int) -> int:
    """Size of the model over so many words."""
    import torch  # slow to import, and only stages ask

    from pretrain.model import build_model, parameter_count

    with torch.device("meta"):
        return parameter_count(build_model(config.model, words, config.seed))


def most_parameters(config: LaunchConfig) -> int:
    """Size of the model if every place for a new word is taken."""
    return parameters(config, config.vocabulary.base_size + config.vocabulary.max_new_words)


def too_few(config: LaunchConfig, devices_by_split: Mapping[str, int]) -> list[str]:
    """Stages that could not run, or would tell nothing, with so many devices.

    Args:
      devices_by_split: rounded down to tens.
    """
    lines = [
        *_discovery(config, devices_by_split["train"]),
        *_comparison(config, devices_by_split["test"]),
        *_too_many(config, devices_by_split),
    ]
    devices = sum(devices_by_split.values())
    if lines and devices < FEW:
        # No number of the launch file is to blame.
        return [
            f"private_text: population {config.private_text.name!r} has {devices}+ devices, too few to train on most, "
            "watch training on some and compare on others; bring more, or correct client_id, which is never empty and "
            "tells devices apart"
        ]
    return lines


def _discovery(config: LaunchConfig, train: int) -> list[str]:
    discovery = config.discovery
    if isinstance(discovery, TrieConfig):
        return _local_discovery(config, discovery, train)
    from discovery.central.select import cut_of

    # A device gives a word the weight 1 at most.
    needed = cut_of(discovery).threshold
    if train >= needed:
        return []
    return [
        f"discovery.noise_multiplier: {discovery.noise_multiplier:g} asks a word for a weight of {needed:.3g}, more "
        f"than all {train}+ training devices can give it; lower it, or have more devices"
    ]


def _local_discovery(config: LaunchConfig, discovery: TrieConfig, train: int) -> list[str]:
    if train < discovery.layers:
        return [
            f"discovery.layers: {discovery.layers} need as many training devices, and there are {train}+; lower it to "
            f"{max(train, 1)} or less"
        ]
    if config.mechanism.secagg is None:
        return []
    from discovery.participation import fewest_in_a_layer
    from federated.secagg.votes import require_devices

    smallest = fewest_in_a_layer(train, discovery)
    try:
        require_devices(smallest)
    except ValueError:
        return [
            f"discovery.layers: {discovery.layers} may leave {smallest} of {train}+ training devices to a layer, too "
            "few to hide in one another's sum; lower it, or remove mechanism.secagg"
        ]
    return []


def unheard(config: LaunchConfig, speaking: int | None) -> list[str]:
    """Why a comparison without a budget could not be made of the test devices that have a word.

    Args:
      speaking: how many these are; None where a budget for evaluation covers the question, too.
    """
    if speaking is None or speaking >= config.ab_test.buckets:
        return []
    return [
        f"ab_test.buckets: {config.ab_test.buckets}, but fewer test devices have a word; lower it, raise "
        "private_text.test_fraction, or bring more devices"
    ]


def _comparison(config: LaunchConfig, test: int) -> list[str]:
    lines = []
    if test < config.ab_test.buckets:
        lines.append(
            f"ab_test.buckets: {config.ab_test.buckets}, but there are {test}+ test devices; lower it to "
            f"{max(test // 5, 2)} or raise private_text.test_fraction"
        )
    if config.evaluation is not None:
        from evaluation.noisy.questions import fewest_devices

        noise_multiplier, most_words = config.evaluation.noise_multiplier, config.private_text.max_words_per_device
        needed = fewest_devices(noise_multiplier, most_words)
        if test < needed:
            lines.append(
                f"evaluation.noise_multiplier: {noise_multiplier:g} drowns whatever fewer than {needed} test devices "
                f"type, and there are {test}+; lower it, or raise private_text.test_fraction"
            )
    return lines


def _too_many(config: LaunchConfig, devices_by_split: Mapping[str, int]) -> list[str]:
    """Sums in 64 bits that would overflow."""
    from discovery.central.weighted_gaussian import MOST_DEVICES as MOST_IN_DISCOVERY
    from federated.counts.bounded_sum import MOST_DEVICES

    train, test = devices_by_split["train"], devices_by_split["test"]
    sums = (
        ("counts", config.counts, train, MOST_DEVICES, "remove 'counts'"),
        ("discovery", config.central_discovery, train, MOST_IN_DISCOVERY, "write ldp-triehh"),
        ("evaluation", config.evaluation, test, MOST_DEVICES, "lower private_text.test_fraction"),
    )
    return [
        f"{name}: {devices:,}+ devices, but a 64-bit fixed-point sum holds {most:,}; {fix}"
        for name, block, devices, most, fix in sums
        if block is not None and devices + _HIDDEN > most
    ]
