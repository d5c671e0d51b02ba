"""Who shares masks with whom: Bell et al. 2020, *Secure Single-Server Aggregation with (Poly)Logarithmic Overhead*.

Each device has few neighbours instead of all others (Bonawitz et al. 2017): a circulant graph over an order
shuffled anew every round.
"""

import numpy as np

from federated import noise


def degree_of(devices: int, neighbours: int) -> int:
    """Neighbours that each device really has: an even number, or all the others."""
    return min(2 * -(-neighbours // 2), devices - 1)


def check_graph(devices: int, neighbours: int, threshold: int) -> None:
    """ValueError unless secrets can be recovered, and no server can ask for both of one device's.

    A neighbour hands out one share of two for each device. A server that told some neighbours that a
    device dropped and others that it did not could open its vector if ``2 * threshold`` shares were
    around; so more than half of the neighbours must be needed.
    """
    degree = degree_of(devices, neighbours)
    if threshold > degree or 2 * threshold <= degree:
        raise ValueError(
            f"secagg.threshold: {threshold} with {degree} neighbours each (of {devices} devices, {neighbours} asked "
            f"for); give more than half of them and no more than all, {degree // 2 + 1} to {degree}"
            if degree > 0
            else f"secagg: {devices} device in a round has nobody to hide among; raise the report goal"
        )


def circulant(devices: int, neighbours: int, public_seed: int, round_number: int) -> list[tuple[int, ...]]:
    """Neighbours of each device, ascending; everyone can compute them.

    The order must not be chosen by anyone who also chooses which devices to corrupt: in the field the
    server draws it after devices have committed to their keys.
    """
    degree = degree_of(devices, neighbours)
    if degree == devices - 1:
        return [tuple(other for other in range(devices) if other != own) for own in range(devices)]
    words = noise.uniform_words(noise.seeded_key(public_seed), "secagg graph", round_number, devices)
    order = np.argsort(words, kind="stable")
    steps = [*range(-(degree // 2), 0), *range(1, degree // 2 + 1)]
    graph: list[tuple[int, ...]] = [()] * devices
    for place, own in enumerate(order):
        graph[own] = tuple(sorted(int(order[(place + step) % devices]) for step in steps))
    return graph
