"""Forecast whether the ledger would accept a launch, before data is read or budget spent; writes nothing."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pipeline.ground import clock
from pipeline.ground.clock import day_of
from pipeline.ground.errors import LedgerMissing, PermanentError
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.budget import (
    Population,
    SpendRequest,
    ceilings,
    registered,
    require_clock,
    require_once,
    require_registered,
    require_room,
    standing_spends,
)
from pipeline.ledger.entries import SPLIT_RULE, Entry, Spend, unsigned
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.preflight import schedule
from pipeline.releases.terms import Terms
from pipeline.releases.total import total
from pipeline.run.population import asked, kept, require_allowed
from pretrain.config import BEARING
from reports.disclosure.total import Total


@dataclass(frozen=True)
class LedgerForecast:
    """Forecast of the ledger's decision on a launch.

    Attributes:
      problems: why it would refuse the launch, or its schedule.
      notes: warnings for the launch's owner.
    """

    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()


def foresee(terms: Terms, settings: Settings, run_id: str, reused: Collection[str] = ()) -> LedgerForecast:
    """Forecast the decision of the ledger now; empty without a ledger.

    Args:
      reused: stages whose outputs are reused from another launch, so that they spend nothing.
    """
    config = terms.config
    try:
        entries = PrivacyLedger(settings.ledger_url).entries(config.population)
    except LedgerMissing:
        entries = None
    population, lines = registered(entries or [], config.population), list[str]()
    fits = schedule.fits(config, population, terms.spends["discover"])
    lines += fits.problems
    if entries is not None and (population is not None or not config.private_text.registers_itself):
        try:
            population = require_registered(entries, config.population)
            require_allowed(config, population)
            require_clock(entries, population.key)
            require_once(entries, population.key, run_id)
            spends = _merged(config, spends_of(terms.spends, reused))
            lines += _without_room(config, population, entries, run_id, spends)
        except PermanentError as error:
            lines.append(str(error))
    return LedgerForecast(tuple(lines), fits.notes)


@dataclass(frozen=True)
class Forecast:
    """Worst-case new spend of a dated launch.

    Attributes:
      loss: of one device to all releases that spend; None if nothing is spent.
      rho: of one training device, against the population's ceiling on rho.
      held_out_rho: of one held-out device; the larger of the two counts.
      epsilon: of one typed word.
      has_spent: stages that have already spent or reserved; they spend nothing again.
      problem: why it would be refused; it then spends nothing.
    """

    launch_id: str
    loss: Total | None
    rho: float
    held_out_rho: float
    epsilon: float
    has_spent: tuple[str, ...]
    problem: str

    def __str__(self) -> str:
        if self.problem:
            return f"{self.launch_id}: refused: {self.problem}"
        before = f", as {', '.join(self.has_spent)} spent before" if self.has_spent else ""
        lost = "spends nothing" if self.loss is None else f"one device loses {self.loss.sentence}"
        return f"{self.launch_id}: {lost}{before}"


def forecast(
    terms: Terms, settings: Settings, run_ids: Sequence[str], reused: Callable[[str], Collection[str]]
) -> list[Forecast]:
    """Forecast the spends of launches on several dates, each after the earlier ones; writes nothing.

    Guarantee: the amounts, the ceilings and the windows are those of the reservation itself (``budget.require_room``),
    and the forecast spend of an earlier date counts like a real one. A launch spends at most its forecast, which is the
    worst case within its enforced limits.

    Args:
      run_ids: ids in the order of the launches.
      reused: returns the stages of a launch, by its id, whose outputs are reused from others.

    Raises:
      LedgerMissing: there is no ledger, so the earlier spends are unknown.
      PopulationUnknown: the population is not registered.
    """
    config = terms.config
    entries = PrivacyLedger(settings.ledger_url).entries(config.population)
    key, rows = config.population, list[Forecast]()
    population = registered(entries, key)
    if population is None and not config.private_text.registers_itself:
        population = require_registered(entries, key)
    for run_id in run_ids:
        done = tuple(spent.stage for spent in standing_spends(entries) if spent.launch_id == run_id)
        spends, day = spends_of(terms.spends, {*done, *reused(run_id)}), day_of(run_id)
        # A launch for a past date spends at the time it runs.
        at, problem = max(clock.now(), clock.start_of(day.isoformat())) if day else clock.now(), ""
        try:
            if spends:
                require_once(entries, key, run_id)
                if population is not None:
                    require_allowed(config, population)
                request = _spend_request(config, population, run_id)
                expected = list(entries)
                for spend in _merged(config, spends):
                    require_room(expected, request, spend, ceilings(population, asked(config)), at)
                    expected.append(_as_if(spend, request, at))
                entries = expected
        except PermanentError as error:
            problem = str(error)
        rows.append(_forecast(terms, run_id, spends, done, problem))
    return rows


def _forecast(terms: Terms, run_id: str, spends: Mapping[str, Spend], done: tuple[str, ...], problem: str) -> Forecast:
    each = spends.values()
    rho, held_out = (math.fsum(spend.rho or 0.0 for spend in each if spend.split == split) for split in BEARING)
    return Forecast(
        launch_id=run_id,
        loss=total(terms.config, terms.likely(spends)) if spends else None,
        rho=rho,
        held_out_rho=held_out,
        epsilon=math.fsum(spend.epsilon for spend in each if spend.unit == "item"),
        has_spent=done,
        problem=problem,
    )


def spends_of(planned: Mapping[str, Spend], left_out: Collection[str]) -> dict[str, Spend]:
    """Select a launch's new spends by stage, without those of zero, which fit even above a budget that was lowered.

    Args:
      left_out: stages that spend nothing, as their outputs are reused or they have already spent.
    """
    return {name: spend for name, spend in planned.items() if name not in left_out and (spend.rho or spend.epsilon)}


def _merged(config: LaunchConfig, new: Mapping[str, Spend]) -> list[Spend]:
    """Combine spends into at most three: of local discovery, and of training and held-out devices."""
    spends = new.values()
    merged = [spend for spend in spends if spend.unit == "item"]
    for split in BEARING:
        noised = [spend for spend in spends if spend.unit == "device" and spend.split == split]
        if noised:
            rho, failure = (math.fsum(getattr(spend, name) for spend in noised) for name in ("rho", "failure"))
            merged.append(
                Spend(
                    unit="device",
                    adjacency="zero-out",
                    rho=rho,
                    epsilon=0.0,
                    delta=config.mechanism.delta,
                    failure=failure,
                    split=split,
                )
            )
    return merged


def _without_room(
    config: LaunchConfig,
    population: Population,
    entries: list[Entry],
    run_id: str,
    spends: Sequence[Spend],
) -> list[str]:
    expected, lines = [entry for entry in entries if entry.launch_id != run_id], list[str]()
    request = _spend_request(config, population, run_id)
    for spend in spends:
        try:
            require_room(expected, request, spend, ceilings(population, asked(config)))
        except PermanentError as error:
            lines.append(str(error))
        else:
            expected.append(_as_if(spend, request, clock.now()))
    return lines


def _spend_request(config: LaunchConfig, population: Population | None, run_id: str) -> SpendRequest:
    """The launch's request; PermanentError if all text of its date has expired."""
    if population is None:
        return SpendRequest(config.population, run_id, "", "")
    window = kept(config, population, run_id)
    rule = population.split_rule(config.private_text.test_fraction)
    return SpendRequest(config.population, run_id, rule, window.as_of.isoformat() if window else "")


def _as_if(spend: Spend, request: SpendRequest, at: datetime) -> Entry:
    """Return the entry that reserving a spend would write."""
    place = ("reserve", request.population, request.launch_id, f"{spend.unit} {spend.split}")
    return unsigned(0, *place, spend, {SPLIT_RULE: request.rule} if request.rule else {}, clock.written(at))
