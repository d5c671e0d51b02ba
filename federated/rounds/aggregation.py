"""The sum of one round: in the open, or under secure aggregation.

Shape legend: P parameters.
"""

import logging
import math
from collections.abc import Sequence

import torch

from federated.config.mechanism import LocalTrainingConfig, MechanismConfig, secagg_neighbours
from federated.local_training.clipping import Clip
from federated.local_training.rows import DeviceRows
from federated.local_training.sums import Aggregate, Sums, chunked_sum, clipped_updates, most_steps_first
from federated.secagg import bounds
from federated.secagg.bounds import Encoding
from federated.secagg.protocol import check_graph, secure_sum
from federated.workers import ALONE, Worker
from pretrain.model import KeyboardLM

# A Poisson cohort is larger than its mean by this many standard deviations about never (1e-33).
_DEVIATIONS = 12
_log = logging.getLogger(__name__)


def largest_cohort(mechanism: MechanismConfig, num_devices: int) -> int:
    """Most devices that a round may hold."""
    if mechanism.kind != "independent" or mechanism.sampling == "fixed":
        return mechanism.report_goal
    mean = mechanism.report_goal / mechanism.population * num_devices
    return min(num_devices, math.ceil(mean + _DEVIATIONS * math.sqrt(mean) + _DEVIATIONS))


def plan_encoding(mechanism: MechanismConfig, num_parameters: int, num_devices: int) -> Encoding | None:
    """How devices write their updates as integers; None without secure aggregation.

    Raises:
      ValueError: ``secagg.bits`` cannot hold such a sum, or the graph cannot be made.
    """
    if mechanism.secagg is None:
        return None
    cohort = largest_cohort(mechanism, num_devices)
    check_graph(cohort, secagg_neighbours(mechanism.report_goal))
    return bounds.plan_encoding(num_parameters, cohort, mechanism.secagg.bits)


def round_sum(
    model: KeyboardLM,
    rows: Sequence[DeviceRows],
    local: LocalTrainingConfig,
    clip: Clip,
    mechanism: MechanismConfig,
    encoding: Encoding | None,
    chunk_devices: int,
    threads: int,
    round_number: int,
    seed: int,
    key: bytes,
    process: Worker = ALONE,
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
    ordered = most_steps_first(rows, local)
    if encoding is None or mechanism.secagg is None:
        own = chunked_sum(model, ordered, local, clip, chunk_devices, threads, process.rank, process.size)
        sum_P, counts = process.sum(own.flat(model), own.counts)
        counted = Sums(None, (), counts)
        # A device without rows has an update of norm 0, which is below any threshold.
        return Aggregate(sum_P, 0.5 * (len(rows) - len(ordered)) + counted.below, counted.weight)
    neighbours = secagg_neighbours(mechanism.report_goal)
    if len(rows) <= neighbours:
        _log.warning(
            "round %d: %d devices are too few for secure aggregation; nothing is sent", round_number, len(rows)
        )
        return Aggregate(torch.zeros(encoding.num_parameters, dtype=torch.int64), 0.0, 0.0)
    # In the order in which clipped_updates gives them; a share of it is in that order too.
    placed = [*(own for own in rows if not len(own.targets_RT)), *ordered]
    summed = secure_sum(
        clipped_updates(model, placed[process.rank :: process.size], local, clip),
        len(rows),
        encoding,
        round_number,
        key,
        seed,
        neighbours,
        process,
    )
    return Aggregate(torch.from_numpy(summed.unnoised_sum_P), 0.0, 0.0)
