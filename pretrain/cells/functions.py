"""Exponential, hyperbolic tangent and softmax, compiled for the CPU: one pass over memory each.

Shape legend: L labelled positions, K columns of the output layer, V vocabulary.

numba caches a compiled caller by the caller's own file: after a change here, remove ``__pycache__`` of ``cells`` too.

A number that is not finite stays so: a broken device has to be seen as broken where its update is clipped.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic, overload

if TYPE_CHECKING:
    from llvmlite import ir  # type: ignore[import-untyped]  # it has no types
    from numba.core.base import BaseContext
    from numba.core.typing import Context, Signature

# What code generation gets, and what it returns.
_Generate = Callable[["BaseContext", "ir.IRBuilder", "Signature", tuple["ir.Value", ...]], "ir.Value"]

# A type of numba where it chooses what to compile, a value where that runs; it wants both annotated the same.
_Number = Any
_Row = Any

# Sums may be taken in another order (the same one every time); nothing is assumed to be finite.
ANY_ORDER = {"reassoc", "contract", "nsz"}
_ONE, _HALF, _TWO = np.float32(1.0), np.float32(0.5), np.float32(2.0)


@intrinsic
def _bits_of(_typing: "Context", number: types.Type) -> tuple["Signature", _Generate]:
    """The bits of a float as an integer of its size."""
    whole = types.int32 if number == types.float32 else types.int64

    def generate(
        context: "BaseContext", builder: "ir.IRBuilder", _signature: "Signature", arguments: tuple["ir.Value", ...]
    ) -> "ir.Value":
        return builder.bitcast(arguments[0], context.get_value_type(whole))

    return whole(number), generate


@intrinsic
def _float_of(_typing: "Context", whole: types.Type) -> tuple["Signature", _Generate]:
    """The float that has these bits."""
    number = types.float32 if whole == types.int32 else types.float64

    def generate(
        context: "BaseContext", builder: "ir.IRBuilder", _signature: "Signature", arguments: tuple["ir.Value", ...]
    ) -> "ir.Value":
        return builder.bitcast(arguments[0], context.get_value_type(number))

    return number(whole), generate


# Callable in compiled code alone, which numba's types cannot say.
_bits = cast(Callable[[Any], Any], _bits_of)
_float = cast(Callable[[Any], Any], _float_of)


# Taylor's series to the seventh power is as good as float32 on [-ln 2 / 2, ln 2 / 2].
_C7, _C6, _C5, _C4, _C3 = (np.float32(1 / math.factorial(power)) for power in (7, 6, 5, 4, 3))
_PER_LN2, _LN2_HIGH, _LN2_LOW = np.float32(1.44269504), np.float32(0.693359375), np.float32(-2.12194440e-4)
_EXPONENT_AT, _EXPONENT_BIAS = np.int32(23), np.int32(127)


@numba.njit(error_model="numpy", fastmath={"contract"})
def _exp_parts(x: _Number) -> tuple[_Number, _Number]:
    """``e^r - 1`` and ``2^k`` of ``x = k ln 2 + r``, float32. ``x`` must lie where ``2^k`` is a normal number."""
    whole = np.rint(x * _PER_LN2)
    r = (x - whole * _LN2_HIGH) - whole * _LN2_LOW
    p = ((((_C7 * r + _C6) * r + _C5) * r + _C4) * r + _C3) * r + _HALF
    power = _float(np.int32((np.int32(whole) + _EXPONENT_BIAS) << _EXPONENT_AT))
    return (p * r + _ONE) * r, power


def exp(x: float) -> float:
    return math.exp(x)


@overload(exp, jit_options={"fastmath": {"contract"}, "error_model": "numpy"})
def _exp_by_type(x: _Number) -> Callable[[_Number], _Number]:
    if x != types.float32:

        def double(x: _Number) -> _Number:
            return math.exp(x)

        return double
    low, high = np.float32(-87.0), np.float32(88.0)

    def single(x: _Number) -> _Number:
        # NaN is neither below nor above, and passes.
        x = low if x < low else x
        x = high if x > high else x
        rest, power = _exp_parts(x)
        return (rest + _ONE) * power

    return single


def tanh(x: float) -> float:
    return math.tanh(x)


@overload(tanh, jit_options={"fastmath": {"contract"}, "error_model": "numpy"})
def _tanh_by_type(x: _Number) -> Callable[[_Number], _Number]:
    if x != types.float32:

        def double(x: _Number) -> _Number:
            return math.tanh(x)

        return double
    low, high = np.float32(-9.1), np.float32(9.1)

    def single(x: _Number) -> _Number:
        # tanh x = m / (m + 2) with m = e^2x - 1, whose digits near zero survive; beyond 9 it is 1.
        x = low if x < low else x
        x = high if x > high else x
        rest, power = _exp_parts(x + x)
        less_one = rest * power + (power - _ONE)
        return less_one / (less_one + _TWO)

    return single


def largest(row_V: np.ndarray, bias_V: np.ndarray) -> np.floating:
    return np.max(row_V + bias_V)


@overload(largest)
def _largest_by_type(row_V: _Row, bias_V: _Row) -> Callable[[_Row, _Row], _Number]:
    """Largest ``row + bias``: as integers, whose maximum the compiler takes many at a time."""
    integer, bits = (np.int32, 32) if row_V.dtype == types.float32 else (np.int64, 64)
    sign_at, others = integer(bits - 1), integer(2 ** (bits - 1) - 1)
    lowest = integer(-(2 ** (bits - 1)))

    def largest(row_V: _Row, bias_V: _Row) -> _Number:
        top = lowest
        for v in range(len(row_V)):
            key = _bits(row_V[v] + bias_V[v])
            # Negative floats are ordered the other way round. NaN ends up on top, or below all.
            top = max(top, integer(key ^ (integer(key >> sign_at) & others)))
        return _float(integer(top ^ (integer(top >> sign_at) & others)))

    return largest


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=ANY_ORDER)
def softmax_loss(
    logits_LK: np.ndarray,
    offset_K: np.ndarray,
    exact_K: np.ndarray,
    targets_L: np.ndarray,
    slope_K: np.ndarray,
    power: float,
) -> float:
    """Sum of the cross entropies; the logits become the loss's gradient by logit, in place.

    The loss of a target of probability p is its cross entropy, or (1 - p^power) / power, the generalised cross entropy
    of Zhang & Sabuncu 2018: its gradient is p^power times the cross entropy's.

    Args:
      offset_K: added to a column's logits where it is not the target.
      exact_K: added where it is. Both are the bias, unless columns are a sample of the words.
      targets_L: columns of the targets.
      slope_K: the gradient by offset is added to it.
      power: 0.0 for the cross entropy.
    """
    zero, lowest = logits_LK.dtype.type(0), logits_LK.dtype.type(-50)
    loss = 0.0
    for position in range(len(logits_LK)):
        row_K, target = logits_LK[position], targets_L[position]
        aim = row_K[target] + exact_K[target]
        row_K[target] = aim - offset_K[target]
        top = largest(row_K, offset_K)
        total = zero
        for k in range(len(row_K)):
            below = row_K[k] + offset_K[k] - top
            # What is too small to matter stays a normal number: denormal ones would make the products crawl.
            # NaN is not below, and passes.
            row_K[k] = exp(lowest if below < lowest else below)
            total += row_K[k]
        surprise = math.log(total) + np.float64(top) - np.float64(aim)
        loss += surprise
        weight = row_K.dtype.type(math.exp(-power * surprise))
        scale = row_K.dtype.type(weight / total)
        for k in range(len(row_K)):
            row_K[k] *= scale
        row_K[target] -= weight
        for k in range(len(row_K)):
            slope_K[k] += row_K[k]
    return loss
