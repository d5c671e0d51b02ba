"""A population's registered budget, the ceilings that bound its launches, and whether a spend fits under them.

Guarantee: a spend is reserved only if all spends reserved since ``clock.counts_since`` leave room for it. Of the
spends in any window the last one counted all the others, so no window ever holds more than its ceiling. A launch
reads no text from before the start of that window, and text with a time stamp in the future waits until then
(``federated.config.population.Retention``). So all spends that read text of one time stamp were reserved after it,
and the last of them counted the others: typed text loses no more than the ceiling over all launches, past and future,
for any setting of the device's clock.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat

from federated.config.population import VALIDATION_FRACTION, PopulationKey, is_simulation
from pipeline.ground import clock
from pipeline.ground.errors import BudgetExceeded, PermanentError, PopulationUnknown
from pipeline.ledger.entries import NO_UNIT, SPENDING, Entry, Spend, canonical
from pipeline.ledger.loss import ADDS_TO, Release, Unit, added, release_of, releases
from pretrain.config import AccountName

# Raised when ``federated.devices.store`` changes the split.
_SPLIT_RULE = "tacit split 1"
# Longer than a yearly schedule pauses.
_REST = timedelta(days=400)
# An answer in the clear could be anybody's, unless it stays on this machine.
AIRFLOW = r"^(https://[^\s/?#@]+(/[^\s?#@]*)?|http://(127\.0\.0\.1|\[::1\]|localhost)(:[0-9]{1,5})?(/[^\s?#@]*)?)?$"
Finite = Annotated[PositiveFloat, Field(allow_inf_nan=False)]
# Above it a ceiling is a typing error: epsilon at any delta is then in the thousands.
Rho = Annotated[float, Field(gt=0.0, le=1_000.0)]
Days = Annotated[int, Field(ge=1, le=36_500)]
# Sums of budgets typed as decimals (0.1 + 0.2 against 0.3) must not fail on their last bit.
ROUNDING = 1e-12
NAMES: Mapping[Unit, str] = {
    "device": "rho",
    "item": "epsilon per typed word",
    "words": "epsilon of one device to words found locally",
    "delta": "delta beside that of the curve",
}
_ADVICE: Mapping[Unit, str] = {
    "device": "more noise, fewer rounds, larger min_sep",
    "item": "smaller discovery.epsilon0, or fewer launches that discover words",
    "words": "fewer messages of word discovery, or words found centrally",
    "delta": "smaller discovery.delta",
}


class Budget(BaseModel):
    """Total that all launches on a population may spend together.

    Attributes:
      max_rho: loss of one device to noised releases.
      max_words_epsilon: loss of one device to all its messages about words found locally; 0: no words are found so.
      delta: at which ``epsilon`` holds; half of it is the curve's, half bounds failures and deltas of messages.
      max_discovery_epsilon: item-level loss of one typed word; None for no ceiling.
      window_days: length of the window in which each ceiling holds, and retention of text; None counts all time.
      lifetime_rho: as ``max_rho`` over all time, beside a window; None for no such ceiling.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_rho: Rho
    max_words_epsilon: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.0
    delta: Annotated[float, Field(gt=0.0, lt=1.0)]
    max_discovery_epsilon: Finite | None = None
    window_days: Days | None = None
    lifetime_rho: Rho | None = None

    @property
    def other_delta(self) -> float:
        """Ceiling on failures of noised releases and deltas of messages together."""
        return self.delta / 2

    @property
    def epsilon(self) -> float:
        """Epsilon at ``delta`` of one device to all launches, in any window: that of the ceilings, whatever is spent.

        Guarantee: it holds though launches choose their parameters by earlier results (``ledger``): the exact curve at
        ``max_rho`` and half of delta, plus ``max_words_epsilon``.
        """
        from federated.accounting.gaussian import epsilon_of_rho  # scipy is slow to import

        return self.max_words_epsilon + epsilon_of_rho(self.max_rho, self.delta - self.other_delta)


class Rules(BaseModel):
    """Rules of a population beside its budget, which no launch file, setting or folder may loosen.

    Attributes:
      case_sensitive_ids: ids of devices that differ only by case are different devices; fixed at the registration.
      retention_days: days for which typed text is kept; None for the budget's window.
      min_approvals: least number of different persons who approve a launch.
      reviewers: accounts that a launch file may name as reviewers; empty for any.
      gates: bound of each gate, by its field of the launch file's policy: a least value, and of ``max_...`` a greatest.
      airflow: address of the API that is asked for answers given in Airflow; empty: no such answer counts.
      airflow_people: Airflow's accounts are separate people; otherwise all answers through it count as one person.
      witness: public key of the log's witness at the registration, 64 hexadecimal digits; empty for a simulation.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    case_sensitive_ids: bool = False
    retention_days: Days | None = None
    min_approvals: Annotated[int, Field(ge=0, le=9)] = 0
    reviewers: tuple[AccountName, ...] = ()
    gates: Mapping[str, Annotated[float, Field(allow_inf_nan=False)]] = {}
    airflow: Annotated[str, Field(pattern=AIRFLOW)] = ""
    airflow_people: bool = False
    witness: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")] = ""


NO_RULES = Rules()


class Population(BaseModel):
    """A registered population.

    Attributes:
      key: kind and name.
      raised_by: accounts of the operating system that may change the budget and the rules.
      secret_digest: SHA-256 of the split secret, so that a replaced secret is detected.
      registered_by: the account, or the launch file of a simulation.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: PopulationKey
    budget: Budget
    rules: Rules
    raised_by: Annotated[tuple[AccountName, ...], Field(min_length=1)]
    registered_by: str
    secret_digest: str

    @property
    def simulated(self) -> bool:
        """True for a simulation, whose text is made up."""
        return is_simulation(self.key)

    def split_rule(self, test_fraction: float) -> str:
        """Version of the population's split rule: a digest of everything that decides a device's split.

        Guarantee: under one version a device stays in one split (``federated.devices.store``): the split is a
        function of its id, of a key made from its own and its secret, and of the two fractions.
        """
        decides = [_SPLIT_RULE, self.key, self.secret_digest, test_fraction, VALIDATION_FRACTION]
        return hashlib.sha256(canonical(decides).encode()).hexdigest()[:16]


# Kinds of the entries that ``registered`` reads.
REGISTRATION = ("register", "budget")


def registered(entries: Iterable[Entry], key: PopulationKey) -> Population | None:
    """Return a population with its latest budget and rules; None if it is not registered."""
    population = None
    for entry in entries:
        if entry.population != key:
            continue
        if entry.kind == "register":
            population = Population.model_validate(json.loads(entry.binding))
        elif entry.kind == "budget" and population is not None:
            changed = json.loads(entry.binding)
            budget, rules = Budget.model_validate(changed["budget"]), Rules.model_validate(changed["rules"])
            population = population.model_copy(update={"budget": budget, "rules": rules})
    return population


def require_registered(entries: Iterable[Entry], key: PopulationKey) -> Population:
    """Return a registered population.

    Raises:
      PopulationUnknown: it is not registered.
    """
    population = registered(entries, key)
    if population is None:
        raise PopulationUnknown(
            f"population {key!r}: not registered in this ledger, so it has no budget. The person responsible for the "
            f"population decides what all launches together may spend: tacit ledger register {key} --max-rho ... "
            "--max-words-epsilon ... --delta ... --reviewer ..."
        )
    return population


def require_clock(entries: Iterable[Entry], key: PopulationKey) -> None:
    """Check that the clock is not far ahead of the population's last spend or budget entry.

    Guarantee: a spend counts from no earlier than those before it (``loss.releases``), and no entry is ever removed,
    so an entry that was written under a clock years ahead would fill the window until then. Simulations are exempt.

    Raises:
      PermanentError: the clock is far ahead, and no account that may change the budget has written an entry since.
    """
    entries = list(entries)
    population = registered(entries, key)
    if population is None or population.simulated:
        return
    last = max(
        entry.created_at
        for entry in entries
        if entry.population == key and (entry.unit != NO_UNIT or entry.kind in ("register", "budget"))
    )
    if clock.now() - datetime.fromisoformat(last) > _REST:
        raise PermanentError(
            f"the clock of this machine says {clock.now().date()}, and the last spend or budget of population {key!r} "
            f"is of {last[:10]}; set the clock or, if it is right, let {' or '.join(population.raised_by)} confirm it "
            f"first: tacit ledger budget {key} --max-rho {population.budget.max_rho:g} --reason ..."
        )


@dataclass(frozen=True)
class Ceiling:
    """Upper bound on the loss of one unit.

    Attributes:
      days: length of its window; None for all time.
      field: where the ceiling is set, for the error message.
      unit: the unit of the sum.
    """

    amount: float
    days: int | None
    field: str
    unit: Unit

    def holds(self, before: Iterable[Release], release: Release, since: str) -> bool:
        """Return whether a release fits beside the earlier ones that count."""
        counted = [each for each in before if each.written >= since]
        # NaN fits here; ``append`` refuses it with a message of its own.
        return not added([*counted, release]) > self.amount * (1 + ROUNDING)


@dataclass(frozen=True)
class Ceilings:
    """Ceilings that the launch file itself names.

    Attributes:
      rho: of one device over all launches, without a window (``policy.population_max_rho``).
      epsilon: of one typed word (``policy.population_max_discovery_epsilon``).
      window_rho: of one device in any ``days`` days (``policy.budget``). Text older than that is deleted, so a typed
        word loses nothing outside one window.
      words: of one device to words found locally (``policy.population_max_words_epsilon``).
      delta: twice the ceiling on failures and deltas of messages (``policy.population_delta``).
    """

    rho: float | None = None
    epsilon: float | None = None
    window_rho: float | None = None
    days: int | None = None
    words: float | None = None
    delta: float | None = None


def require_no_more(population: Population, asked: Ceilings) -> None:
    """Check that a launch file names no higher ceiling than its population's budget.

    Raises:
      BudgetExceeded: the launch file names a higher ceiling.
    """
    budget = population.budget
    # A ceiling without a window is compared with one without; a budget with a window may have none.
    ever = "lifetime_rho" if budget.window_days else "max_rho"
    for asked_for, ceiling, field, option in (
        (asked.rho, getattr(budget, ever), "policy.population_max_rho", f"--{ever.replace('_', '-')}"),
        (asked.words, budget.max_words_epsilon, "policy.population_max_words_epsilon", "--max-words-epsilon"),
        (asked.delta, budget.delta, "policy.population_delta", "--delta"),
        (asked.window_rho, budget.max_rho, "policy.budget.rho", "--max-rho"),
        (
            asked.epsilon,
            budget.max_discovery_epsilon,
            "policy.population_max_discovery_epsilon",
            "--max-discovery-epsilon",
        ),
    ):
        if asked_for is not None and ceiling is not None and asked_for > ceiling:
            raise BudgetExceeded(
                f"{field}: {asked_for:g} is more than population {population.key!r} was registered with "
                f"({ceiling:g}), and a launch can only ask for less; lower it, or let "
                f"{' or '.join(population.raised_by)} change the budget: tacit ledger budget {population.key} "
                f"{option} {asked_for:g} --reason ..."
            )


def ceilings(population: Population | None, asked: Ceilings) -> tuple[Ceiling, ...]:
    """Return every ceiling: the launch file's own, and those of the population's budget."""
    own_delta = None if asked.delta is None else asked.delta / 2
    named: list[tuple[Unit, float | None, int | None, str]] = [
        ("item", asked.epsilon, asked.days, "policy.population_max_discovery_epsilon"),
        ("device", asked.rho, None, "policy.population_max_rho"),
        ("device", asked.window_rho, asked.days, "policy.budget"),
        ("words", asked.words, asked.days, "policy.population_max_words_epsilon"),
        ("delta", own_delta, asked.days, "policy.population_delta"),
    ]
    if population is not None:
        budget, remedy = population.budget, f"tacit ledger budget {population.key}"
        named += [
            ("item", budget.max_discovery_epsilon, budget.window_days, remedy),
            ("device", budget.max_rho, budget.window_days, remedy),
            ("device", budget.lifetime_rho, None, remedy),
            ("words", budget.max_words_epsilon, budget.window_days, remedy),
            ("delta", budget.other_delta, budget.window_days, remedy),
        ]
    return tuple(Ceiling(amount, days, field, unit) for unit, amount, days, field in named if amount is not None)


def days_kept(population: Population, asked: Ceilings) -> int | None:
    """Days for which typed text is kept: the shortest of all; None for no limit, and for simulated text.

    A window of the ledger bounds a device's loss only if text typed before the window is deleted.
    """
    stated = (population.rules.retention_days, population.budget.window_days, asked.days)
    return None if population.simulated else min((days for days in stated if days is not None), default=None)


@dataclass(frozen=True)
class SpendRequest:
    """Request for a spend: its population, its launch, its split and the last day of its text.

    Attributes:
      rule: version of the split rule that places the devices.
      as_of: last day of the launch's text; empty without retention.
    """

    population: PopulationKey
    launch_id: str
    rule: str = ""
    as_of: str = ""


def require_room(
    entries: Iterable[Entry],
    request: SpendRequest,
    spend: Spend,
    ceilings: Sequence[Ceiling],
    at: datetime | None = None,
) -> None:
    """Check that a spend fits under every ceiling on its unit, beside all earlier spends that count.

    Args:
      at: time of the reservation, for a forecast; by default now.

    Raises:
      BudgetExceeded: it does not fit; the message has the numbers, the first day with room, and the fix.
    """
    entries, ceilings = list(entries), [each for each in ceilings if each.unit in ADDS_TO[spend.unit]]
    before = {ceiling.unit: releases(entries, request.population, ceiling.unit) for ceiling in ceilings}
    release = {ceiling.unit: release_of(spend, ceiling.unit, request.rule) for ceiling in ceilings}
    for ceiling in ceilings:
        since = clock.counts_since(ceiling.days, request.as_of, at)
        if not ceiling.holds(before[ceiling.unit], release[ceiling.unit], since):
            spent = [each for each in before[ceiling.unit] if each.written >= since]
            amounts = (release[ceiling.unit].amount, added(spent))
            raise BudgetExceeded(_refusal(request, ceiling, amounts, _first_day(before, release, ceilings)))


def _first_day(
    before: Mapping[Unit, Sequence[Release]], release: Mapping[Unit, Release], ceilings: Sequence[Ceiling]
) -> date | None:
    """First day on which a launch would have room; None if waiting does not help."""
    today = clock.now().date()
    # One day after a spend leaves a window, as launches count from the day's first moment.
    left = (
        datetime.fromisoformat(each.written).date() + timedelta(days=ceiling.days + 1)
        for ceiling in ceilings
        for each in before[ceiling.unit]
        if ceiling.days is not None
    )
    for day in sorted({today, *(day for day in left if day > today)}):
        begins = clock.start_of(day.isoformat())
        opens = ("" if each.days is None else clock.written(begins - timedelta(days=each.days)) for each in ceilings)
        if all(
            ceiling.holds(before[ceiling.unit], release[ceiling.unit], since)
            for ceiling, since in zip(ceilings, opens, strict=True)
        ):
            return day
    return None


def _refusal(request: SpendRequest, ceiling: Ceiling, amounts: tuple[float, float], day: date | None) -> str:
    needed, spent = amounts
    name, advice = NAMES[ceiling.unit], _ADVICE[ceiling.unit]
    window = "" if ceiling.days is None else f" in any {ceiling.days} days"
    if day is not None:
        waiting = f"there is room from {day.isoformat()} on: launch then"
    else:
        waiting = "waiting does not help" + (", as all launches count for ever" if ceiling.days is None else "")
    return (
        f"population {request.population!r}: launch {request.launch_id!r} needs {name} {needed:.6g}, {spent:.6g} of "
        f"{ceiling.amount:.6g}{window} is spent and {max(ceiling.amount - spent, 0):.6g} is left; {waiting}, plan a "
        f"smaller spend ({advice}) or have the population's budget ({ceiling.field}) reviewed"
    )


def require_once(entries: Iterable[Entry], population: PopulationKey, run_id: str) -> None:
    """Check that no other launch of the same name and date has spent.

    Guarantee: a date of a schedule spends once, however often it is run, even if the launch file has changed since:
    a changed file is another launch, which would cost the same devices as much again. Reservations that were given
    back do not count, and a person may still launch the file for another date.

    Raises:
      BudgetExceeded: another launch has spent for the date.
    """
    dated = clock.DATED.fullmatch(run_id)
    standing = standing_spends(entries)
    if dated is None or any(spent.launch_id == run_id for spent in standing):
        return  # A launch that has begun to spend may resume.
    for spent in standing:
        other = clock.DATED.fullmatch(spent.launch_id)
        if other is not None and other.groups() == dated.groups():
            raise BudgetExceeded(
                f"date: {dated[2]} of {dated[1]!r} was launched as {spent.launch_id}, whose stage {spent.stage!r} "
                f"spent on population {population!r}; the launch file changed since, so {run_id} would spend again "
                "for the same date. Launch it with a later date, or restore the file"
            )


def standing_spends(entries: Iterable[Entry]) -> list[Entry]:
    """Entry that states the spend of each stage: its commit or, without one, a reservation not given back."""
    latest = {(entry.launch_id, entry.stage): entry for entry in entries if entry.does in SPENDING}
    return [entry for entry in latest.values() if entry.does != "release"]
