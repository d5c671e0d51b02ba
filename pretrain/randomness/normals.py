"""Box and Muller's mapping in additions, multiplications, divisions and square roots alone, compiled.

IEEE 754 defines those to the last bit, and compiled without ``fastmath`` none of them is left out, joined or put in
another order: the normals are the same bits on every processor, whatever its vectors are. NumPy's logarithm is not
(it has one program for AVX-512 and otherwise asks the system's library, which has several), and noise of a retry on
another worker would be other noise.

Shape legend: N pairs.
"""

import math

import numba
import numpy as np

_TWO_PI, _ROOT_HALF = 2.0 * math.pi, math.sqrt(0.5)
# ln 2 in two parts; the first ends in enough zeros for an exact product with an exponent.
_LN2_HIGH, _LN2_LOW = 0.6931471806019545, -4.2009150726810846e-11
# Adding and subtracting it rounds a small number to the nearest whole one.
_WHOLE = 1.5 * 2.0**52
_MANTISSA, _HALF = np.int64(2**52 - 1), np.int64(1022 << 52)


def pairs(u_N: np.ndarray, turns_N: np.ndarray) -> np.ndarray:
    """Two normals from the radius ``sqrt(-2 ln u)`` and an angle.

    Args:
      u_N: float64 in (0, 1], not below 2^-1022.
      turns_N: angle as a share of the circle, float64 in [0, 1].

    Returns:
      float64 ``[N, 2]``.
    """
    bits_N = u_N.view(np.int64)
    normals_N2 = np.empty((len(u_N), 2))
    _pairs(((bits_N & _MANTISSA) | _HALF).view(np.float64), (bits_N >> 52) - 1022.0, turns_N, normals_N2)
    return normals_N2


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _pairs(mantissa_N: np.ndarray, exponent_N: np.ndarray, turns_N: np.ndarray, normals_N2: np.ndarray) -> None:
    for i in range(len(mantissa_N)):
        radius = math.sqrt(-2.0 * _log(mantissa_N[i], exponent_N[i]))
        # Exact: a turn and its nearest quarter are multiples of the turn's last place.
        quarter = (turns_N[i] * 4.0 + _WHOLE) - _WHOLE
        angle = (turns_N[i] - quarter * 0.25) * _TWO_PI
        sin, cos = _sin(angle), _cos(angle)
        odd = (quarter == 1.0) | (quarter == 3.0)
        across, up = (sin, cos) if odd else (cos, sin)
        normals_N2[i, 0] = radius * (-across if (quarter == 1.0) | (quarter == 2.0) else across)
        normals_N2[i, 1] = radius * (-up if (quarter == 2.0) | (quarter == 3.0) else up)


@numba.njit(error_model="numpy")
def _log(mantissa: float, exponent: float) -> float:
    """``ln(mantissa 2^exponent)`` for a mantissa from 1/2 to 1, by the series of 2 atanh."""
    low = mantissa < _ROOT_HALF
    mantissa, exponent = (2.0 * mantissa if low else mantissa), (exponent - 1.0 if low else exponent)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    z = s * s
    series = 1.0 / 21.0
    for power in (19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0):
        series = series * z + 1.0 / power
    # The series' first term is 1: the rest is small beside it.
    rest = 2.0 * s * (series * z)
    return exponent * _LN2_HIGH + (2.0 * s + (rest + exponent * _LN2_LOW))


@numba.njit(error_model="numpy")
def _sin(x: float) -> float:
    """Up to an eighth of a turn, by its series."""
    z = x * x
    series = 1.0 / 355687428096000.0
    series = series * z - 1.0 / 1307674368000.0
    series = series * z + 1.0 / 6227020800.0
    series = series * z - 1.0 / 39916800.0
    series = series * z + 1.0 / 362880.0
    series = series * z - 1.0 / 5040.0
    series = series * z + 1.0 / 120.0
    series = series * z - 1.0 / 6.0
    return x + x * (z * series)


@numba.njit(error_model="numpy")
def _cos(x: float) -> float:
    """Up to an eighth of a turn, by its series."""
    z = x * x
    series = 1.0 / 20922789888000.0
    series = series * z - 1.0 / 87178291200.0
    series = series * z + 1.0 / 479001600.0
    series = series * z - 1.0 / 3628800.0
    series = series * z + 1.0 / 40320.0
    series = series * z - 1.0 / 720.0
    series = series * z + 1.0 / 24.0
    return 1.0 - z * (0.5 - z * series)
