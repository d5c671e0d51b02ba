"""The optional ``mechanism.availability`` block: a simulation of when devices check in and who reports.

In the field nobody configures this; it happens. Here it decides who trains, so it is part of the launch.
"""

import math
from typing import Annotated

from pydantic import Field, PositiveFloat, model_validator

from pretrain.config import Config

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class AvailabilityConfig(Config):
    """Devices train by night, on a charger; some that are selected never report (Bonawitz et al. 2019)."""

    night_fraction: Share = Field(default=0.9, description="devices that check in at the best hour of their day")
    day_fraction: Share = Field(default=0.2, description="devices that check in at the worst hour of their day")
    best_hour: Annotated[float, Field(ge=0.0, lt=24.0)] = Field(default=2.0, description="local time of the former")
    zone_spread_hours: Annotated[float, Field(ge=0.0, le=24.0)] = Field(
        default=3.0, description="local times of the population are spread evenly over so many hours"
    )
    minutes_per_round: PositiveFloat = Field(default=30.0, description="how long a round takes")
    over_selection: Annotated[float, Field(ge=1.0)] = Field(
        default=1.3, description="devices selected for each place in a round"
    )
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = Field(
        default=0.08, description="probability that a selected device does not report"
    )
    timer_hours: PositiveFloat | None = Field(
        default=None, description="how long a device sleeps after it took part; gives min_sep"
    )

    @model_validator(mode="after")
    def _more_by_night(self) -> "AvailabilityConfig":
        if not 0 < self.night_fraction >= self.day_fraction:
            raise ValueError(
                f"night_fraction: {self.night_fraction:g} must be above 0 and at least day_fraction "
                f"{self.day_fraction:g}; to move the best hour to the day, set best_hour"
            )
        return self

    @property
    def timer_rounds(self) -> int | None:
        """``min_sep`` that the timer gives; None without a timer."""
        return None if self.timer_hours is None else rounds_of_timer(self.timer_hours, self.minutes_per_round)


def min_sep_of_timer(given: object) -> int | None:
    """``min_sep`` of a raw mechanism block that leaves it to the timer; None if there is nothing to derive it from."""
    block = given.get("availability") if isinstance(given, dict) else None
    if isinstance(block, AvailabilityConfig):
        return block.timer_rounds
    if not isinstance(block, dict):
        return None
    hours = block.get("timer_hours")
    minutes = block.get("minutes_per_round", AvailabilityConfig.model_fields["minutes_per_round"].default)
    # What is not a number gets its message from the block's own fields.
    numbers = all(type(value) in (int, float) and value > 0 for value in (hours, minutes))
    return rounds_of_timer(hours, minutes) if numbers else None


def rounds_of_timer(timer_hours: float, minutes_per_round: float) -> int:
    """``min_sep`` that a timer in hours keeps, if rounds take at most ``minutes_per_round``.

    A device may come back once the timer has run out: the first round that begins then is this many
    after the one before. Fewer rounds fit into the same hours where they take longer, so a device whose
    timer is all that keeps it away would be back too soon; count with slow rounds.
    """
    if not (timer_hours >= 0 and minutes_per_round > 0):
        raise ValueError(f"timer_hours: {timer_hours}, minutes_per_round: {minutes_per_round}; give positive numbers")
    # Rounded before it is cut: 74.4 hours of 12-minute rounds are 372 and not, for a last bit, 373.
    return max(1, math.ceil(round(timer_hours * 60 / minutes_per_round, 6)))
