"""Budgets in windows: an accountant that knows nothing of the ledger's code comes to the same sums and answers."""

import itertools
import random
import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from federated.config.population import Retention
from pipeline.ground import clock
from pipeline.ground.errors import BudgetExceeded, PermanentError
from pipeline.launch.config import load_launch
from pipeline.ledger.budget import Budget
from pipeline.ledger.entries import AS_OF, SPLIT_RULE, Spend
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.preflight import schedule
from pipeline.preflight.readiness import estimated_splits
from pipeline.releases.terms import Terms
from tests.helpers.launches.checkout import ROOT
from tests.helpers.launches.installed import at
from tests.helpers.launches.spends import BINDING, budget, device, item, reserve

SPLITS = ("train", "validation", "test")
START = datetime(2026, 1, 1, 9, 30, tzinfo=UTC)
PRODUCTION = ("pt-BR", "en-US")  # words found locally, and centrally
WINDOW = (1.0, 30)


class Hands:
    """A clock that shows what it is told."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    told = Hands(START)
    monkeypatch.setattr(clock, "now", told.now)
    return told


@pytest.fixture
def ledger(tmp_path: Path, hands: Hands) -> PrivacyLedger:
    made = PrivacyLedger.create(at(tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}"))
    made.register("people", budget(max_rho=1.0, max_discovery_epsilon=16.0, window_days=30), "owner")
    return made


def ask(ledger: PrivacyLedger, launch: str, spend: Spend, rule: str = "", as_of: str = "", **changes: object):
    binding = BINDING | ({SPLIT_RULE: rule} if rule else {}) | ({AS_OF: as_of} if as_of else {})
    return reserve(ledger, launch, spend, binding=binding, budget_rho=None, **changes)


class Accountant:
    """Follows every device that there could be through every day; written without a look at the ledger's code."""

    def __init__(self) -> None:
        self.spends: dict[str, tuple[datetime, float, str, str]] = {}
        self.latest = datetime.min.replace(tzinfo=UTC)

    def loses(self, spends: list[tuple[datetime, float, str, str]]) -> float:
        """What the worst-off device has lost to these."""
        rules = sorted({rule for *_, rule, _ in spends if rule})
        most = 0.0
        for sides in itertools.product(SPLITS, repeat=len(rules)):
            side = dict(zip(rules, sides, strict=True))
            most = max(most, sum(rho for _, rho, rule, split in spends if not rule or side[rule] == split))
        return most

    def most(self, days: int | None) -> float:
        """What the worst-off device lost in the worst window that begins with a spend."""
        ways = list(self.spends.values())
        if days is None:
            return self.loses(ways)
        span = timedelta(days=days)
        windows = ([each for each in ways if begins[0] <= each[0] <= begins[0] + span] for begins in ways)
        return max(map(self.loses, windows), default=0.0)

    def has_room(self, rho: float, rule: str, split: str, now: datetime, limit: tuple[float, int]) -> bool:
        """Whether there is room beside what was spent since so many days before a moment."""
        recent = [each for each in self.spends.values() if each[0] >= now - timedelta(days=limit[1])]
        return self.loses([*recent, (now, rho, rule, split)]) <= limit[0] + 1e-9

    def add(self, launch: str, now: datetime, rho: float, rule: str, split: str) -> None:
        self.latest = max(self.latest, now)  # A clock that went back does not make a spend older.
        self.spends[launch] = (self.latest, rho, rule, split)


def one_history(seed: int, folder: Path, hands: Hands) -> int:
    """Launches, commits, refunds, clocks and stamps by chance, on both sides; how many were refused.

    Files hold texts with whatever stamps devices gave them, to the edge of what a launch reads, and only ever grow.
    """
    dice, accountant, refused = random.Random(seed), Accountant(), 0
    days = dice.choice((7, 30, 60))
    stamps, read = set[datetime](), dict[str, Retention]()
    hands.at = START
    ledger = PrivacyLedger.create(at(folder / str(seed)))
    ledger.register("people", budget(max_rho=1.0, window_days=days), "owner")
    for number in range(dice.randint(3, 9)):
        hands.at += timedelta(days=dice.choice((0, 0.5, 3, days / 2, days, days + 0.01, -2)))
        rho, rule, split = (
            dice.choice((0.1, 0.3, 0.55, 1.0)),
            dice.choice(("", "one", "one", "two")),
            dice.choice(SPLITS),
        )
        spend = device(rho).model_copy(update={"split": split})
        launch = f"launch-{number}"
        kept = Retention(days, hands.at.date() - timedelta(days=dice.choice((0, 0, 0, 2, days))), hands.at)
        skews = (0, 1e-6, 7 * 3600, 86_400, -5 * 3600, -days * 86_400)
        stamps |= {edge + timedelta(seconds=skew) for edge in (*kept.between, start_of(kept.as_of)) for skew in skews}
        hands.at += timedelta(days=dice.choice((0, 0, 0.3)))
        began = min(hands.at, start_of(kept.as_of))
        try:
            ask(ledger, launch, spend, rule, kept.as_of.isoformat())
        except BudgetExceeded as error:
            refused += 1
            assert not accountant.has_room(rho, rule, split, began, (1.0, days))
            _opens_on_its_day(error, accountant, (rho, rule, split), hands.at, days)
            continue
        assert accountant.has_room(rho, rule, split, began, (1.0, days))
        read[launch] = kept
        accountant.add(launch, hands.at, rho, rule, split)
        hands.at += timedelta(days=dice.choice((0, 1, days)))
        what = dice.choice(("commit", "less", "give back", "die"))
        if what == "give back":
            ledger.release(launch, "fine_tune", "too few")
            accountant.spends[launch] = (accountant.spends[launch][0], 0.0, rule, split)
        elif what in ("commit", "less"):
            spent = rho / 2 if what == "less" else rho
            ledger.commit(launch, "fine_tune", spend.model_copy(update={"rho": spent}))
            accountant.spends[launch] = (accountant.spends[launch][0], spent, rule, split)
        accountant.latest = max(accountant.latest, hands.at) if what != "die" else accountant.latest
    assert ledger.total("people") == pytest.approx(accountant.most(None))
    assert ledger.total("people", "device", days) == pytest.approx(accountant.most(days))
    assert accountant.most(days) <= 1.0 + 1e-9
    for stamp in stamps:
        readers = [launch for launch, kept in read.items() if kept.between[0] <= stamp <= kept.between[1]]
        assert accountant.loses([accountant.spends[launch] for launch in readers]) <= 1.0 + 1e-9, stamp
    assert ledger.verify() == []
    return refused


def start_of(day: date) -> datetime:
    """Midnight."""
    return datetime.combine(day, datetime.min.time(), UTC)


def _opens_on_its_day(
    error: BudgetExceeded, accountant: Accountant, asked: tuple[float, str, str], now: datetime, days: int
) -> None:
    """The day in the message is the first at whose first moment there is room."""
    told = re.search(r"room from (\S+) on", str(error))
    assert told, error
    opens = start_of(date.fromisoformat(told[1]))
    assert accountant.has_room(*asked, opens, (1.0, days))
    if opens - timedelta(days=1) > now:
        assert not accountant.has_room(*asked, opens - timedelta(days=1), (1.0, days))


@pytest.mark.slow
def test_an_independent_accountant_agrees_over_many_histories(tmp_path: Path, hands: Hands):
    refused = sum(one_history(seed, tmp_path, hands) for seed in range(80))
    assert refused > 60


def test_an_independent_accountant_agrees_over_some_histories(tmp_path: Path, hands: Hands):
    assert sum(one_history(seed, tmp_path, hands) for seed in range(1000, 1002))


def test_a_window_slides_and_says_when_it_opens(ledger: PrivacyLedger, hands: Hands):
    ask(ledger, "january", device(0.6))
    hands.at += timedelta(days=14)
    ask(ledger, "between", device(0.4))
    with pytest.raises(
        BudgetExceeded, match=r"1 of 1 in any 30 days is spent and 0 is left; there is room from 2026-02-01 on: launch"
    ):
        ask(ledger, "next", device(0.6))
    # What takes both away has to wait for both.
    with pytest.raises(BudgetExceeded, match=r"there is room from 2026-02-15 on"):
        ask(ledger, "next", device(0.7))
    with pytest.raises(
        BudgetExceeded, match=r"waiting does not help, plan a smaller spend .*tacit ledger budget people"
    ):
        ask(ledger, "next", device(1.1))
    hands.at = datetime(2026, 2, 1, tzinfo=UTC)
    ask(ledger, "next", device(0.6))


def test_a_commit_counts_from_its_reservation(ledger: PrivacyLedger, hands: Hands):
    ask(ledger, "first", device(1.0))
    hands.at += timedelta(days=20)
    ledger.commit("first", "fine_tune", device(1.0))
    hands.at += timedelta(days=11)
    ask(ledger, "second", device(1.0))


def test_words_have_the_same_window(ledger: PrivacyLedger, hands: Hands):
    for launch in ("first", "second"):
        ask(ledger, launch, item(8.0), stage="discover", window=WINDOW, budget_discovery_epsilon=16.0)
    with pytest.raises(BudgetExceeded, match=r"16 of 16 in any 30 days is spent .* room from 2026-02-01 on"):
        ask(ledger, "third", item(8.0), stage="discover", window=WINDOW, budget_discovery_epsilon=16.0)
    hands.at += timedelta(days=31)
    ask(ledger, "third", item(8.0), stage="discover", window=WINDOW, budget_discovery_epsilon=16.0)
    # Without a window of its own, what the launch file names is for ever.
    with pytest.raises(BudgetExceeded, match=r"24 of 16 is spent .*waiting does not help, as all launches count"):
        ask(ledger, "fourth", item(8.0), stage="discover", budget_discovery_epsilon=16.0)


def test_a_clock_that_goes_backwards_forgets_nothing(ledger: PrivacyLedger, hands: Hands):
    hands.at = datetime(2026, 6, 20, tzinfo=UTC)
    ask(ledger, "first", device(0.3))
    hands.at = datetime(2026, 1, 1, tzinfo=UTC)  # wrong: written after the first, so no older than it
    ask(ledger, "second", device(0.7))
    hands.at = datetime(2026, 7, 10, tzinfo=UTC)
    with pytest.raises(BudgetExceeded, match="1 of 1 in any 30 days is spent"):
        ask(ledger, "third", device(0.7))


def test_a_clock_that_runs_years_ahead_writes_no_spend(ledger: PrivacyLedger, hands: Hands):
    """It would count until then, and what is written stays."""
    ask(ledger, "first", device(0.3))
    hands.at = datetime(2031, 1, 1, tzinfo=UTC)
    ledger.attempt("people", "second", "ab_test", {"feature": "NWP"})  # By a stage: nobody has looked at the clock.
    far = r"clock .* says 2031-01-01, .* 'people' is of 2026-01-01; set the clock or.* let owner confirm it first"
    with pytest.raises(PermanentError, match=far):
        ask(ledger, "second", device(0.3))
    with pytest.raises(PermanentError, match="clock"):
        ledger.commit("first", "fine_tune", device(0.3))
    with pytest.raises(PermanentError, match="clock"):
        ledger.release("first", "fine_tune", "too few")
    assert [entry.kind for entry in ledger.spends()] == ["reserve"]
    hands.at = START + timedelta(days=31)
    ledger.commit("first", "fine_tune", device(0.3))
    ask(ledger, "second", device(1.0))
    hands.at += timedelta(days=400)
    ask(ledger, "third", device(1.0))
    assert ledger.verify() == []


def test_a_population_that_rested_long_is_looked_at_by_a_person(ledger: PrivacyLedger, hands: Hands):
    ledger.register("synthetic:people", budget(max_rho=1.0, window_days=30), "owner")
    hands.at += timedelta(days=401)
    with pytest.raises(PermanentError, match="tacit ledger budget people --max-rho 1 --reason"):
        ask(ledger, "first", device(0.3))
    ledger.change_budget("people", ledger.population("people").budget, "owner", "a year's rest, the clock is right")
    ask(ledger, "first", device(0.3))
    ask(ledger, "simulated", device(0.3), population="synthetic:people")


def test_a_launch_of_a_date_in_the_past_counts_what_its_text_was_read_by(ledger: PrivacyLedger, hands: Hands):
    ask(ledger, "first", device(0.7), as_of="2026-01-01")
    hands.at += timedelta(days=40)
    # What it reads reaches back to where the first one's text began.
    with pytest.raises(BudgetExceeded, match=r"0\.7 of 1 in any 30 days is spent .* room from 2026-02-10 on"):
        ask(ledger, "late", device(0.7), as_of="2026-01-20")
    # A date in the future counts no less than today.
    ask(ledger, "today", device(0.7), as_of="2026-12-31")
    with pytest.raises(BudgetExceeded):
        ask(ledger, "again", device(0.7), as_of="2026-12-31")


def test_a_lifetime_ceiling_stands_beside_a_window(ledger: PrivacyLedger, hands: Hands):
    ledger.register("theirs", budget(max_rho=1.0, window_days=30, lifetime_rho=1.5), "owner")
    ask(ledger, "first", device(1.0), population="theirs")
    hands.at += timedelta(days=31)
    with pytest.raises(BudgetExceeded, match=r"1 of 1\.5 is spent and 0\.5 is left; waiting does not help"):
        ask(ledger, "second", device(1.0), population="theirs")
    ask(ledger, "second", device(0.4), population="theirs")
    ours = (0.45, 10)
    with pytest.raises(BudgetExceeded, match=r"0\.4 of 0\.45 in any 10 days is spent .*\(policy\.budget\) reviewed"):
        ask(ledger, "third", device(0.1), population="theirs", window=ours)


def test_a_launch_asks_for_no_larger_window_budget(ledger: PrivacyLedger):
    with pytest.raises(BudgetExceeded, match=r"policy\.budget\.rho: 2 is more than .* registered with \(1\)"):
        ask(ledger, "first", device(0.1), window=(2.0, 30))
    # A lifetime ceiling above what a window allows asks for no more: both hold.
    reserve(ledger, "first", device(0.1), budget_rho=50.0)


@pytest.mark.slow
def test_a_year_of_monthly_launches_never_runs_dry(tmp_path: Path, hands: Hands):
    """Discovery as planned, training at its ceiling, and held-out metrics, each launch up to a fortnight late."""
    ledger, dice = PrivacyLedger.create(at(tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}")), random.Random(3)
    files = {name: load_launch(ROOT / "dags" / "launches" / f"{name}.yaml") for name in PRODUCTION}
    days, planned_words = schedule.launch_days("@monthly")[:13], {}
    for name, config in files.items():
        planned_words[name] = Terms.of_file(config, estimated_splits(config)).spends["discover"]
        policy = config.policy
        assert config.schedule == "@monthly"
        budget = Budget(
            max_rho=policy.budget.rho,
            max_words_epsilon=policy.population_max_words_epsilon or 0.0,
            delta=policy.population_delta,
            max_discovery_epsilon=policy.population_max_discovery_epsilon,
            window_days=policy.budget.days,
        )
        ledger.register(name, budget, "owner")
    for ordinal in days:
        month = date.fromordinal(ordinal)
        for name, config in files.items():
            policy, late = config.policy, timedelta(days=dice.uniform(0, 14))
            hands.at = datetime.combine(month, datetime.min.time(), UTC) + late
            asked = {
                "population": name,
                "window": (policy.budget.rho, policy.budget.days),
                "as_of": month.isoformat(),
                "rule": "one",
            }
            asked |= {
                "budget_discovery_epsilon": policy.population_max_discovery_epsilon,
                "delta": policy.population_delta,
            }
            launch = f"{name}-{month:%Y%m%d}"
            words = planned_words[name]
            training = device(policy.max_rho - (words.rho or 0.0))
            held_out = device(policy.max_rho).model_copy(update={"split": "test"})
            for stage, spend in (("discover", words), ("fine_tune", training), ("ab_test", held_out)):
                ask(ledger, launch, spend, stage=stage, **asked)
                ledger.commit(launch, stage, spend)
    for name, config in files.items():
        budget = config.policy.budget
        assert ledger.total(name) == pytest.approx(13 * config.policy.max_rho)
        assert config.policy.max_rho * 2 <= ledger.total(name, "device", budget.days) < budget.rho + 1e-9
        most = ledger.total(name, "item", budget.days)
        assert most <= (config.policy.population_max_discovery_epsilon or 0.0)
        words = ledger.total(name, "words", budget.days)
        assert 2 * planned_words[name].device_epsilon <= words <= (config.policy.population_max_words_epsilon or 0.0)
    assert ledger.verify() == []
