"""Secure aggregation: CPU milliseconds of one thread per device and round, against adding up in the open.

    OMP_NUM_THREADS=1 .venv/stages/bin/python -m benchmarks.privacy.secagg [--repeats 5] [--parameters 2400000]

Cases take turns, and each figure is a median of CPU times. 'recover' is what each device that drops out
costs the server on top, 'round' is once a round (signs and decoding); the others are once for each device,
and the last column is what they take together, server included, over adding up in the open ('plain').
Below: what the encoding costs in privacy (the norm) and accuracy (std per parameter, in clip norms).
"""

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from federated.secagg.bounds import Encoding, plan_encoding
from federated.secagg.device import Device
from federated.secagg.encode import decode, encode
from federated.secagg.hadamard import rotation
from federated.secagg.protocol import circulant, exchange_keys
from federated.secagg.server import Server
from pretrain.randomness.noise import seeded_key

REPORT_GOAL = 100
CASES = ((16, 20), (32, 20), (62, 20), (32, 60))
PARTS = ("keys", "encode", "mask", "add", "unmask", "recover", "round", "plain")
PLANS = ((8, 20), (12, 100), (16, 100), (16, 1000), (20, 6500), (24, 6500), (32, 6500))

Times = dict[str, list[float]]
Result = TypeVar("Result")


def timed(times: Times, part: str, each: int, work: Callable[[], Result]) -> Result:
    """Run ``work`` and note its CPU milliseconds, divided by ``each``."""
    start = time.process_time()
    result = work()
    times[part].append(1000 * (time.process_time() - start) / each)
    return result


def one_round(plan: Encoding, neighbours: int, seed: int, times: Times) -> None:
    """A complete graph without and with a dropout; one device's vector stands for all, as they cost the same."""
    cohort, threshold = neighbours + 1, neighbours // 2 + 1
    update_P = np.random.default_rng(seed).normal(size=plan.num_parameters)
    update_P /= np.linalg.norm(update_P)
    signs = timed(times, "round", 1, lambda: rotation(plan.order, 0, seed))
    unmasking = []
    for dropped in (0, 1):
        devices = [Device(own, seed, plan.bits, threshold, seeded_key(own)) for own in range(cohort)]
        server = Server(plan.order, plan.bits, circulant(cohort, neighbours, 0, seed), threshold, seed)
        timed(times, "keys", cohort, lambda server=server, devices=devices: exchange_keys(server, devices))
        vector_N = timed(times, "encode", 1, lambda: encode(update_P, plan, signs, seeded_key(seed)))
        masked_N = timed(times, "mask", 1, lambda devices=devices, vector_N=vector_N: devices[0].masked(vector_N))
        alive = devices[dropped:]
        timed(times, "add", len(alive), lambda s=server, d=alive, m=masked_N: [s.add(own.index, m) for own in d])
        for device in alive:
            server.collect(device.index, device.open(*server.question(device.index)))
        start = time.process_time()
        sum_N = server.unmasked_sum()
        unmasking.append(1000 * (time.process_time() - start))
    times["unmask"].append(unmasking[0] / cohort)
    times["recover"].append(unmasking[1] - unmasking[0] * (cohort - 1) / cohort)
    start = time.process_time()
    decode(sum_N, plan, signs)
    times["round"][-1] += 1000 * (time.process_time() - start)
    grid_P, total_P = (update_P * 2.0**44).astype(np.int64), np.zeros(plan.num_parameters, np.int64)
    timed(times, "plain", 20, lambda: [np.add(total_P, grid_P, out=total_P) for _ in range(20)])


def main() -> None:
    """Print one line a case, then one line a plan."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--parameters", type=int, default=2_400_000)
    arguments = parser.parse_args()
    plans = {case: plan_encoding(arguments.parameters, REPORT_GOAL, case[0]) for case in CASES}
    measured: dict[tuple[int, int], Times] = {case: defaultdict(list) for case in CASES}
    for repeat in range(arguments.repeats):
        for case in CASES:
            one_round(plans[case], case[1], repeat, measured[case])
    print("bits  neighbours " + "".join(f"{part:>9}" for part in PARTS) + "   MB sent   device / plain")
    for (bits, neighbours), times in measured.items():
        median = {part: statistics.median(times[part]) for part in PARTS}
        cells = "".join(f"{median[part]:9.1f}" for part in PARTS)
        ratio = sum(median[part] for part in ("keys", "encode", "mask", "add", "unmask")) / median["plain"]
        megabytes = plans[bits, neighbours].order * bits / 8e6
        print(f"{bits:>4}{neighbours:>12} {cells}{megabytes:>10.1f}{ratio:>16.0f}")
    print("\nbits  devices  inflated norm    rho times  rounding std   clipped <")
    for bits, devices in PLANS:
        plan = plan_encoding(arguments.parameters, devices, bits)
        print(
            f"{bits:>4}{devices:>9}{plan.inflated_norm:15.6f}{plan.inflated_norm**2:13.6f}"
            f"{plan.rounding_std:14.2e}{plan.clipped_fraction:12.1e}"
        )


if __name__ == "__main__":
    main()
