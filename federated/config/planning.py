"""The optional ``planning:`` block of a launch file: the planner's search space.

The block does not change a launch. The planner reads it, proposes a ``mechanism:`` block, and a person
puts that block into the file.
"""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from federated.config.mechanism import MOST_COHORT, MOST_DEVICES
from pretrain.config import Amount, Config

Kind = Literal["tree", "blt", "banded"]

KINDS: tuple[Kind, ...] = ("tree", "blt", "banded")
# Memory for the noise between rounds, in copies of the model.
MAX_NOISE_COPIES = 16
# Safety margin on training devices: estimates are rough, and devices come and go.
SPARE_FRACTION = 0.1


@dataclass(frozen=True)
class SmallLaunch:
    """Settings of a rehearsal: ways to spend rho, and the simulated population that shows their gain before any spend.

    Attributes:
      shares: shares of the planned rho for one release alone, training or counts.
      counts_share: share for counts that move the start of training, which has the rest.
      median_words: median word budget of a pseudo-user; budgets are log-normal, with the launch's cap on devices.
      most_users, most_rounds, most_goal: limits of the simulation, beyond which it is scaled.
      held_out_words: words for evaluation.
      least_headroom: gain of training without noise below which the text of a rehearsal cannot tell; 0.002 is 0.2
        percentage points.
    """

    shares: tuple[float, ...] = (1.0, 0.3)
    counts_share: float = 0.1
    median_words: int = 150
    most_users: int = 3000
    most_rounds: int = 64
    most_goal: int = 100
    held_out_words: int = 20_000
    least_headroom: float = 0.002


class PlanningConfig(Config):
    """Population facts and privacy target, as known before a launch."""

    population_estimate: PositiveInt = Field(
        le=MOST_DEVICES,
        description="eligible devices, including held-out ones; a bucketed or public figure",
    )
    max_report_goal: PositiveInt = Field(
        le=MOST_COHORT, description="largest number of devices that one round can aggregate"
    )
    round_minutes: PositiveFloat = Field(
        ge=0.01, le=100_000, description="minutes of a slow round, which determine the device timer"
    )
    target_rho: Amount = Field(description="zCDP of the run")
