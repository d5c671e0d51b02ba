"""CPU minutes that a launch takes on this kind of machine, from words and weights alone.

Rough: half to twice as much is usual, by processor and by how much devices typed.
"""

from pipeline.launch.config import LaunchConfig
from pipeline.releases.training import TRAINING

# CPU seconds per word and weight: on devices and, with a sampled softmax, on public text
# (benchmarks/results/2026-11-22-planner-verdicts.md, 2026-11-28-epsilon-one.md).
_ON_DEVICES, _ON_PUBLIC = 5e-10, 4e-11
_MEDIAN_WORDS = 150  # of a device


def launch_minutes(config: LaunchConfig) -> dict[str, int]:
    """CPU minutes of the stages that take most of a launch, by stage; those of ``audit`` train its twin."""
    pretrain = config.pretrain
    words = pretrain.steps * pretrain.batch_sentences * pretrain.sequence_words
    found = {"pretrain": _minutes(words * _weights(config) * _ON_PUBLIC)}
    if TRAINING.asked(config):
        run = config.mechanism
        found["fine_tune"] = _minutes(run.rounds * run.report_goal * _device_seconds(config))
        if config.audit.on_twin:
            found["audit"] = found["fine_tune"]
    return found


def _device_seconds(config: LaunchConfig) -> float:
    """CPU seconds of a device in a round, which has the words of a median device at most."""
    local = config.local_training
    return min(local.max_words, _MEDIAN_WORDS) * local.epochs * _weights(config) * _ON_DEVICES


def _weights(config: LaunchConfig) -> int:
    size, embedding, hidden = config.vocabulary.base_size, config.model.embedding_dim, config.model.hidden_dim
    return size * embedding * (1 if config.model.tied else 2) + 7 * embedding * hidden


def _minutes(seconds: float) -> int:
    return max(1, round(seconds / 60))
