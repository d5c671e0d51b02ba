"""The optional ``planning:`` block of a launch file: the planner's search space.

The block does not change a launch. The planner reads it, proposes a ``mechanism:`` block, and a person
puts that block into the file.
"""

from typing import Literal

from pydantic import Field, PositiveInt

from federated.config.mechanism import MOST_COHORT, MOST_DEVICES
from pretrain.config import Amount, Config

Kind = Literal["tree", "blt", "banded"]

KINDS: tuple[Kind, ...] = ("tree", "blt", "banded")
# Memory for the noise between rounds, in copies of the model.
MAX_NOISE_COPIES = 16
# Safety margin on training devices: estimates are rough, and devices come and go.
SPARE_FRACTION = 0.1
# Minutes of a slow round, which determine the device timer.
SLOW_ROUND_MINUTES = 10.0


class PlanningConfig(Config):
    """Population facts and privacy target, as known before a launch."""

    population_estimate: PositiveInt = Field(
        le=MOST_DEVICES,
        description="eligible devices, including held-out ones; a bucketed or public figure",
    )
    max_report_goal: PositiveInt = Field(
        le=MOST_COHORT, description="largest number of devices that one round can aggregate"
    )
    target_rho: Amount = Field(description="zCDP of the run")
