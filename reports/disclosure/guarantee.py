"""Blocks of the disclosure about a whole launch: texts, population, guarantee and ledger entries.

Counts of devices are rounded down to tens before they get here. Privacy losses are per launch.
"""

import math

from pydantic import Field, model_validator

from pretrain.config import Config, TextPart
from reports.disclosure.releases import PrivacyLoss
from reports.disclosure.total import Total

_SAME = 1e-6  # relative tolerance; a larger difference is a mistake, not rounding


class PublicText(Config):
    """Provenance of the public model's training text."""

    source: str
    revision: str | None = Field(default=None, description="commit of a source on the hub")
    licence: str
    parts: tuple[TextPart, ...] = ()
    documents: int
    train_tokens: int
    left_out_documents: int | None = Field(
        description="train documents that max_tokens left out, whole or in part; None where a stream ended at "
        "max_tokens, so that the rest was not counted"
    )


class Population(Config):
    """Participating population; counts are rounded down to tens."""

    name: str
    source: str
    synthetic: bool
    devices_at_least: int
    devices_by_split: dict[str, int]
    split_rule: str | None = Field(
        default=None,
        description="identifier of the split and its held-out fractions; launches with the same one hold out the same "
        "devices",
    )
    other_locales: int = Field(default=0, description="rows of other locales, left out; rounded down to hundreds")
    days_kept: int | None = Field(default=None, description="retention of text in days; None where nothing is deleted")
    as_of: str | None = Field(default=None, description="last day of the retention window")
    older: int = Field(default=0, description="deleted rows from outside the window; rounded down to hundreds")
    unreadable: int = Field(default=0, description="rows that could not be read, left out; rounded down to hundreds")


class Gain(Config):
    """Forecast gain over the start, from the number of devices and the way of learning alone."""

    points: float = Field(description="percentage points of top-1 recall")
    error: float = Field(ge=0, description="standard deviation between populations, in points")


class ForecastGain(Gain):
    """Forecast gain over the start at one total epsilon."""

    epsilon: float = Field(gt=0)


class Accounting(PrivacyLoss):
    """The device-level guarantee of a whole launch, and the methods that computed it.

    ``rho``, ``mu``, ``epsilon`` and the curve cover the noised releases; ``total`` covers all releases.
    """

    randomness: str = Field(description="source of all noise: ``secure``, or ``seeded``, which protects nobody")
    agree: bool = Field(description="whether the two accountants agree")
    methods: tuple[str, ...]
    failure: float = Field(default=0.0, description="part of delta for which rho does not hold")
    total: Total
    curve: tuple[tuple[float, float], ...] = Field(description="(delta, epsilon) of the exact Gaussian curve")
    group: tuple[Total, ...] = Field(
        default=(), description="losses of a person with several devices, all releases included; empty: not stated"
    )
    forecast: tuple[ForecastGain, ...] = Field(
        default=(), description="gain at this total, and at one epsilon less and more; empty: there is no forecast"
    )
    forecast_of: str = Field(
        default="", description="whose gains the forecasts are made of, and what of this launch is none of that"
    )
    without_privacy: Gain | None = Field(
        default=None,
        description="gain of training without noise, forecast; None: measured, nothing is trained, or no forecast",
    )

    @property
    def bound(self) -> float:
        """The launch's one epsilon at ``delta``."""
        return self.total.epsilon

    @model_validator(mode="after")
    def _rho_is_that_of_the_split_that_loses_more(self) -> "Accounting":
        largest = max((part.rho for part in self.total.parts if part.rho is not None), default=0.0)
        if not math.isclose(self.rho, largest, rel_tol=_SAME):
            raise ValueError(f"rho: {self.rho}, but the largest loss of a split is {largest}")
        return self

    @model_validator(mode="after")
    def _the_total_is_of_this_launch(self) -> "Accounting":
        if not math.isclose(self.total.delta, self.delta, rel_tol=_SAME):
            raise ValueError(f"total: at delta {self.total.delta}; the launch's is {self.delta}")
        return self

    @model_validator(mode="after")
    def _groups_lose_to_all_releases(self) -> "Accounting":
        if self.group and self.failure:
            raise ValueError("group: no group bound is known with a failure probability; leave group out")
        alone = {(name, part.split): part.rho for part in self.total.parts for name in part.releases}
        for group in self.group:
            squared = group.devices**2
            lost = {(name, part.split): part.rho for part in group.parts for name in part.releases}
            same = lost.keys() == alone.keys() and all(
                (rho is None) == (lost[each] is None)
                and math.isclose(lost[each] or 0.0, squared * (rho or 0.0), rel_tol=_SAME)
                for each, rho in alone.items()
            )
            if group.devices < 2 or not same or group.epsilon < self.total.epsilon:
                raise ValueError(
                    f"group: {group.sentence} of {group.devices} devices over {sorted(lost)}; all releases of one "
                    f"device, {sorted(alone)}, at {squared} times its rho are expected"
                )
        return self

    @model_validator(mode="after")
    def _mu_follows_from_rho(self) -> "Accounting":
        expected = math.sqrt(2 * self.rho) if self.rho >= 0 else math.nan
        if not math.isclose(self.mu, expected, rel_tol=_SAME):
            raise ValueError(f"mu: {self.mu} with rho {self.rho}; it is sqrt(2 rho) = {expected}")
        return self


class PopulationSpend(Config):
    """One device-level entry of the ledger on this population."""

    launch_id: str
    stage: str
    kind: str
    rho: float
    split: str = Field(default="train", description="split whose devices bear the loss")
    failure: float = Field(default=0.0, description="probability with which rho does not hold")
    reserved: str | None = Field(default=None, description="day from which it counts")


class LaunchSpend(Config):
    """Loss of one device to what one launch on this population spent itself; it paid for no release that it reused."""

    launch_id: str
    rho: float = Field(description="of its noised releases, in the split that loses most")
    epsilon: float = Field(description="of all its releases, at ``delta``")
    delta: float


class ReusedRelease(Config):
    """A release reused unchanged from another launch on this population, which paid for it; reuse costs nothing."""

    stage: str
    launch_id: str
    unit: str
    rho: float | None = Field(description="that launch's spend; None where the unit is no device")
    epsilon: float = Field(description="that launch's spend, stated in full, as it covers both launches")


class WindowLoss(Config):
    """Most rho that one device lost in any window of ``days`` days."""

    days: int
    ceiling_rho: float
    most_rho: float = Field(description="loss in the worst window")


class Composition(Config):
    """All launches on this population so far.

    Attributes:
      total_rho: loss of one device: the largest split under each split rule, summed over split rules.
      total_failure: probability with which ``total_rho`` does not hold.
    """

    spends: tuple[PopulationSpend, ...]
    launches: tuple[LaunchSpend, ...] = ()
    total_rho: float
    total_failure: float = 0.0
    ceiling_rho: float | None = Field(description="for ever; None where a window alone bounds it")
    window: WindowLoss | None = None


class Curves(Config):
    """Training curves, each a list of points."""

    pretraining: tuple[dict[str, float], ...]
    adaptation: tuple[dict[str, float], ...]
    fine_tuning: tuple[dict[str, float], ...]
