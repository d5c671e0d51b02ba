"""The optional ``mechanism.availability`` block: a simulation of when devices check in and who reports.

In the field nobody configures this; it happens. Here it decides who trains, so it is part of the launch.
"""

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from pretrain.config import Config

# Share of devices that check in at the best and at the worst hour of their day, and the local time of the former.
NIGHT_FRACTION, DAY_FRACTION, BEST_HOUR = 0.9, 0.2, 2.0
# Local times of a population are spread evenly over this many hours.
ZONE_SPREAD_HOURS = 3.0
# Devices selected for each place in a round, and the probability that one of them does not report.
OVER_SELECTION, DROPOUT = 1.3, 0.08
# Text is kept for months at most, and so is what a device remembers of when it took part.
MOST_TIMER_DAYS = 366


class AvailabilityConfig(Config):
    """The ``availability:`` block: how long a round of the simulated population takes, or how long a device rests.

    Devices train by night, on a charger; some that are selected never report (Bonawitz et al. 2019). With a timer,
    rounds take as long as they take to fill, and ``min_sep`` is the least that is enforced beside the hours.
    """

    round_minutes: PositiveFloat | None = Field(
        default=None, ge=0.01, le=100_000, description="how long every round takes, without a timer"
    )
    timer_days: PositiveInt | None = Field(
        default=None,
        le=MOST_TIMER_DAYS,
        description="whole days that a device rests by the clock; rounds take as long as they take to fill",
    )

    @model_validator(mode="after")
    def _rounds_or_hours(self) -> "AvailabilityConfig":
        if (self.round_minutes is None) == (self.timer_days is None):
            raise ValueError(
                f"round_minutes: {self.round_minutes}, timer_days: {self.timer_days}; give either how long a round "
                "takes, or how many days a device rests by the clock"
            )
        return self
