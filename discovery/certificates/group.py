"""A whole device after shuffling: all of its messages at once, through the certificate of one of them."""

import math
from collections.abc import Callable

from discovery.certificates.blanket import blanket
from discovery.device.randomizer import SubsetSelection

# The least step up; what it costs in epsilon is less than a figure shows.
_STEP = 1e-3
# Where shuffling takes off no more than this share, the local epsilon is the plainer statement.
NO_GAIN = 1e-4


def honest_messages(messages: int, size: int, share: float) -> int:
    """Messages of a layer that hide one device: its own ``size``, and those of the others that answer honestly.

    Guarantee: a certificate of so many messages holds where ``share`` of the other devices randomise as agreed and keep
    their answers to themselves, whatever all others send and tell: to whoever knows these messages they are nothing
    but numbers to subtract, and shuffled messages with such added are post-processed (Balle et al. 2019, whose blanket
    is that of the users who are honest).

    Args:
      messages: of the layer, a multiple of ``size``, or as many as one device sends at least.
    """
    others = max(messages // size - 1, 0)
    return size * (1 + math.floor(share * others))


def device(randomizer: SubsetSelection, messages: int, size: int, delta: float) -> float:
    """Epsilon at ``delta`` of a device that sent ``size`` of a layer's shuffled ``messages``, by the privacy blanket.

    Guarantee: see ``group``; never above ``size * epsilon0``, which holds against whoever collects the messages.

    Args:
      messages: that are honest (``honest_messages``).
    """
    local, plainer = randomizer.epsilon0, 1 - NO_GAIN
    if blanket(randomizer, messages, delta) > plainer * local:
        return size * local
    together = group(lambda at: blanket(randomizer, messages, at), size, local, delta)
    return size * local if together > plainer * size * local else together


def group(certificate: Callable[[float], float], size: int, epsilon0: float, delta: float) -> float:
    """Epsilon at ``delta`` of a device that sends ``size`` messages into one shuffled layer.

    Guarantee: where one message's item may change at (e, d) whatever the others are, all of a device's may change one
    after the other, which makes ``(size e, d (exp(size e) - 1) / (exp(e) - 1))`` (group privacy, Dwork and Roth 2014,
    theorem 2.2 as it is proved). Returned is ``size e`` for an e that the certificate gives at the delta that this
    leaves to one message, and ``size epsilon0`` where shuffling gives no more than that. Swap adjacency, unit device.
    It assumes that a message cannot be linked to its sender or to the others of its sender.

    Args:
      certificate: epsilon of one message at a delta; rises as delta falls.
    """
    epsilon = certificate(delta)
    while epsilon < epsilon0:
        needed = certificate(delta * _left_to_one(epsilon, size))
        if needed <= epsilon:
            return size * epsilon
        epsilon = needed * (1 + _STEP)
    return size * epsilon0


def _left_to_one(epsilon: float, size: int) -> float:
    """``(exp(e) - 1) / (exp(size e) - 1)``, without leaving the range of floats on the way."""
    if epsilon == 0:
        return 1 / size
    return math.expm1(epsilon) * math.exp(-size * epsilon) / -math.expm1(-size * epsilon)
