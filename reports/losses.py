"""How privacy losses read, wherever they stand: rounded up once, here, so that no two places say two numbers."""

import math
from decimal import ROUND_CEILING, Decimal
from statistics import NormalDist

_STRONG, _REASONABLE = 1.0, 10.0


def up(value: float | None, digits: int = 2) -> str:
    """A privacy loss, rounded up to ``digits`` places; exact in decimal, so 0.29 stays 0.29."""
    if value is None:
        return "none"
    if not math.isfinite(value):
        return "without bound"
    return str(Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-digits), rounding=ROUND_CEILING))


def strength(epsilon: float) -> str:
    """A plain word for an epsilon, after the tiers of Ponomareva et al. 2023, section 5.2."""
    if epsilon <= _STRONG:
        return "strong"
    return "reasonable" if epsilon <= _REASONABLE else "weak"


def guesser(mu: float, false_alarms: float) -> str:
    """How often the best possible attacker is right about one device, rounded up.

    The trade-off of mu-GDP: at most ``Phi(Phi^-1(false_alarms) + mu)`` (Dong et al. 2022).
    """
    normal = NormalDist()
    # The error of cdf, about 1e-15, must not push a whole tenth up.
    return up(round(100 * normal.cdf(normal.inv_cdf(false_alarms) + mu), 9), 1) + "%"
