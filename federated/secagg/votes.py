"""Counts that many devices send, such as randomised votes, added by secure aggregation: the exact sum and no addend.

Sun & Sun 2024 propose it in place of a shuffler, as votes are only ever summed. No rotation, no rounding: votes are
small integers as they are.

Shape legend: d items that are voted on.
"""

from collections.abc import Iterable
from itertools import islice

import numpy as np

from federated.config.mechanism import secagg_neighbours, secagg_threshold
from federated.secagg.device import Device
from federated.secagg.masks import word_of
from federated.secagg.protocol import check_graph, circulant, run_protocol
from federated.secagg.server import Server
from pretrain.randomness import noise

# Devices per sum of one server. With 20 neighbours each, a graph of this size stays connected.
COHORT = 10_000


def require_devices(devices: int) -> None:
    """ValueError where there are too few devices to hide in one another's sum."""
    check_graph(devices, secagg_neighbours(devices))


def secure_votes(
    votes: Iterable[np.ndarray], devices: int, items: int, most: int, key: bytes, public_seed: int
) -> np.ndarray:
    """Sum of all devices' votes, int64 ``[d]``, in cohorts of nearly equal size.

    Guarantee: of a cohort the server meets the sum alone, as in ``protocol.secure_sum``; each device's message is
    uniform to it. A pure function of its arguments, and equal to the plain sum.

    Args:
      votes: int64 ``[d]`` of each device, none below 0, taken one at a time.
      most: that a device gives to one item.
      key: 32 secret bytes that these devices' secrets come from in this simulation; of no other sum.
      public_seed: of the graph; must not depend on anyone's text.

    Raises:
      ValueError: too few devices to hide in.
      ArithmeticError: more votes for an item than ``most``.
    """
    require_devices(devices)
    total_d, left, cohorts = np.zeros(items, dtype=np.int64), iter(votes), -(-devices // COHORT)
    for number in range(cohorts):
        size = devices * (number + 1) // cohorts - devices * number // cohorts
        total_d += _cohort(list(islice(left, size)), items, most, noise.subkey(key, f"cohort {number}"), public_seed)
    return total_d


def _cohort(votes: list[np.ndarray], items: int, most: int, key: bytes, public_seed: int) -> np.ndarray:
    if any(int(votes_d.max(initial=0)) > most for votes_d in votes):
        raise ArithmeticError(f"secagg: a device gives an item more than {most} votes; the sum could wrap around")
    neighbours, bits = secagg_neighbours(len(votes)), max(8, (len(votes) * most).bit_length())
    threshold = secagg_threshold(neighbours)
    devices = [Device(index, 0, bits, threshold, noise.subkey(key, f"device|{index}")) for index in range(len(votes))]
    server = Server(items, bits, circulant(len(votes), neighbours, public_seed, 0), threshold, 0)
    return run_protocol(server, devices, (votes_d.astype(word_of(bits)) for votes_d in votes)).astype(np.int64)
