"""Error and norm bounds of secure aggregation, computed before any device is asked.

Kairouz, Liu, Steinke 2021, *The Distributed Discrete Gaussian Mechanism for Federated Learning with
Secure Aggregation*: algorithm 1, theorem 1 and proposition 22. Symbols there: d the order of the transform, gamma the
granularity (1 / ``scale``), beta the bias, m the modulus 2^bits, n the devices. Noise is not part of it
here: as in Xu et al. 2023 the decoded sum gets the central noise of DP-FTRL.

Shape legend: P parameters, N the order of the transform.
"""

import math
from dataclasses import dataclass

from federated.secagg import hadamard
from pretrain.randomness.noise import FIXED_POINT

# At most this probability that a device at the clip norm has any element clipped.
_ANY_CLIPPED = 2.0**-10


@dataclass(frozen=True)
class Encoding:
    """Integer encoding of device updates, and its cost. Public.

    Lengths are in clip norms, integers in units of 1 / ``scale``.

    Attributes:
      num_parameters: P.
      order: N, elements that a device sends.
      bits: sums are modulo 2^bits.
      devices: most devices of one sum.
      scale: integers per clip norm.
      element_bound: no element that a device sends is larger in magnitude.
      norm_limit: a device sends no vector whose L2 norm, as it computes it, is larger.
      inflated_norm: most that the decoded sum moves, in L2 norm, when one device is zeroed.
      clipped_fraction: bound on the expected share of elements clipped of a device at the clip norm.
      rounding_std: bound on the std that rounding adds to each parameter of the decoded sum.
    """

    num_parameters: int
    order: int
    bits: int
    devices: int
    scale: float
    element_bound: int
    norm_limit: float
    inflated_norm: float
    clipped_fraction: float
    rounding_std: float


def plan_encoding(num_parameters: int, devices: int, bits: int, beta: float = 2.0**-20) -> Encoding:
    """The finest grid on which ``devices`` updates of norm 1 add up without wrapping around.

    Guarantee: let two rounds differ in one device that sends zeros in one of them, with the coins of all
    devices the same. The decoded sums differ by at most ``inflated_norm`` in L2 norm, always: each device
    checks its own norm after rounding, clipping an element never raises a norm, and
    ``devices * element_bound < 2^(bits - 1)`` leaves nothing to wrap. So noise of std z per clip norm is
    worth z / ``inflated_norm``, and rho grows by its square.

    The inflation is theorem 1's: ``min((1 + g)^2, 1 + g^2 / 4 + sqrt(2 ln(1 / beta)) (1 + g / 2) / scale)``
    with ``g = sqrt(N) / scale``, plus what float64 and the final grid of 2^-44 can add. How many elements
    are clipped: each element of a rotated vector of norm L is a sum of N independent signs, so it exceeds
    ``tau L / sqrt(N)`` with probability at most ``2 exp(-tau^2 / 2)`` (Hoeffding; their lemma 29 with rho = 1).

    Args:
      devices: most devices that one sum may hold: the report goal, or a bound on a random cohort.
      bits: 8 to 62.
      beta: chance that rounding must be drawn again (their bias); small costs next to nothing at large N.

    Raises:
      ValueError: the modulus is too small for this number of devices, or arguments out of range.
    """
    _check(num_parameters, devices, bits, beta)
    order = hadamard.order_of(num_parameters)
    bound = ((1 << (bits - 1)) - 1) // devices
    if bound < 2:
        least = math.ceil(math.log2(2 * devices + 1)) + 1
        raise ValueError(f"secagg.bits: {bits} cannot hold a sum over {devices} devices; raise it to {least} or more")
    # Rounding may take an element up to the next integer, so one is kept free.
    room = bound - 1
    deviations = math.sqrt(2 * math.log(2 * order / _ANY_CLIPPED))
    # No element is longer than its vector, which decides for tiny models; and a finer grid than that of
    # the clipped updates would carry nothing.
    scale = min(room * max(1.0, math.sqrt(order) / deviations), float(FIXED_POINT))
    exceeds = 0.0 if scale <= room else min(1.0, 2 * math.exp(-((room / scale) ** 2) * order / 2))
    # Devices rotate, and add up their squares, in float64: what that is off by must neither make them round
    # again nor let a longer vector pass.
    slack = 1 + order * 2.0**-53 + hadamard.arithmetic_error(order)
    limit = rounded_norm(order, scale, beta) * slack
    norm = limit * slack
    inflated = norm + decoding_error(num_parameters, order, devices, norm)
    if devices * inflated >= 2**18:
        raise ValueError(f"secagg.bits: {bits} inflates norms to {inflated:.3g} clip norms; raise it")
    return Encoding(
        num_parameters=num_parameters,
        order=order,
        bits=bits,
        devices=devices,
        scale=scale,
        element_bound=bound,
        norm_limit=limit * scale,
        inflated_norm=inflated,
        clipped_fraction=exceeds,
        rounding_std=math.sqrt(devices) / (2 * scale),
    )


def rounded_norm(order: int, scale: float, beta: float) -> float:
    """Theorem 1's bound on a rounded vector of norm 1, in clip norms."""
    grid = math.sqrt(order) / scale
    likely = 1 + grid**2 / 4 + math.sqrt(2 * math.log(1 / beta)) * (1 + grid / 2) / scale
    return math.sqrt(min((1 + grid) ** 2, likely))


def decoding_error(num_parameters: int, order: int, devices: int, norm: float) -> float:
    """Bound on the additional distance of two decoded sums over that of the sums themselves, in clip norms.

    Each is off by the float64 inverse transform of a sum of norm ``devices * norm`` at most, and each
    parameter is rounded to the grid of 2^-44.
    """
    return 2 * devices * norm * hadamard.arithmetic_error(order) + math.sqrt(num_parameters) / FIXED_POINT


def _check(num_parameters: int, devices: int, bits: int, beta: float) -> None:
    for name, count in (("num_parameters", num_parameters), ("devices", devices)):
        if count < 1:
            raise ValueError(f"{name}: {count}; give at least 1")
    if not 8 <= bits <= 62:
        raise ValueError(f"secagg.bits: {bits}; give 8 to 62")
    if not 0 < beta < 1:
        raise ValueError(f"beta: {beta}; give a probability between 0 and 1")
