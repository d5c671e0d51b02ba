"""DP-FedAvg as in McMahan et al. 2018, in small: the shared setting of its figures.

Every device joins a round by its own coin and noise is fresh in every round. The paper's rounds hold 5,000 devices on
average at noise multiplier 1. Here they are smaller, and a noise multiplier is scaled down with them, so that the noise
of the mean update is the paper's: "noise x1". The points of the paper's curves were not published as
numbers, so agreement is judged against its text and tables.
"""

from collections.abc import Mapping
from typing import Any

from benchmarks.papers.lab import Lab
from benchmarks.papers.runs import Arm

COHORT, MULTIPLIER = 5000, 1.0
PAPER = "McMahan et al. 2018"
NEXT_TO_NONE = 1e-6  # a mechanism has to have some noise


def multiplier(goal: int, times: float) -> float:
    """Noise multiplier of a round of ``goal`` devices that gives the mean ``times`` the paper's noise."""
    return max(NEXT_TO_NONE, MULTIPLIER * times * goal / COHORT)


def noise_name(times: float) -> str:
    """The noise of an arm, in words."""
    return f"noise x{times:g}" if times else "no noise"


def arm(lab: Lab, name: str, times: float = 0.0, local: Mapping[str, Any] | None = None, **mechanism: Any) -> Arm:
    """An arm of DP-FedAvg."""
    goal = mechanism.get("report_goal", lab.size.goal)
    server = {"learning_rate": lab.size.server_rate * mechanism.pop("server_times", 1.0)}
    block = {"kind": "independent", "noise_multiplier": multiplier(goal, times)} | mechanism
    return Arm(name, block, server=server, local=local or {})
