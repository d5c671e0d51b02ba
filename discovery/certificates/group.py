"""Device-level epsilon after shuffling: all messages of a device, by group privacy from one message's certificate."""

import math
from collections.abc import Callable

from discovery.certificates.blanket import blanket
from discovery.device.randomizer import SubsetSelection

# Smallest step upwards; its cost in epsilon is below the displayed digits.
_STEP = 1e-3
# If shuffling reduces epsilon by no more than this share, the local epsilon is stated.
NO_GAIN = 1e-4


def honest_messages(messages: int, size: int, share: float) -> int:
    """Messages of a layer that hide one device: its own ``size``, and those of the others that answer honestly.

    Guarantee: a certificate for this many messages holds if ``share`` of the other devices randomise as agreed and keep
    their messages secret, for any behaviour of the rest: an attacker who knows the other messages can only subtract
    them, and adding such messages is post-processing (Balle et al. 2019, whose blanket consists of the honest users).

    Args:
      messages: of the layer, a multiple of ``size``, at least those of one device.
    """
    others = max(messages // size - 1, 0)
    return size * (1 + math.floor(share * others))


def device(randomizer: SubsetSelection, messages: int, size: int, delta: float) -> float:
    """Epsilon at ``delta`` of a device that sent ``size`` of a layer's shuffled ``messages``, by the privacy blanket.

    Guarantee: see ``group``; never above ``size * epsilon0``, which holds against any collector of the messages.

    Args:
      messages: number of honest messages (``honest_messages``).
    """
    local, plainer = randomizer.epsilon0, 1 - NO_GAIN
    if blanket(randomizer, messages, delta) > plainer * local:
        return size * local
    together = group(lambda at: blanket(randomizer, messages, at), size, local, delta)
    return size * local if together > plainer * size * local else together


def group(certificate: Callable[[float], float], size: int, epsilon0: float, delta: float) -> float:
    """Epsilon at ``delta`` of a device that sends ``size`` messages into one shuffled layer.

    Guarantee: if a change of one message's item has (e, d) for any other messages, changing all of a device's messages
    one after the other has ``(size e, d (exp(size e) - 1) / (exp(e) - 1))`` (group privacy, Dwork and Roth 2014,
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
