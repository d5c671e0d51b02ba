"""The ledger: budgets, free retries, races, and every way to tamper with it."""

import json
import math
import multiprocessing
import re
import tempfile
from pathlib import Path

import pytest
from pydantic import ValidationError
from sqlalchemy import create_engine, exc, make_url, text

from pipeline.ground.errors import BudgetExceeded, LedgerConflict, LedgerTampered, PermanentError, ServiceUnavailable
from pipeline.ground.settings import Settings
from pipeline.ledger.database import ENTRIES
from pipeline.ledger.entries import Entry, Spend
from pipeline.ledger.ledger import PrivacyLedger
from tests.helpers.launches.installed import at, registered
from tests.helpers.launches.spends import BINDING, budget, device, item, reserve
from tests.helpers.processes.accounts import somebody_else

GONE = {
    "sqlite": ("no_update", "no_delete", "at_end"),
    "postgresql": ("no_change", "at_end"),
}


@pytest.fixture
def ledger(there: Settings) -> PrivacyLedger:
    return registered(PrivacyLedger.create(there), "people", "others")


@pytest.fixture
def full(ledger: PrivacyLedger) -> PrivacyLedger:
    """Two registrations and five more entries: two launches, one of them with discovery."""
    reserve(ledger, "first", device(0.4))
    ledger.commit("first", "fine_tune", device(0.3))
    reserve(ledger, "second", item(8.0), stage="discover")
    ledger.commit("second", "discover", item(8.0))
    reserve(ledger, "second", device(0.2))
    return ledger


def test_reservation_counts_until_a_commit_replaces_it(ledger: PrivacyLedger):
    reserve(ledger, "first", device(0.4))
    assert ledger.total("people") == 0.4
    ledger.commit("first", "fine_tune", device(0.3))
    assert ledger.total("people") == 0.3
    assert ledger.total("others") == 0.0


def test_refuses_what_does_not_fit_and_names_the_numbers(ledger: PrivacyLedger):
    reserve(ledger, "first", device(0.7))
    with pytest.raises(BudgetExceeded, match=r"needs rho 0\.4, 0\.7 of 1 is spent and 0\.3 is left"):
        reserve(ledger, "second", device(0.4))
    assert len(ledger.spends()) == 1
    reserve(ledger, "second", device(0.3))
    assert ledger.total("people") == pytest.approx(1.0)
    with pytest.raises(BudgetExceeded):
        reserve(ledger, "third", device(1e-6))


def test_the_last_bit_of_a_sum_does_not_decide(ledger: PrivacyLedger):
    for launch, rho in (("a", 0.1), ("b", 0.2)):
        reserve(ledger, launch, device(rho), budget_rho=0.3)
    assert 0.1 + 0.2 > 0.3


def test_populations_have_budgets_of_their_own(ledger: PrivacyLedger):
    reserve(ledger, "first", device(0.9))
    reserve(ledger, "second", device(0.9), population="others")
    assert (ledger.total("people"), ledger.total("others")) == (0.9, 0.9)


def test_item_epsilon_is_kept_but_never_added(ledger: PrivacyLedger):
    reserve(ledger, "first", item(8.0), stage="discover", budget_rho=0.1)
    assert ledger.total("people") == 0.0
    assert ledger.spends()[0].epsilon == 8.0
    with pytest.raises(ValidationError, match="the two never add up"):
        Spend(unit="item", adjacency="swap", rho=0.1, epsilon=1.0, delta=0.0)
    with pytest.raises(ValidationError, match="states rho"):
        Spend(unit="device", adjacency="zero-out", rho=None, epsilon=1.0, delta=0.0)


def test_a_retry_is_free_even_when_the_budget_is_spent(ledger: PrivacyLedger):
    first = reserve(ledger, "first", device(1.0))
    assert reserve(ledger, "first", device(1.0)) == first
    committed = ledger.commit("first", "fine_tune", device(0.9))
    assert ledger.commit("first", "fine_tune", device(0.9)) == committed
    assert reserve(ledger, "first", device(1.0)) == first
    assert len(ledger.spends()) == 2


@pytest.mark.parametrize("change", ["seeded_key", "inputs", "config"])
def test_a_retry_that_is_another_release_is_refused(ledger: PrivacyLedger, change: str):
    reserve(ledger, "first", device(0.4))
    with pytest.raises(LedgerConflict, match=f"the {change} changed since"):
        reserve(ledger, "first", device(0.4), binding=BINDING | {change: "other"})


def test_a_retry_with_other_amounts_is_refused(ledger: PrivacyLedger):
    reserve(ledger, "first", device(0.4))
    with pytest.raises(LedgerConflict, match="releases once"):
        reserve(ledger, "first", device(0.3))
    with pytest.raises(LedgerConflict, match="releases once"):
        reserve(ledger, "first", device(0.4), population="others")
    ledger.commit("first", "fine_tune", device(0.3))
    with pytest.raises(LedgerConflict, match=r"holds a commit of rho 0\.3"):
        ledger.commit("first", "fine_tune", device(0.2))


def test_commit_needs_a_reservation_of_the_same_unit(ledger: PrivacyLedger):
    with pytest.raises(LedgerConflict, match="nothing was reserved"):
        ledger.commit("first", "fine_tune", device(0.3))
    reserve(ledger, "first", device(0.4))
    with pytest.raises(LedgerConflict, match="cannot replace"):
        ledger.commit("first", "fine_tune", item(0.1))


def test_a_spend_above_its_reservation_is_recorded_as_it_happened(ledger: PrivacyLedger):
    reserve(ledger, "first", device(0.4))
    ledger.commit("first", "fine_tune", device(1.5))
    assert ledger.total("people") == 1.5
    with pytest.raises(BudgetExceeded):
        reserve(ledger, "second", device(0.1))


def test_every_entry_is_there_once(full: PrivacyLedger):
    entries = full.entries()
    assert full.verify(anchors=[entries[2].hash]) == []
    assert [entry.seq for entry in entries] == list(range(1, 8))
    assert len({entry.salt for entry in entries}) == len(entries)
    stated = json.loads(json.dumps([entry.model_dump() for entry in entries], allow_nan=False))
    assert [Entry(**entry) for entry in stated] == entries
    assert full.total("people") == 0.5


def test_survives_reopening(full: PrivacyLedger, there: Settings):
    again = PrivacyLedger.of(there)
    assert again.entries() == full.entries()
    assert again.verify() == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE privacy_ledger SET rho = 0.001 WHERE seq = 3",
        "DELETE FROM privacy_ledger WHERE seq = 7",
        "INSERT INTO privacy_ledger SELECT 11, 'void', population, launch_id, stage, unit, adjacency, rho, epsilon,"
        " delta, binding, note, created_at, salt, 'x', 'z' FROM privacy_ledger WHERE seq = 3",
        "DELETE FROM privacy_ledger_secrets",
        "UPDATE privacy_ledger_secrets SET kind = 'devices' WHERE kind = 'register'",
        "UPDATE privacy_ledger_secrets SET population = 'x' WHERE kind = 'register'",
    ],
)
def test_the_database_refuses_changes(full: PrivacyLedger, there: Settings, statement: str):
    engine = create_engine(there.ledger_url)
    with pytest.raises(exc.DatabaseError, match="append-only"), engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()
    assert full.verify() == []


def drop_protection(url: str, *statements: str) -> None:
    """What someone with full rights on the database can do."""
    engine = create_engine(url)
    with engine.begin() as connection:
        dialect = connection.dialect.name
        for name in GONE[dialect]:
            on = " ON privacy_ledger" if dialect == "postgresql" else ""
            connection.execute(text(f"DROP TRIGGER privacy_ledger_{name}{on}"))
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


CHANGE = "UPDATE privacy_ledger SET rho = 0.001 WHERE seq = 4"
SWAP = (
    "UPDATE privacy_ledger SET seq = 99 WHERE seq = 4",
    "UPDATE privacy_ledger SET seq = 4 WHERE seq = 5",
    "UPDATE privacy_ledger SET seq = 5 WHERE seq = 99",
)
INSERT = (
    "INSERT INTO privacy_ledger SELECT 8, kind, population, 'third', stage, unit, adjacency, 0.0, epsilon, delta,"
    " binding, note, created_at, salt, 'made up', signature FROM privacy_ledger WHERE seq = 7"
)


@pytest.mark.parametrize(
    ("statements", "found"),
    [
        (("UPDATE privacy_ledger SET rho = NULL WHERE seq = 3",), "entry 3 .* was altered"),
        ((CHANGE,), "entry 4 .* was altered"),
        (("UPDATE privacy_ledger SET binding = '{}' WHERE seq = 3",), "entry 3 .* was altered"),
        (("DELETE FROM privacy_ledger WHERE seq = 4",), "stands at place 4"),
        (("DELETE FROM privacy_ledger WHERE seq = 7",), "log holds entry 7 .* ends at 6"),
        (("DELETE FROM privacy_ledger",), "log holds entry 1 .* ends at 0"),
        ((INSERT,), "entry 8 .* was altered"),
        (SWAP, "entry 4 .* was altered"),
    ],
)
def test_tampering_is_found(full: PrivacyLedger, there: Settings, statements: tuple[str, ...], found: str):
    drop_protection(there.ledger_url, *statements)
    problems = full.verify()
    assert any(re.search(found, problem) for problem in problems), problems
    with pytest.raises(LedgerTampered, match="Restore it"):
        reserve(full, "third", device(0.1))
    assert sum("trigger" in problem for problem in problems) == len(
        GONE[there.ledger_url.partition("+")[0].partition(":")[0]]
    )


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"rho": -100.0}, "negative or not finite"),
        ({"rho": math.inf}, "negative or not finite"),
        ({"epsilon": math.inf}, "negative or not finite"),
        ({"delta": -1e-9}, "negative or not finite"),
        ({"rho": None}, "is per device with rho None"),
        ({"kind": "refund", "launch_id": "first", "rho": 0.0}, "a kind that this version does not know"),
        ({"kind": "commit", "rho": 0.0}, "follows no reservation"),
        ({"kind": "register", "launch_id": "first", "stage": "fine_tune", "rho": 0.0}, "is per device with rho 0.0"),
    ],
)
def test_what_only_a_forger_appends_is_refused(full: PrivacyLedger, there: Settings, changes: dict, found: str):
    """With the right hashes in the right place, as whoever has the database can write them."""
    before = full.entries()
    forged = before[-1].model_copy(update={"seq": 8, "launch_id": "third", **changes})
    forged = forged.model_copy(update={"hash": forged.expected_hash()})
    engine = create_engine(there.ledger_url)
    with engine.begin() as connection:
        connection.execute(ENTRIES.insert().values(**forged.model_dump()))
    engine.dispose()
    assert any(found in problem for problem in full.verify())
    with pytest.raises(LedgerTampered, match=found):
        reserve(full, "fourth", device(0.1))


def test_what_was_committed_is_not_given_back(ledger: PrivacyLedger):
    reserve(ledger, "first", device(0.4))
    ledger.commit("first", "fine_tune", device(0.3))
    assert ledger.release("first", "fine_tune", "a mistake") is None
    assert ledger.release("nobody", "fine_tune", "a mistake") is None
    assert ledger.total("people") == 0.3


def test_what_was_given_back_can_be_reserved_again_and_committed(ledger: PrivacyLedger):
    reserve(ledger, "first", device(0.4))
    assert ledger.release("first", "fine_tune", "too few").rho == 0.0
    with pytest.raises(LedgerConflict, match="nothing was reserved"):
        ledger.commit("first", "fine_tune", device(0.3))
    again = reserve(ledger, "first", device(0.5))
    assert reserve(ledger, "first", device(0.5)) == again
    ledger.commit("first", "fine_tune", device(0.2))
    assert ledger.total("people") == 0.2
    assert ledger.verify() == []


@pytest.mark.parametrize("changes", [{"rho": -0.1}, {"rho": math.nan}, {"epsilon": math.inf}, {"delta": math.nan}])
def test_an_amount_that_is_none_is_refused_at_every_door(full: PrivacyLedger, changes: dict):
    with pytest.raises(ValidationError):
        Spend.model_validate(device(0.1).model_dump() | changes)
    around = device(0.1).model_copy(update=changes)
    entries = full.entries()
    with pytest.raises(ValueError, match="negative or not finite"):
        reserve(full, "third", around, budget_rho=1.0)
    with pytest.raises(ValueError, match="negative or not finite"):
        full.commit("second", "fine_tune", around)
    assert full.entries() == entries


def test_dropping_the_triggers_alone_is_found(full: PrivacyLedger, there: Settings):
    drop_protection(there.ledger_url)
    assert all("append-only trigger" in problem for problem in full.verify())
    PrivacyLedger.of(there)  # opening it does not hide what happened
    assert full.verify()


def test_a_ledger_rewritten_from_the_start_is_found_by_its_anchors(full: PrivacyLedger, tmp_path: Path):
    anchors = [entry.hash for entry in full.entries()]
    forged = registered(PrivacyLedger.create(at(tmp_path / "forged")), "people")
    reserve(forged, "first", device(0.001))
    assert forged.verify() == []
    assert len(forged.verify(anchors)) == len(anchors)


def _race(there: Settings, launch: str, start, results) -> None:
    ledger = PrivacyLedger.of(there)
    start.wait()
    for number in range(6):
        try:
            reserve(ledger, f"{launch}-{number}", device(0.1))
        except BudgetExceeded:
            results.put("refused")
        else:
            results.put("reserved")


@pytest.mark.slow
def test_racing_processes_never_overspend(there: Settings):
    registered(PrivacyLedger.create(there), "people", budget=1.0)
    context = multiprocessing.get_context("fork")
    start, results = context.Event(), context.Queue()
    racers = [context.Process(target=_race, args=(there, f"racer-{n}", start, results)) for n in range(2)]
    for racer in racers:
        racer.start()
    start.set()
    outcomes = [results.get(timeout=300) for _ in range(12)]
    for racer in racers:
        racer.join(timeout=300)
        assert racer.exitcode == 0
    ledger = PrivacyLedger.of(there)
    assert outcomes.count("reserved") == 10
    assert ledger.total("people") == pytest.approx(1.0)
    assert ledger.verify() == []


@pytest.mark.parametrize(
    ("url", "expected"),
    [("nonsense", "not an address"), ("mysql://h/d", "not supported"), ("sqlite://", "no absolute path")],
)
def test_unusable_addresses(url: str, expected: str):
    with pytest.raises(ValueError, match=expected):
        PrivacyLedger(url)


@pytest.mark.parametrize("case", ["read-only", "another account's"])
def test_a_ledger_that_may_not_be_written_is_permanent(case: str):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        home = Path(folder)
        home.chmod(0o755)
        here = at(home)
        ledger = PrivacyLedger.create(here)
        file, runs = here.runs_dir / "ledger.db", here.runs_dir
        for readable in (runs, here.keys_dir):
            readable.chmod(0o755)
        file.chmod(0o400 if case == "read-only" else 0)
        runs.chmod(0o555)
        expected = "may not be opened or written" + ("" if case == "read-only" else "|this account may not read it")
        with somebody_else(*((file, runs, *runs.rglob("*")) if case == "read-only" else ())):
            for refused in (
                lambda: PrivacyLedger.of(here).register("people", budget(max_rho=1.0), "owner"),
                lambda: ledger.register("people", budget(max_rho=1.0), "owner"),
            ):
                with pytest.raises(PermanentError, match=expected):
                    refused()
        runs.chmod(0o755)
        file.chmod(0o600)


@pytest.mark.services
def test_an_account_that_postgresql_does_not_know_is_permanent(postgres_url: str):
    url = make_url(postgres_url).set(username="nobody", password="hunter2").render_as_string(hide_password=False)
    with pytest.raises(PermanentError, match="may not be opened") as refused:
        PrivacyLedger(url)
    assert "hunter2" not in str(refused.value)


def test_a_database_that_does_not_answer_is_temporary_and_keeps_its_password():
    with pytest.raises(ServiceUnavailable) as failed:
        PrivacyLedger("postgresql+psycopg2://user:hunter2@127.0.0.1:9/nowhere")
    assert "hunter2" not in str(failed.value)
