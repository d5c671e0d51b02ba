"""Central epsilon of shuffled Subset Selection messages: two upper bounds and an attack's lower bound."""

from dataclasses import dataclass

from discovery.certificates.attack import attack
from discovery.certificates.blanket import blanket
from discovery.certificates.clones import ERRATUM, clones, closed_2023
from discovery.device.randomizer import of_size, subset_selection

# Range of parameters that launches may use and for which the certificates are tested.
_LEAST_EPSILON0, _MOST_EPSILON0 = 0.001, 100
_MOST_MESSAGES, _MOST_DOMAIN = 10**12, 10**9


@dataclass(frozen=True)
class Shuffled:
    """Shuffled messages of one layer, and their central epsilon by each certificate.

    Attributes:
      k: items in a message.
      attack: epsilon that an attack reaches, a lower bound.
      closed_2023: the published closed form, not certified; None where it does not apply.
    """

    epsilon0: float
    messages: int
    domain: int
    k: int
    delta: float
    clones: float
    blanket: float
    attack: float
    closed_2023: float | None
    closed_2023_note: str = ERRATUM
    unit: str = "item"
    adjacency: str = "swap"


def shuffled(epsilon0: float, messages: int, domain: int, delta: float, k: int | None = None) -> Shuffled:
    """The central epsilon at delta, by both certificates and the attack.

    Args:
      k: items in a message; None for the device's own choice.

    Raises:
      ValueError: a number outside the tested range of the certificates.
    """
    for name, value, least, most in (
        ("epsilon0", epsilon0, _LEAST_EPSILON0, _MOST_EPSILON0),
        ("messages", messages, 1, _MOST_MESSAGES),
        ("domain", domain, 2, _MOST_DOMAIN),
    ):
        if not least <= value <= most:
            raise ValueError(f"{name}: got {value:g}; give a number from {least:,} to {most:,}")
    if k is not None and not 1 <= k < domain:
        raise ValueError(f"k: got {k}; expected from 1 to {domain - 1}, one less than the domain")
    randomizer = subset_selection(epsilon0, domain) if k is None else of_size(epsilon0, domain, k)
    return Shuffled(
        epsilon0,
        messages,
        domain,
        randomizer.size,
        delta,
        clones=clones(epsilon0, messages, delta),
        blanket=blanket(randomizer, messages, delta),
        attack=attack(randomizer, messages, delta),
        closed_2023=closed_2023(epsilon0, messages, delta),
    )
