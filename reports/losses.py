"""Text forms of privacy losses; this module alone rounds them (up), so every page states the same number."""

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


def guesser(mu: float, false_alarms: float, epsilon: float = 0.0, delta: float = 0.0) -> str:
    """Rate at which the best possible attacker is right about one device, rounded up.

    The trade-off of mu-GDP: at most ``Phi(Phi^-1(false_alarms) + mu)``. Composed with an (epsilon, delta)-private
    release, the bound is that of both together, with randomised response as the worst case (Dong et al. 2022,
    theorem 4).
    """
    normal = NormalDist()
    right = normal.cdf(normal.inv_cdf(false_alarms) + mu)
    if epsilon or delta:
        right = _beside_an_answer(mu, false_alarms, epsilon, delta)
    # The error of cdf, about 1e-15, must not push a whole tenth up.
    return up(round(100 * right, 9), 1) + "%"


def _beside_an_answer(mu: float, false_alarms: float, epsilon: float, delta: float) -> float:
    """Detection rate from a Gaussian of ``mu`` and an answer that is false with probability 1 / (1 + e^epsilon).

    With probability ``delta`` the answer is certain. The test is the likelihood ratio test at that false alarm rate.
    """
    normal, true = NormalDist(), 1 / (1 + math.exp(-epsilon))

    def alarms(threshold: float, centre: float, yes: float) -> float:
        heard = ((epsilon, yes), (-epsilon, 1 - yes))
        return (1 - delta) * math.fsum(chance * normal.cdf((centre - threshold + says) / mu) for says, chance in heard)

    low, high = -(epsilon + 40 * mu + mu**2), epsilon + 40 * mu + mu**2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if alarms(middle, -(mu**2) / 2, 1 - true) > false_alarms else (low, middle)
    return delta + alarms(low, mu**2 / 2, true)
