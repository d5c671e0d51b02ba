"""Secure aggregation: the server learns the sum of the clipped updates and no addend.

Updates are flattened, discretised and bounded as in Kairouz, Liu, Steinke 2021 (``bounds``, ``hadamard``,
``encode``), and added under masks as in Bonawitz et al. 2017 and Bell et al. 2020 (``masks``, ``device``,
``server``). Noise is added to the decoded sum, as in Xu et al. 2023: DP-FTRL noise is
correlated over rounds, so devices cannot draw shares of it.

Shape legend: P parameters, N elements that a device sends.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np
import torch

from federated.config.mechanism import secagg_threshold
from federated.secagg.bounds import Encoding
from federated.secagg.device import Device
from federated.secagg.encode import centred, decode, encode, whole
from federated.secagg.hadamard import rotation
from federated.secagg.server import Server
from federated.workers.worker import ALONE, Worker
from pretrain.randomness import noise


@dataclass(frozen=True)
class SecureSum:
    """Result of a secure aggregation round on the server, before noise. Private.

    Secure aggregation does not make the sum private: the server is still trusted to add the noise
    before anything leaves it.

    Attributes:
      unnoised_sum_P: int64 ``[P]`` in units of the clip norm / 2^44, as ``clipping.release`` takes it.
      unnoised_below: half of the sum of what stands beside the updates, exact.
      survivors: devices in the sum.
      dropped: devices that exchanged keys and sent no vector.
    """

    unnoised_sum_P: np.ndarray
    unnoised_below: float
    survivors: int
    dropped: int


def check_graph(devices: int, neighbours: int) -> None:
    """ValueError unless a round has more devices than each shares masks with."""
    if devices <= neighbours:
        raise ValueError(
            f"secagg: {devices} devices in a round are too few for masks shared with {neighbours} others each; "
            "raise the report goal"
        )


def circulant(devices: int, neighbours: int, public_seed: int, round_number: int) -> list[tuple[int, ...]]:
    """Neighbours of each device, ascending, on a circle shuffled anew every round; everyone can compute them.

    Few neighbours instead of all others: Bell et al. 2020, *Secure Single-Server Aggregation with
    (Poly)Logarithmic Overhead*. The order must not be chosen by anyone who also chooses which devices to corrupt: in
    the field the server draws it after devices have committed to their keys.

    Args:
      neighbours: an even number below ``devices``.
    """
    words = noise.uniform_words(noise.seeded_key(public_seed), "secagg graph", round_number, devices)
    order = np.argsort(words, kind="stable")
    steps = [*range(-(neighbours // 2), 0), *range(1, neighbours // 2 + 1)]
    graph: list[tuple[int, ...]] = [()] * devices
    for place, device in enumerate(order):
        graph[device] = tuple(sorted(int(order[(place + step) % devices]) for step in steps))
    return graph


def opens(neighbours: int, public_seed: int, devices: int, dropped: int, round_number: int) -> bool:
    """Tell if the sum of a round opens: its devices are enough to hide in, and enough of them stay to unmask it.

    Each device that stays, and each that drops out beside one that stays, needs a threshold of neighbours that stay.

    Args:
      neighbours, public_seed: as of ``secure_sum``.
      devices: that stay, first in the graph of the round.
      dropped: others, which drop out after the key exchange.
    """
    if devices <= neighbours:
        return False
    graph = circulant(devices + dropped, neighbours, public_seed, round_number)
    threshold = secagg_threshold(neighbours)
    staying = [sum(other < devices for other in others) for others in graph]
    return all(stay >= threshold for own, stay in enumerate(staying) if own < devices or stay)


def secure_sum(
    updates: Iterable[tuple[np.ndarray, int] | None],
    num_devices: int,
    encoding: Encoding,
    round_number: int,
    key: bytes,
    public_seed: int,
    neighbours: int,
    process: Worker = ALONE,
    dropped: int = 0,
) -> SecureSum:
    """One round, with devices and server simulated in one process, or in several that share the vectors.

    Guarantee: zeroing one update moves ``unnoised_sum_P * 2^-44`` by at most ``encoding.inflated_norm`` in
    L2 norm, for any coins of the devices, and zeroing what stands beside it ``unnoised_below`` by 1/2.
    A pure function of its arguments: a retried round is the same release. For that the devices' secrets
    come from the run's key and their places in ``updates``; in the field each device draws its own. Places
    may depend on the data: the coins of any two are alike.

    Args:
      updates: one a device, float64 ``[P]`` in clip norms of L2 norm at most 1, and beside it 1, -1 or 0, twice its
        bit of adaptive clipping; None for a device that drops out after the key exchange. Taken one at a time. Of
        several workers each gives every ``process.size``-th, from number ``process.rank``; the sum has the same bits.
      num_devices: of the cohort, known before any update.
      key: 32 secret bytes of the run.
      public_seed: of the signs and the graph; must not depend on anyone's text.
      neighbours: devices that each shares masks with, an even number.
      dropped: devices beside the cohort that drop out after the key exchange.

    Raises:
      ValueError: a cohort larger than planned for, or too small to hide in.
      OSError: too many devices dropped out, and the sum is lost.
    """
    if num_devices > encoding.devices:
        raise ValueError(
            f"num_devices: {num_devices}, but the encoding holds sums over {encoding.devices}; "
            "plan it for the largest cohort"
        )
    check_graph(num_devices, neighbours)
    threshold, everybody = secagg_threshold(neighbours), num_devices + dropped
    devices = [
        Device(index, round_number, encoding.bits, threshold, noise.subkey(key, f"secagg device|{index}"))
        for index in range(everybody)
    ]
    graph = circulant(everybody, neighbours, public_seed, round_number)
    # One element more than the update has: the bit, which is a whole number and is neither rotated nor rounded.
    server = Server(encoding.order + 1, encoding.bits, graph, threshold, round_number)
    signs = rotation(encoding.order, public_seed, round_number)

    def vectors() -> Iterator[np.ndarray | None]:
        mine = range(process.rank, everybody, process.size)
        nothing = repeat(None, sum(index >= num_devices for index in mine))
        for index, sent in zip(mine, chain(updates, nothing), strict=True):
            device = devices[index]
            yield (
                None
                if sent is None
                else np.append(encode(sent[0], encoding, signs, device.rounding_key), whole(sent[1], encoding.bits))
            )

    sum_N = run_protocol(server, devices, vectors(), process)
    below = float(centred(sum_N[-1:], encoding.bits)[0]) / 2
    return SecureSum(decode(sum_N[:-1], encoding, signs), below, server.survivors, everybody - server.survivors)


def run_protocol(
    server: Server, devices: Sequence[Device], vectors: Iterable[np.ndarray | None], process: Worker = ALONE
) -> np.ndarray:
    """The four exchanges between devices and server; the sum of the vectors modulo 2^bits.

    Of several workers each runs them all, but adds and unmasks only the vectors of its share of the devices.
    """
    exchange_keys(server, devices)
    alive = np.zeros(len(devices), dtype=np.int64)
    for device, vector_N in zip(devices[process.rank :: process.size], vectors, strict=True):
        if vector_N is not None:
            server.add(device.index, device.masked(vector_N))
            alive[device.index] = 1
    _, alive = process.sum(torch.empty(0, dtype=torch.int64), alive)
    for index in np.flatnonzero(alive):
        server.hear(int(index))
    for index in np.flatnonzero(alive):
        server.collect(int(index), devices[int(index)].open(*server.question(int(index))))
    # Adding wraps around at 2^64, which leaves the low bits what they are.
    share_N = server.unmasked_sum()
    whole_N, _ = process.sum(torch.from_numpy(share_N.astype(np.int64)), np.empty(0, dtype=np.int64))
    return server.reduced(whole_N.numpy().astype(share_N.dtype))


def exchange_keys(server: Server, devices: Sequence[Device]) -> None:
    """Pass public keys and encrypted shares to the server and back to each device's neighbours."""
    for device in devices:
        server.advertise(device.index, device.advertise())
    for device in devices:
        server.post(device.index, device.share(server.keys_for(device.index)))
    for device in devices:
        for sender, message in server.mail_for(device.index).items():
            device.receive(sender, message)
