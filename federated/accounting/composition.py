"""Several Gaussian releases on the same devices, such as counts and training, as one guarantee.

Gaussian releases compose to a Gaussian one, also if a later one is chosen in the light of an earlier one (Dong,
Roth and Su 2022, corollary 2): their rho adds up, and the exact curve at the sum holds for all together.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from federated.accounting.gaussian import epsilon_of_rho
from federated.accounting.guarantees import second_opinion


@dataclass(frozen=True)
class CombinedGuarantee:
    """Guarantee for one device over all releases together.

    Attributes:
      rho: the sum; mu: ``sqrt(2 rho)``.
      epsilon: delta -> epsilon by the exact Gaussian curve.
      epsilon_pld: delta -> epsilon by convolving the releases' privacy loss distributions.
    """

    rho: float
    mu: float
    epsilon: dict[float, float]
    epsilon_pld: dict[float, float]


def compose(rhos: Sequence[float], deltas: Iterable[float]) -> CombinedGuarantee:
    """The guarantee of Gaussian releases of the given rho.

    Guarantee: unit one device, zero-out adjacency, for releases that are each a Gaussian one of that rho whatever
    the earlier ones gave.

    Raises:
      ValueError: no release, or a rho that is not a finite number of at least 0.
      ArithmeticError: the two accountants differ.
    """
    if not rhos:
        raise ValueError("rhos: none; give the rho of at least one release")
    rho = math.fsum(rhos)
    exact = {delta: epsilon_of_rho(rho, delta) for delta in deltas}
    return CombinedGuarantee(
        rho, math.sqrt(2 * rho), exact, second_opinion([(2 * one) ** -0.5 for one in rhos if one], exact)
    )
