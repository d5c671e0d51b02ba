"""What the kernel does between two matrix products, compiled for the CPU: one pass over memory each.

Shape legend: C devices of a chunk, N positions (step by step), L labelled positions, H hidden,
G = 3H gates (forget, candidate, output), V vocabulary, B rows.

``step.Tape`` and ``sums`` say the same in torch. A number that is not finite stays so: a broken device has to be
seen as broken where its update is clipped.
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
_ANY_ORDER = {"reassoc", "contract", "nsz"}
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


def _exp(x: float) -> float:
    return math.exp(x)


@overload(_exp, jit_options={"fastmath": {"contract"}, "error_model": "numpy"})
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


def _tanh(x: float) -> float:
    return math.tanh(x)


@overload(_tanh, jit_options={"fastmath": {"contract"}, "error_model": "numpy"})
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


def _largest(row_V: np.ndarray, bias_V: np.ndarray) -> np.floating:
    return np.max(row_V + bias_V)


@overload(_largest)
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


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=_ANY_ORDER)
def train_bias(
    logits_LV: np.ndarray, bias_V: np.ndarray, targets_L: np.ndarray, slope_V: np.ndarray, rate: np.floating
) -> None:
    """Logits (still without bias) become the loss's gradient by logit, times L; the bias is trained.

    Args:
      slope_V: scratch.
      rate: learning rate over L.
    """
    one = logits_LV.dtype.type(1)
    slope_V[:] = 0
    for position in range(len(logits_LV)):
        row_V = logits_LV[position]
        top = _largest(row_V, bias_V)
        total = row_V.dtype.type(0)
        for v in range(len(row_V)):
            row_V[v] = _exp(row_V[v] + bias_V[v] - top)
            total += row_V[v]
        scale = row_V.dtype.type(one / total)
        for v in range(len(row_V)):
            row_V[v] *= scale
            slope_V[v] += row_V[v]
        row_V[targets_L[position]] -= one
        slope_V[targets_L[position]] -= one
    for v in range(len(bias_V)):
        bias_V[v] -= rate * slope_V[v]


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def cell_forward(
    gates_CNG: np.ndarray,
    cell_CNH: np.ndarray,
    tanh_CNH: np.ndarray,
    mixed_CNH: np.ndarray,
    start: int,
    before: int,
    rows: int,
) -> None:
    """One time step from the gates' inputs, which become their outputs in place.

    Args:
      start, before: first position of this step and of the one before; -1 if there is none.
      rows: of this step.
    """
    one = gates_CNG.dtype.type(1)
    hidden = cell_CNH.shape[2]
    for device in range(len(gates_CNG)):
        for row in range(rows):
            forget_H = gates_CNG[device, start + row, :hidden]
            candidate_H = gates_CNG[device, start + row, hidden : 2 * hidden]
            output_H = gates_CNG[device, start + row, 2 * hidden :]
            cell_H, tanh_H = cell_CNH[device, start + row], tanh_CNH[device, start + row]
            mixed_H = mixed_CNH[device, start + row]
            for h in range(hidden):
                forget_H[h] = one / (one + _exp(-forget_H[h]))
                candidate_H[h] = _tanh(candidate_H[h])
                output_H[h] = one / (one + _exp(-output_H[h]))
            if before < 0:
                for h in range(hidden):
                    cell_H[h] = candidate_H[h] - forget_H[h] * candidate_H[h]
            else:
                before_H = cell_CNH[device, before + row]
                for h in range(hidden):
                    cell_H[h] = candidate_H[h] + forget_H[h] * (before_H[h] - candidate_H[h])
            for h in range(hidden):
                tanh_H[h] = _tanh(cell_H[h])
                mixed_H[h] = output_H[h] * tanh_H[h]


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def cell_backward(
    gates_CNG: np.ndarray,
    cell_CNH: np.ndarray,
    tanh_CNH: np.ndarray,
    d_mixed_CBH: np.ndarray,
    d_cell_CBH: np.ndarray,
    start: int,
    before: int,
    rows: int,
) -> None:
    """One time step backward: the gates' outputs become gradients by the gates' inputs in place.

    Args:
      d_cell_CBH: gradient by this step's cell from the steps after it; becomes that by the cell before.
    """
    one = gates_CNG.dtype.type(1)
    zero = gates_CNG.dtype.type(0)
    hidden = cell_CNH.shape[2]
    for device in range(len(gates_CNG)):
        for row in range(rows):
            forget_H = gates_CNG[device, start + row, :hidden]
            candidate_H = gates_CNG[device, start + row, hidden : 2 * hidden]
            output_H = gates_CNG[device, start + row, 2 * hidden :]
            tanh_H = tanh_CNH[device, start + row]
            before_H = cell_CNH[device, max(before, 0) + row]
            d_mixed_H, d_cell_H = d_mixed_CBH[device, row], d_cell_CBH[device, row]
            earlier = zero if before < 0 else one
            for h in range(hidden):
                forget, candidate, output, tanh = forget_H[h], candidate_H[h], output_H[h], tanh_H[h]
                d_cell = d_mixed_H[h] * output * (one - tanh * tanh) + d_cell_H[h]
                d_before = d_cell * forget
                forget_H[h] = d_cell * (earlier * before_H[h] - candidate) * forget * (one - forget)
                candidate_H[h] = (d_cell - d_before) * (one - candidate * candidate)
                output_H[h] = d_mixed_H[h] * tanh * output * (one - output)
                d_cell_H[h] = d_before


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=_ANY_ORDER)
def sum_of_squares(part_CP: np.ndarray) -> np.ndarray:
    """Sum of squares of each device in float64."""
    total_C = np.empty(len(part_CP))
    for device in range(len(part_CP)):
        part_P = part_CP[device]
        total = 0.0
        for i in range(len(part_P)):
            total += np.float64(part_P[i]) * np.float64(part_P[i])
        total_C[device] = total
    return total_C


@numba.njit(nogil=True, cache=True, error_model="numpy")
def add_whole(total_P: np.ndarray, part_CP: np.ndarray, scale_C: np.ndarray) -> None:
    """Add every ``part * scale``, cut to whole numbers towards zero, to an int64 ``total``; none at scale 0."""
    for device in range(len(part_CP)):
        if scale_C[device] != 0.0:
            _add_whole(total_P, part_CP[device], scale_C[device])


@numba.njit(nogil=True, cache=True, error_model="numpy")
def add_whole_rows(total_VE: np.ndarray, ids_U: np.ndarray, part_UE: np.ndarray, scale: float) -> None:
    """Add one device's rows of a matrix in the same way; what lies in ``part`` beyond them does not count."""
    for row in range(len(ids_U)):
        _add_whole(total_VE[ids_U[row]], part_UE[row], scale)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _add_whole(total_P: np.ndarray, part_P: np.ndarray, scale: float) -> None:
    for i in range(len(total_P)):
        total_P[i] += np.int64(np.float64(part_P[i]) * scale)
