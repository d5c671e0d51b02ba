"""The sum of one round: in the open, or under secure aggregation.

Shape legend: P parameters.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np
import torch

from federated.config.mechanism import secagg_neighbours
from federated.config.training import LocalTrainingConfig
from federated.local_training.clipping import Clip
from federated.local_training.rows import DeviceRows
from federated.local_training.sums import (
    Aggregate,
    CanaryUpdates,
    Sums,
    chunked_sum,
    clipped_updates,
    most_steps_first,
    no_counts,
)
from federated.rounds.rule import RoundRule
from federated.secagg.bounds import Encoding
from federated.secagg.protocol import secure_sum
from federated.workers.worker import ALONE, Worker
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.randomness import noise

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trainer:
    """Training setup for devices: one model, and the number of devices side by side.

    Attributes:
      model: every device starts from its weights.
      chunk_devices: devices trained side by side; changes low bits of the result. 1: no device changes another's.
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
    planted: CanaryUpdates | None = None,
    dropped: int = 0,
) -> Aggregate:
    """Sum over one cohort of clipped updates, in units of ``clip.norm / 2^44``. Private until noise is added.

    Guarantee: zeroing one device moves the sum by at most ``clip.norm`` (``clip.norm`` times
    ``encoding.inflated_norm`` under secure aggregation) in L2 norm, and the sum of the bits by at most 1/2: a device
    without rows, and one whose update is not finite, adds nothing to either. Exactly so where devices train one by one:
    under secure aggregation, and on a CPU with ``chunk_devices`` 1. Else the last bits of float32 of others come to it
    (``chunked_sum``). Under secure aggregation the server works on masked vectors and their sum alone.
    A round whose sum secure aggregation loses has no devices: it adds noise to zero.

    Each worker trains its share of the chunks, which are a function of the cohort and of ``chunk_devices``. Integers
    are added, so the sum has the same bits for any number of workers on processors of one kind, and every worker
    returns the whole of it.

    Args:
      rows: of the whole cohort, in every worker.
      planted: the audit's canaries, clipped, encoded and added by what clips, encodes and adds the devices' updates;
        in a sum of their own.
      dropped: devices beside the cohort that drop out of secure aggregation after the key exchange.
    """
    model, local, process = trainer.model, trainer.local, trainer.process
    ordered = most_steps_first(rows, local)
    if encoding is None:
        share = chunked_sum(
            model, ordered, local, clip, trainer.chunk_devices, trainer.threads, process.rank, process.size, planted
        )
        sum_P, counts = process.sum(share.flat(model), share.counts)
        planted_P = None
        if share.planted is not None:
            planted_P, _ = process.sum(share.planted.flat(model), share.planted.counts)
        counted = Sums(None, (), counts)
        return Aggregate(sum_P, counted.below, counted.weight, counted.tally, planted_P)
    planted_P = None if planted is None else _planted_securely(trainer, planted, clip, rule, encoding, round_number)
    neighbours = secagg_neighbours(rule.config.report_goal)
    if not rows:
        _log.warning("round %d: too few devices for secure aggregation; noise alone is released", round_number)
        nothing_P = torch.zeros(encoding.num_parameters, dtype=torch.int64)
        return Aggregate(nothing_P, 0.0, 0.0, planted_P=planted_P, exact=False)
    # In the order in which clipped_updates gives them; a share of it is in that order too.
    placed = [*(device for device in rows if not len(device.targets_RT)), *ordered]
    counts = no_counts()
    summed = secure_sum(
        clipped_updates(model, placed[process.rank :: process.size], local, clip, counts=counts),
        len(rows),
        encoding,
        round_number,
        rule.key,
        rule.seed,
        neighbours,
        process,
        dropped,
    )
    _, counts = process.sum(torch.empty(0, dtype=torch.int64), counts)
    return Aggregate(
        torch.from_numpy(summed.unnoised_sum_P),
        summed.unnoised_below,
        0.0,
        Sums(None, (), counts).tally,
        planted_P,
        exact=False,
    )


def _planted_securely(
    trainer: Trainer, planted: CanaryUpdates, clip: Clip, rule: RoundRule, encoding: Encoding, round_number: int
) -> torch.Tensor:
    """The canaries' sum by secure aggregation: as many cohorts of them as it takes, beside the devices' own."""
    process, neighbours = trainer.process, secagg_neighbours(rule.config.report_goal)
    size, total_P = encoding.num_parameters, np.zeros(encoding.num_parameters, dtype=np.int64)
    for first in range(0, len(planted.numbers), encoding.devices):
        numbers = list(planted.numbers)[first : first + encoding.devices]
        # A cohort must be large enough to hide in; who has nothing to send sends zeros.
        places = max(len(numbers), neighbours + 1)
        share = CanaryUpdates(numbers[process.rank :: process.size], planted.update)
        zeros = len(range(process.rank, places, process.size)) - len(share.numbers)
        sent = clipped_updates(trainer.model, [], trainer.local, clip, share)
        summed = secure_sum(
            chain(sent, repeat((np.zeros(size), 0), zeros)),
            places,
            encoding,
            round_number,
            noise.subkey(rule.key, f"secagg canaries|{first}"),
            rule.seed,
            neighbours,
            process,
        )
        total_P += summed.unnoised_sum_P
    return torch.from_numpy(total_P)
