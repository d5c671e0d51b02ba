"""The ledger against a plain model, over sequences of calls, crashes, restored files and wrong clocks."""

import itertools
import multiprocessing
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import settings as examples
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from securesystemslib.signer import CryptoSigner

from federated.config.population import population_key
from pipeline.ground.errors import BudgetExceeded, LaunchError, LedgerConflict, LedgerTampered, PermanentError
from pipeline.ledger import rows
from pipeline.ledger.budget import Ceilings
from pipeline.ledger.entries import Entry
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.log import merkle
from pipeline.ledger.log.note import Checkpoint
from pipeline.ledger.log.tiles import Log
from pipeline.ledger.outside import Outside
from tests.helpers.launches.installed import at, registered
from tests.helpers.launches.spends import BINDING, budget, device

BEGAN = datetime(2027, 1, 1, 12, tzinfo=UTC)
WEEK, REST = 7, timedelta(days=400)
# Days of the window of each population; None counts for ever.
WINDOWS = {population_key("weekly"): WEEK, population_key("forever"): None}
STAGE = "fine_tune"
# Of the clock, in hours.
JUMPS = [24 * days for days in (-8, WEEK, 401)]
# Places at which a writing process dies, first to last, and how many calls of them come before.
CRASHES: dict[str, tuple[object, str, int]] = {
    "before the entry": (CryptoSigner, "sign", 0),
    "before the transaction ends": (rows, "length", 1),
    "before the log": (Outside, "extend", 0),
    "between tiles and checkpoint": (Log, "keep", 0),
}
populations, launches = st.sampled_from(sorted(WINDOWS)), st.sampled_from("abc")
# Eighths, whose sums are exact.
amounts = st.sampled_from([1, 3, 4, 6]).map(lambda eighths: eighths / 8)
crashes = st.sampled_from([None, None, *CRASHES])


class Killed(BaseException):
    """The process died here."""


@dataclass
class Spent:
    """A release in the model.

    Attributes:
      counts_from: time from which it counts: no earlier than any spend of its population before it.
      committed: what replaced the reservation; None before.
    """

    population: str
    reserved: float
    counts_from: datetime
    committed: float | None = None

    @property
    def rho(self) -> float:
        return self.reserved if self.committed is None else self.committed


@dataclass
class Model:
    """Everything that the ledger must remember, as plain values."""

    now: datetime = BEGAN
    ceiling: dict[str, float] = field(default_factory=lambda: dict.fromkeys(WINDOWS, 1.0))
    spent: dict[str, Spent] = field(default_factory=dict)
    latest: dict[str, datetime] = field(default_factory=dict)  # time of the latest spend, by any clock
    noted: dict[str, datetime] = field(default_factory=lambda: dict.fromkeys(WINDOWS, BEGAN))
    withdrawn: dict[str, set[str]] = field(default_factory=lambda: {key: set() for key in WINDOWS})
    digests: dict[str, str] = field(default_factory=dict)
    entries: int = len(WINDOWS)
    results: int = 0

    def launch(self, number: int) -> str:
        """A launch that has spent; now and then one that has not."""
        return [*self.spent, "a"][number % (len(self.spent) + 1)]

    def in_window(self, population: str) -> float:
        days = WINDOWS[population]
        return sum(
            each.rho
            for each in self.spent.values()
            if each.population == population and (days is None or each.counts_from >= self.now - timedelta(days=days))
        )

    def wrote_spend(self, population: str) -> None:
        self.latest[population] = max(self.latest.get(population, self.now), self.now)
        self.noted[population] = max(self.noted[population], self.now)
        self.entries += 1

    def is_ahead(self, population: str) -> bool:
        return self.now - self.noted[population] > REST


@contextmanager
def dying(place: str | None) -> Iterator[None]:
    """Kill a call where it reaches a place."""
    if place is None:
        yield
        return
    owner, name, before = CRASHES[place]
    whole, calls = getattr(owner, name), itertools.count()

    def dies(*given: object, **more: object) -> object:
        if next(calls) < before:
            return whole(*given, **more)
        raise Killed

    with mock.patch.object(owner, name, dies), suppress(Killed):
        yield


def _reserves(home: Path, population: str, launch: str, rho: float, together: object) -> None:
    """Reserve in a process of its own: exit code 0, or 3 where there is no room."""
    ledger = PrivacyLedger.of(at(home))
    together.wait(20)  # type: ignore[attr-defined]
    try:
        _reserve(ledger, population, launch, rho)
    except BudgetExceeded:
        raise SystemExit(3) from None


def _reserve(ledger: PrivacyLedger, population: str, launch: str, rho: float) -> Entry:
    return ledger.reserve(
        population=population_key(population),
        launch_id=launch,
        stage=STAGE,
        spend=device(rho),
        asked=Ceilings(),
        binding=BINDING,
    )


class LedgerMachine(RuleBasedStateMachine):
    """Calls on the ledger of an installation, each as two processes could make them.

    Args:
      template: a home whose ledger has the two populations.
      folder: for the copy of this example.
    """

    def __init__(self, template: Path, folder: Path) -> None:
        super().__init__()
        self.home = folder
        shutil.copytree(template, folder)
        self.here, self.model = at(folder), Model()
        self.file = self.here.runs_dir / "ledger.db"
        self.clock = mock.patch("pipeline.ground.clock.now", self.time)
        self.clock.start()
        self.ledgers = [PrivacyLedger.of(self.here) for _ in range(2)]
        self.old, self.held = self.file.read_bytes(), self.model.entries + self.model.results
        self.head = Checkpoint("", 0, merkle.EMPTY)

    def time(self) -> datetime:
        """Time that the machine's clock shows."""
        return self.model.now

    def teardown(self) -> None:
        try:
            assert self.ledgers[0].verify() == []
        finally:
            self.clock.stop()
            shutil.rmtree(self.home)

    def done(self, call: Callable[[PrivacyLedger], object], crash: str | None) -> object:
        """Call, die on the way, and call again from another process: the answer of the second."""
        with dying(crash):
            call(self.ledgers[0])
        self.ledgers.reverse()
        return call(self.ledgers[0])

    @initialize(population=populations, rho=amounts, share=st.sampled_from([0.5, 1.0]))
    def begun(self, population: str, rho: float, share: float) -> None:
        """Begin with a committed and a reserved spend: most sequences would take long to reach one."""
        self.reserve(population, "a", rho, None)
        self.commit(0, share, None)
        self.reserve(population, "b", 1 / 4, None)

    @rule(hours=st.sampled_from([1, *JUMPS]))
    def set_clock(self, hours: int) -> None:
        self.model.now += timedelta(hours=hours)

    @rule(population=populations, launch=launches, rho=amounts, crash=crashes)
    def reserve(self, population: str, launch: str, rho: float, crash: str | None) -> None:
        model, before = self.model, self.model.spent.get(launch)

        def call(ledger: PrivacyLedger) -> Entry:
            return _reserve(ledger, population, launch, rho)

        if before:
            if (before.population, before.reserved) == (population, rho):
                self.done(call, crash)  # a retry, which is free
            else:
                self.refused(LedgerConflict, call)
        elif model.in_window(population) + rho > model.ceiling[population]:
            self.refused(BudgetExceeded, call)
        elif model.is_ahead(population):
            self.refused(PermanentError, call)
        else:
            made = self.done(call, crash)
            assert isinstance(made, Entry)
            assert made.rho == rho
            model.wrote_spend(population)
            model.spent[launch] = Spent(population, rho, model.latest[population])

    @rule(population=populations, rho=amounts)
    def two_processes_reserve(self, population: str, rho: float) -> None:
        """At once, for two launches: as many as there is room for, never both in the room of one."""
        model, both = self.model, ("one", "two")
        if set(both) & model.spent.keys() or model.is_ahead(population):
            return
        fits = min(2, int((model.ceiling[population] - model.in_window(population)) / rho + 1e-9))
        context = multiprocessing.get_context("fork")
        together = context.Barrier(2)
        started = [
            context.Process(target=_reserves, args=(self.home, population, each, rho, together)) for each in both
        ]
        for each in started:
            each.start()
        for each in started:
            each.join()
        codes = [each.exitcode for each in started]
        assert sorted(codes) == [0] * max(fits, 0) + [3] * (2 - max(fits, 0))
        for launch, code in zip(both, codes, strict=True):
            if code == 0:
                model.wrote_spend(population)
                model.spent[launch] = Spent(population, rho, model.latest[population])

    @rule(number=st.integers(0, 3), share=st.sampled_from([0.5, 1.0]), crash=crashes)
    def commit(self, number: int, share: float, crash: str | None) -> None:
        launch = self.model.launch(number)
        model, before = self.model, self.model.spent.get(launch)

        def call(ledger: PrivacyLedger) -> Entry:
            return ledger.commit(launch, STAGE, device(share * before.reserved if before else 0.5))

        if before is None or before.committed not in (None, share * before.reserved):
            self.refused(LedgerConflict, call)
        elif before.committed is None and model.is_ahead(before.population):
            self.refused(PermanentError, call)
        else:
            self.done(call, crash)
            if before.committed is None:
                model.wrote_spend(before.population)
                before.committed = share * before.reserved

    @rule(number=st.integers(0, 3), crash=crashes)
    def release(self, number: int, crash: str | None) -> None:
        launch = self.model.launch(number)
        model, before = self.model, self.model.spent.get(launch)

        def call(ledger: PrivacyLedger) -> Entry | None:
            return ledger.release(launch, STAGE, "nobody took part")

        if before and before.committed is None:
            if model.is_ahead(before.population):
                self.refused(PermanentError, call)
                return
            self.done(call, crash)
            model.wrote_spend(before.population)
            del model.spent[launch]
        else:
            self.done(call, crash)  # what is committed stays

    @rule(population=populations, rho=st.sampled_from([0.5, 1.0, 1.5]), crash=crashes)
    def change_budget(self, population: str, rho: float, crash: str | None) -> None:
        model = self.model
        granted = budget(rho, window_days=WINDOWS[population_key(population)])

        def call(ledger: PrivacyLedger) -> None:
            ledger.change_budget(population_key(population), granted, "tests", "reviewed")

        before = len(self.ledgers[0].entries())
        with dying(crash):
            call(self.ledgers[0])
        wrote = len(self.ledgers[1].entries()) - before
        if wrote:
            self.ledgers[1].release("none", STAGE, "")  # the next call of any kind writes what the crash left to write
        else:
            call(self.ledgers[1])
        model.entries += 1
        model.ceiling[population], model.noted[population] = rho, max(model.noted[population], model.now)

    @rule(launch=launches, other=launches, crash=crashes)
    def reuse(self, launch: str, other: str, crash: str | None) -> None:
        """A stage of another launch is taken over: it costs nothing."""
        commit = next((each for each in self.ledgers[0].entries_of_launch(launch) if each.kind == "commit"), None)
        if commit is None or self.ledgers[0].noted("reuse", f"after {other}", STAGE):
            return
        self.done(
            lambda ledger: ledger.note("reuse", commit.population, f"after {other}", STAGE, {"commit": commit.hash}),
            crash,
        )
        self.model.entries += 1

    @rule(population=populations, person=st.sampled_from("xyz"), crash=crashes)
    def withdraw(self, population: str, person: str, crash: str | None) -> None:
        gone = self.model.withdrawn[population]
        self.done(lambda ledger: ledger.withdraw(population_key(population), [person]), crash)
        self.model.entries += person not in gone
        gone.add(person)

    @rule(launch=launches, digest=st.sampled_from(["ab" * 32, "cd" * 32]), crash=crashes)
    def bind_result(self, launch: str, digest: str, crash: str | None) -> None:
        self.done(lambda ledger: ledger.bind_result(launch, STAGE, digest), crash)
        self.model.results += self.model.digests.get(launch) != digest
        self.model.digests[launch] = digest

    @rule()
    def back_up(self) -> None:
        self.old, self.held = self.file.read_bytes(), self.model.entries + self.model.results

    @rule(population=populations)
    def restore(self, population: str) -> None:
        """A backup that lacks an entry is refused, whatever it is asked; the newest file then goes on."""
        newest = self.file.read_bytes()
        if self.old == newest:
            return
        self.file.write_bytes(self.old)
        if self.held < self.model.entries + self.model.results:
            call = partial(_reserve, population=population, launch="after a restore", rho=1 / 8)
            self.refused(LedgerTampered, call)
        self.file.write_bytes(newest)

    def refused(self, error: type[LaunchError], call: Callable[[PrivacyLedger], object]) -> None:
        """The ledger refuses; the invariants hold that it writes nothing."""
        with pytest.raises(error) as raised:
            call(self.ledgers[0])
        assert type(raised.value) is error

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        ledger, model = self.ledgers[1], self.model
        for population in WINDOWS:
            spent = [each.rho for each in model.spent.values() if each.population == population]
            assert ledger.total(population) == sum(spent)
            assert len(PrivacyLedger(self.here.ledger_url).withdrawn(population).hashes) == len(
                model.withdrawn[population]
            )
        assert len(ledger.entries()) == model.entries
        assert {launch: digest for launch, (digest, _) in self.bound().items()} == model.digests

    def bound(self) -> dict[str, tuple[str, str]]:
        every = {launch: self.ledgers[1].bound_results(launch).get(STAGE) for launch in self.model.digests}
        return {launch: found for launch, found in every.items() if found}

    @invariant()
    def no_window_holds_more_than_its_ceiling_ever_was(self) -> None:
        for population, days in WINDOWS.items():
            theirs = [each for each in self.model.spent.values() if each.population == population]
            for last in theirs:
                begins = last.counts_from - timedelta(days=days) if days else datetime.min.replace(tzinfo=UTC)
                assert sum(each.rho for each in theirs if begins <= each.counts_from <= last.counts_from) <= 1.5

    @invariant()
    def the_log_only_grows(self) -> None:
        log = Log(self.here.log_dir)
        signed = log.checkpoint()
        if signed is None:
            assert self.head.size == 0
            return
        head, old = signed.checkpoint, self.head
        assert merkle.is_consistent(old.size, old.root, head.size, head.root, log.consistency(old.size, head.size))
        assert head.size == self.model.entries + self.model.results
        self.head = head


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("template") / "home"
    with mock.patch("pipeline.ground.clock.now", return_value=BEGAN):
        ledger = PrivacyLedger.create(at(home))
        for key, days in WINDOWS.items():
            registered(ledger, key, budget=budget(1.0, window_days=days))
    return home


@pytest.mark.slow
def test_the_ledger_does_what_a_plain_model_of_it_does(template: Path, tmp_path: Path):
    numbers = itertools.count()
    run_state_machine_as_test(
        lambda: LedgerMachine(template, tmp_path / str(next(numbers))),
        settings=examples(max_examples=25, stateful_step_count=25, deadline=None),
    )
