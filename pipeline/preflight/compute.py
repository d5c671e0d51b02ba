"""CPU minutes that a launch takes on this kind of machine, from words and weights alone.

Rough: half to twice as much is usual, by processor and by how much devices typed. Of GPUs nothing is known.
"""

from pipeline.launch.config import LaunchConfig
from pipeline.releases.training import TRAINING

# CPU seconds per word and weight: on devices, on public text with a sampled softmax and with the whole one
# (benchmarks/results/2026-11-22-planner-verdicts.md, 2026-11-28-epsilon-one.md).
_ON_DEVICES, _ON_PUBLIC, _DISTILLED = 5e-10, 4e-11, 3.5e-10
_MEDIAN_WORDS = 150  # of a device
LESSONS = 32_000  # sentences by which ``federated.counts.distil`` moves a start


def launch_minutes(config: LaunchConfig) -> dict[str, int]:
    """CPU minutes of the stages that take most of a launch, by stage, its evaluation and verification left out.

    Those of ``audit`` and ``ab_test`` train once more, of ``decide`` move the start once more. Empty on a GPU.
    """
    if config.runtime.device != "cpu":
        return {}
    pretrain = config.pretrain
    words = pretrain.steps * pretrain.batch_sentences * pretrain.sequence_words
    found = {"pretrain": _minutes(words * _weights(config) * _ON_PUBLIC)}
    moved = LESSONS * pretrain.sequence_words * _weights(config) * _DISTILLED if config.counts_move_start else 0.0
    if TRAINING.asked(config):
        run = config.mechanism
        trained = run.rounds * run.report_goal * _device_seconds(config)
        found["fine_tune"] = _minutes(trained + moved)
        if config.audit.on_twin:
            found["audit"] = _minutes(trained)
        if config.ab_test.non_private_upper_bound:
            found["ab_test"] = _minutes(trained)
    return found | ({"decide": _minutes(moved)} if moved else {})


def _device_seconds(config: LaunchConfig) -> float:
    """CPU seconds of a device in a round, which has the words of a median device at most."""
    local = config.local_training
    return min(local.max_words, _MEDIAN_WORDS) * local.epochs * _weights(config) * _ON_DEVICES


def _weights(config: LaunchConfig) -> int:
    size, embedding, hidden = config.vocabulary.base_size, config.model.embedding_dim, config.model.hidden_dim
    return size * embedding * (1 if config.model.tied else 2) + 7 * embedding * hidden


def _minutes(seconds: float) -> int:
    return max(1, round(seconds / 60))
