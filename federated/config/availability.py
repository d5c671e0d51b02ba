"""The optional ``mechanism.availability`` block: a simulation of when devices check in and who reports.

In the field nobody configures this; it happens. Here it decides who trains, so it is part of the launch.
"""

from typing import Annotated

from pydantic import Field, PositiveFloat, model_validator

from federated.participation.availability import rounds_of_timer
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
