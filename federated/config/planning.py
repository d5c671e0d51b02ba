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
    """A small launch on public text, which ``tacit rehearse`` simulates: Xu et al. 2023, section 2.5.

    Attributes:
      pseudo_users: pieces of public text that simulate devices.
      words_per_user: word budgets, log-normal as for people, or all equal.
      median_words: median word budget of a pseudo-user.
      report_goal: pseudo-users aggregated in a round.
      rounds: of one simulation.
      start_clip_norm: initial value of adaptive clipping, which moves to the median norm of the updates.
      noise_to_signal: ratios to try, root-mean-square noise in a sum of mean updates, per coordinate, in clip norms.
      max_accuracy_loss: acceptable loss of accuracy through noise; 0.002 is 0.2 percentage points.
    """

    pseudo_users: int = 600
    words_per_user: Literal["heavy-tailed", "fixed"] = "heavy-tailed"
    median_words: int = 150
    report_goal: int = 50
    rounds: int = 12
    start_clip_norm: float = 1.0
    server_learning_rates: tuple[float, ...] = (0.5, 1.0, 2.0)
    noise_to_signal: tuple[float, ...] = (0.0025, 0.005, 0.01, 0.02, 0.04)
    max_accuracy_loss: float = 0.002


@dataclass(frozen=True)
class SmallTrade:
    """Rehearsal settings: splits of rho and a simulated population that show a launch's gain before any spend.

    Attributes:
      shares: shares of the planned rho for one release, counts or training; pairs with a sum of at most 1 are
        splits.
      goals: report goals, as shares of ``max_report_goal``.
      median_words: median word budget of a pseudo-user; budgets are log-normal, with the launch's cap on devices.
      most_users, most_rounds, most_goal: limits of the simulation, beyond which it is scaled.
      held_out_words: words for evaluation.
    """

    shares: tuple[float, ...] = (0.1, 0.5, 0.9, 1.0)
    goals: tuple[float, ...] = (1.0, 0.5, 0.25)
    median_words: int = 150
    most_users: int = 3000
    most_rounds: int = 20
    most_goal: int = 200
    held_out_words: int = 20_000


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
