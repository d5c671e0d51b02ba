"""What stages state of their loss, without any launch."""

from types import SimpleNamespace

from pipeline.releases.counts import counts
from tests.helpers.reports.reports_example import LOCAL_WORDS

DELTA = 1e-6


def trained(rho: float) -> SimpleNamespace:
    """A run that has trained, and nothing else."""
    spend = counts(rho, DELTA)
    stated = {
        "rho": rho,
        "mu": (2 * rho) ** 0.5,
        "delta": DELTA,
        "epsilon": spend.epsilon,
        "epsilon_pld": spend.epsilon,
    }
    return SimpleNamespace(result={"fine_tune": stated | {"spend": spend.model_dump()}}.__getitem__)


EPSILON0, SENT = 2.0, 3


def discovered(*layers: tuple[int, int], **changes: object) -> dict:
    """What a discovery states that asked so many devices about so many items in each layer."""
    row = LOCAL_WORDS["layers"][0]
    rows = [row | {"layer": n, "messages": asked * SENT, "domain": domain, "blanket": 1 / asked}
            for n, (asked, domain) in enumerate(layers, start=1)]  # fmt: skip
    local = {"epsilon0": EPSILON0, "messages_per_device": SENT, "device_level_epsilon0": SENT * EPSILON0}
    local |= {"honest_share": 0.5, "delta": DELTA / 2, "epsilon_clones": EPSILON0}
    return LOCAL_WORDS | local | {"layers": rows} | changes
