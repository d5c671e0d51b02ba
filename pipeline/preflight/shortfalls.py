"""Refusals of later stages, by the launch file and by rounded counts of devices, before the first reservation.

Guarantee: counts are rounded down, so whatever ``too_few`` lets pass has at least as many devices as it was asked
about, and none of its stages finds too few later. Sums have at most nine devices more than the counts say, and are held
against their limits with as many. ``tacit check``, ``tacit plan`` and the stage ``plan`` ask these functions, and
the first spend of a launch asks ``of_file`` again, as the public vocabulary is known by then; stages after it refuse
nothing that these could know (``tests/pipeline/preflight/test_shortfalls.py``).
"""

from collections.abc import Mapping

from pipeline.launch.config import LaunchConfig
from pipeline.releases.training import TRAINING
from pipeline.releases.uses import releases

# Of fewer devices, rounded down to tens, a tenth is nobody or one.
FEW = 20


def of_file(config: LaunchConfig, parameters: int | None = None) -> list[str]:
    """Steps of later stages that the launch file's own fields rule out.

    Args:
      parameters: of the model, at least; None before the public vocabulary is known.
    """
    if not TRAINING.asked(config):
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
    lines = [line for release in releases(config) for line in release.needs(config, devices_by_split[release.split])]
    lines += _buckets(config, devices_by_split["test"])
    devices = sum(devices_by_split.values())
    if lines and devices < FEW:
        # No number of the launch file is to blame.
        return [
            f"private_text: population {config.private_text.name!r} has {devices}+ devices, too few to train on most, "
            "watch training on some and compare on others; bring more, or correct client_id, which is never empty and "
            "tells devices apart"
        ]
    return lines


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


def _buckets(config: LaunchConfig, test: int) -> list[str]:
    if test >= config.ab_test.buckets:
        return []
    return [
        f"ab_test.buckets: {config.ab_test.buckets}, but there are {test}+ test devices; lower it to "
        f"{max(test // 5, 2)} or raise private_text.test_fraction"
    ]
