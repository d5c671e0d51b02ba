"""The sum of one round: in the open, or under secure aggregation.

Shape legend: P parameters.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from federated.config.mechanism import secagg_neighbours
from federated.config.training import LocalTrainingConfig
from federated.local_training.clipping import Clip
from federated.local_training.rows import DeviceRows
from federated.local_training.sums import Aggregate, Sums, chunked_sum, clipped_updates, most_steps_first
from federated.rounds.rule import RoundRule
from federated.secagg.bounds import Encoding
from federated.secagg.protocol import secure_sum
from federated.workers import ALONE, Worker
from pretrain.model import KeyboardLM

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trainer:
    """What trains devices: one model, and how many of them side by side.

    Attributes:
      model: every device starts from its weights.
      chunk_devices: devices trained side by side; changes low bits of the result.
      threads: chunks at work at the same time.
      process: which of the workers this is.
    """

    model: KeyboardLM
    local: LocalTrainingConfig
    chunk_devices: int
    threads: int = 1
    process: Worker = ALONE


def round_sum(
    trainer: Trainer,
    rows: Sequence[DeviceRows],
    clip: Clip,
    rule: RoundRule,
    encoding: Encoding | None,
    round_number: int,
) -> Aggregate:
    """Sum over one cohort of clipped updates, in units of ``clip.norm / 2^44``. Private until noise is added.

    Guarantee: zeroing one device moves the sum by at most ``clip.norm`` (``clip.norm`` times
    ``encoding.inflated_norm`` under secure aggregation) in L2 norm. Under secure aggregation the server
    works on masked vectors and their sum alone.
    A cohort too small to hide in sends nothing: its round adds noise to zero.

    Each worker trains its share of the devices. Integers are added, so the sum has the same bits for any
    number of workers, and every worker returns the whole of it.

    Args:
      rows: of the whole cohort, in every worker.
    """
    model, local, process = trainer.model, trainer.local, trainer.process
    ordered = most_steps_first(rows, local)
    if encoding is None:
        share = chunked_sum(
            model, ordered, local, clip, trainer.chunk_devices, trainer.threads, process.rank, process.size
        )
        sum_P, counts = process.sum(share.flat(model), share.counts)
        counted = Sums(None, (), counts)
        # A device without rows has an update of norm 0, which is below any threshold.
        return Aggregate(sum_P, 0.5 * (len(rows) - len(ordered)) + counted.below, counted.weight)
    neighbours = secagg_neighbours(rule.config.report_goal)
    if len(rows) <= neighbours:
        _log.warning(
            "round %d: %d devices are too few for secure aggregation; nothing is sent", round_number, len(rows)
        )
        return Aggregate(torch.zeros(encoding.num_parameters, dtype=torch.int64), 0.0, 0.0)
    # In the order in which clipped_updates gives them; a share of it is in that order too.
    placed = [*(device for device in rows if not len(device.targets_RT)), *ordered]
    summed = secure_sum(
        clipped_updates(model, placed[process.rank :: process.size], local, clip),
        len(rows),
        encoding,
        round_number,
        rule.key,
        rule.seed,
        neighbours,
        process,
    )
    return Aggregate(torch.from_numpy(summed.unnoised_sum_P), 0.0, 0.0)
