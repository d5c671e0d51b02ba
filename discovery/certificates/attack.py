"""Lower bound on the epsilon of shuffled messages: an explicit attack, to compare with the certificates."""

import math

import numpy as np
from scipy import fft

from discovery.certificates.clones import checked
from discovery.device.randomizer import SubsetSelection

# Rounding of the transform summed over all points, measured below 1e-14; a larger value favours the defence.
_ROUNDING = 1e-13
_OUTSIDE = 1e-16


def attack(randomizer: SubsetSelection, messages: int, delta: float) -> float:
    """An epsilon that no certificate of these shuffled messages can go below.

    The attacker tells item x from item y when every other message holds a third item, by the event
    ``N1 - N2 >= t``, counting messages without the third item: those with x and without y, less those
    with y and without x. Whatever is (epsilon, delta)-DP has ``P_x <= e^epsilon P_y + delta`` for every t.

    Raises:
      ValueError: a parameter outside its range.
    """
    checked(randomizer.epsilon0, messages, delta)
    d, k, p = randomizer.domain, randomizer.size, randomizer.inclusion
    if d < 3:
        raise ValueError(f"domain: {d} items leave no third item for the other messages; at least 3 are needed")
    # Only messages without the third item count. Then x without y is as likely as y without x.
    cover = wrongly = (1 - p) * k * (d - 1 - k) / ((d - 1) * (d - 2))
    rightly = p * (d - k) * (d - k - 1) / ((d - 1) * (d - 2))

    tails = _tails(messages - 1, cover)
    # tails[i] = P[sum of the others >= i - 1]: the device's own message moves the sum by 0 or 1.
    up, stay, down = tails[:-2], tails[1:-1], tails[2:]
    rest = 1 - rightly - wrongly
    with_x = rightly * up + rest * stay + wrongly * down
    with_y = wrongly * up + rest * stay + rightly * down
    gain = with_x - _ROUNDING - delta
    useful = gain > 0
    if not np.any(useful):
        return 0.0
    return max(float(np.max(np.log(gain[useful] / (with_y[useful] + _ROUNDING)))), 0.0)


def _tails(count: int, chance: float) -> np.ndarray:
    """``P[X >= t]`` for ascending t, all that are not 0 or 1 by ``_OUTSIDE``; X is the sum of ``count`` steps.

    A step is +1 or -1 with probability ``chance`` each, else 0; its characteristic function at
    ``2 w`` is ``1 - 4 chance sin(w)^2``. The window is that of Bernstein's inequality.
    """
    log = math.log(2 / _OUTSIDE)
    reach = math.ceil(log / 3 + math.sqrt(log * log / 9 + 4 * count * chance * log)) + 2
    points = fft.next_fast_len(2 * reach + 1, real=True)
    angles = math.pi * np.arange(points // 2 + 1) / points
    shrink = -4 * chance * np.sin(angles) ** 2
    # By logarithms, since a rounded base to the power of many messages loses digits; a small base cannot matter.
    powers = np.where(shrink > -0.5, np.exp(count * np.log1p(np.maximum(shrink, -0.5))), np.power(1 + shrink, count))
    chances = fft.fftshift(fft.irfft(powers, points))
    return np.cumsum(np.maximum(chances, 0.0)[::-1])[::-1]
