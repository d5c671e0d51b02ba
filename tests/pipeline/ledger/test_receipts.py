"""A ledger that is behind a receipt is refused, whoever rewrote it, and however well; one that is ahead is not."""

import json
import os
import re
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from pipeline.ground.errors import LaunchError, LedgerTampered, PermanentError
from pipeline.ground.settings import Settings, account
from pipeline.launch.config import LaunchConfig, launch_id, load_kept_launch
from pipeline.ledger import triggers
from pipeline.ledger.budget import Ceilings
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.receipts import FILE, ChainEntry, Receipts
from pipeline.publication.approvals import rollback
from pipeline.publication.registry import Registry
from pipeline.run import runner
from pipeline.run.run_dir import RESULT
from tests.helpers.launches import publishable
from tests.helpers.launches.command import answered
from tests.helpers.launches.pipeline_launch import Calls, launch_config, run_all, spend
from tests.helpers.launches.spends import budget

pytestmark = [
    # MLflow's own code uses what SQLAlchemy 2.1 deprecates, and warns about type hints of its own.
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType.*:UserWarning"),
]


def forge(path: Path, without: Callable[[dict], bool]) -> None:
    """Take entries out of a ledger and leave it whole: hashes, head and triggers are as if they had never been."""
    from pipeline.ledger.entries import GENESIS, Entry

    with sqlite3.connect(path, isolation_level=None) as database:
        database.row_factory = sqlite3.Row
        made = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for row in made:
            database.execute(f"DROP TRIGGER {row['name']}")
        rows = [dict(row) for row in database.execute("SELECT * FROM privacy_ledger ORDER BY seq")]
        database.execute("DELETE FROM privacy_ledger")
        previous, kept = GENESIS, [row for row in rows if not without(row)]
        for seq, row in enumerate(kept, start=1):
            entry = Entry.model_validate(row | {"seq": seq, "prev_hash": previous, "hash": ""})
            entry = entry.model_copy(update={"hash": entry.expected_hash()})
            values = entry.model_dump()
            marks = ", ".join(f":{name}" for name in values)
            database.execute(f"INSERT INTO privacy_ledger ({', '.join(values)}) VALUES ({marks})", values)
            previous = entry.hash
        database.execute("UPDATE privacy_ledger_head SET entries = ?, hash = ?", (len(kept), previous))
        for row in made:
            database.execute(row["sql"])


def is_no(row: dict) -> bool:
    return row["kind"] == "review"


@pytest.fixture
def rejected(tracked: Settings, tmp_path: Path) -> tuple[LaunchConfig, str]:
    """A launch that one of its reviewers rejected."""
    with pytest.raises(LaunchError, match="is waiting"):
        publishable.launch(tracked, tmp_path, reviewers=[account(), "bo"])
    (run_id,) = [path.parents[2].name for path in tracked.runs_dir.glob("*/public/launch/launch.json")]
    config = load_kept_launch(tracked.runs_dir / run_id / "public" / "launch" / "launch.json")
    said = answered(tracked.home, "review", run_id, "--answer", "reject", "--reason", "names people")
    assert said["state"] == "rejected"
    return config, run_id


@pytest.mark.slow
@pytest.mark.parametrize("erased", ["nothing", "files", "MLflow"])
def test_a_no_that_was_taken_out_of_the_ledger_is_missed(
    rejected: tuple[LaunchConfig, str], tracked: Settings, erased: str
):
    """Its receipt stands in the launch's folder and in MLflow; each alone is enough."""
    run_id = rejected[1]
    forge(tracked.runs_dir / "ledger.db", is_no)
    assert PrivacyLedger(tracked.ledger_url).verify() == [], "what was left is whole in itself"
    if erased == "files":
        for path in tracked.runs_dir.rglob(FILE):
            path.unlink()
    elif erased == "MLflow":
        with sqlite3.connect(tracked.runs_dir / "mlflow.db") as database:
            for table in ("tags", "experiment_tags"):
                database.execute(f"DELETE FROM {table} WHERE key = 'tacit.ledger'")
    yes = ("--answer", "approve", "--reason", "fine")
    for command in (("review", run_id, *yes), ("stage", "publish", run_id), ("launch", run_id)):
        error = answered(tracked.home, *command, code=65)["error"]
        assert "holds the receipt of entry" in error, command
        assert ("in MLflow holds" in error) == (erased != "MLflow"), command
        assert ("launch/receipts.json holds" in error) == (erased != "files"), command
        assert "Restore it from a backup" in error
    with pytest.raises(LedgerTampered, match="holds the receipt of entry"):
        rollback("en-US", "NWP", tracked, "why not", "bo")
    assert Registry(tracked).alias(publishable.NAME, "champion") is None


@pytest.fixture
def ledger(settings: Settings) -> PrivacyLedger:
    made = PrivacyLedger.of(settings)
    made.register("devices", budget(max_rho=1.0), "somebody")
    (settings.runs_dir / "a" / "public" / "launch").mkdir(parents=True)
    made.note("review", "devices", "a", "review", {"answer": "reject"})
    return made


def reserve(ledger: PrivacyLedger, launch_id: str = "b") -> None:
    ledger.reserve(
        population="devices",
        launch_id=launch_id,
        stage="fine_tune",
        spend=spend(0.1),
        asked=Ceilings(),
        binding={},
    )


WRITES = {
    "register": lambda ledger: ledger.register("others", budget(max_rho=1.0), "somebody"),
    "change a budget": lambda ledger: ledger.change_budget("devices", budget(max_rho=2.0), "somebody", "why"),
    "bind devices": lambda ledger: ledger.bind_devices("devices", ["one", "two"]),
    "reserve": reserve,
    "commit": lambda ledger: ledger.commit("b", "fine_tune", spend(0.1)),
    "give back": lambda ledger: ledger.release("b", "fine_tune", "nobody took part"),
    "answer": lambda ledger: ledger.note("review", "devices", "a", "review 2", {"answer": "approve"}),
    "count an attempt": lambda ledger: ledger.attempt("devices", "b", "ab_test", {"feature": "NWP"}),
    "write a record down": lambda ledger: ledger.bind_result("b", "plan", "a" * 64),
    "look before acting": lambda ledger: ledger.require_whole({}),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_nothing_is_written_to_a_ledger_that_is_behind(
    ledger: PrivacyLedger, settings: Settings, write: Callable[[PrivacyLedger], object]
):
    reserve(ledger)
    forge(settings.runs_dir / "ledger.db", is_no)
    with pytest.raises(LedgerTampered, match=r"a/public/launch/receipts.json holds the receipt of entry 2 .* another"):
        write(ledger)
    assert len(ledger.entries()) == 2


def test_every_entry_has_its_receipt_where_it_belongs(ledger: PrivacyLedger, settings: Settings):
    reserve(ledger)
    ledger.bind_result("a", "plan", "a" * 64)
    registered, answered_, reserved = ledger.entries()
    (result,) = [receipt for _, receipt in ledger.bound_results("a").values()]
    beside = json.loads((settings.runs_dir / FILE).read_text(encoding="utf-8"))
    assert beside == {"entry": {"1": registered.hash, "3": reserved.hash}}
    of_launch = json.loads((settings.runs_dir / "a" / "public" / "launch" / FILE).read_text(encoding="utf-8"))
    assert of_launch == {"entry": {"2": answered_.hash}, "result": {"1": result}}
    assert json.loads(ledger.heads()) == {"entry": {"3": reserved.hash}, "result": {"1": result}}


def test_an_entry_without_a_receipt_is_honest_and_gets_one(ledger: PrivacyLedger, settings: Settings):
    """As after a crash between the two, or where the folder was removed."""
    (settings.runs_dir / FILE).unlink()
    PrivacyLedger(settings.ledger_url).note("review", "devices", "a", "review 2", {"answer": "approve"})
    assert len(Receipts(settings.runs_dir).read()) == 1
    ledger.require_whole({})
    assert sorted(receipt.seq for receipt in Receipts(settings.runs_dir).read()) == [1, 2, 3]
    assert ledger.verify() == []


def test_a_receipt_is_never_replaced(tmp_path: Path):
    kept = Receipts(tmp_path)
    kept.keep([ChainEntry("entry", 1, "a" * 64, "")])
    kept.keep([ChainEntry("entry", 1, "b" * 64, ""), ChainEntry("entry", 2, "c" * 64, "")])
    assert [receipt.hash for receipt in kept.read()] == ["a" * 64, "c" * 64]


def test_receipts_elsewhere_count_as_well(ledger: PrivacyLedger):
    ledger.require_whole({"run a in MLflow": ledger.heads()})
    with pytest.raises(
        LedgerTampered, match=r"run a in MLflow holds the receipt of entry 9 \(ffffffffffff\).*ends at 2"
    ):
        ledger.require_whole({"run a in MLflow": json.dumps({"entry": {"9": "f" * 64}})})


@pytest.mark.parametrize(
    "damaged", ["", "[]", '{"entry": 1}', '{"entry": {"one": "a"}}', '{"more": {}}', '{"entry": []']
)
def test_damaged_receipts_are_refused(ledger: PrivacyLedger, settings: Settings, damaged: str):
    (settings.runs_dir / FILE).write_text(damaged, encoding="utf-8")
    with pytest.raises(PermanentError, match=r"receipts.json: damaged"):
        reserve(ledger)


def test_an_older_copy_of_the_database_is_refused(ledger: PrivacyLedger, settings: Settings):
    older = (settings.runs_dir / "ledger.db").read_bytes()
    reserve(ledger)
    (settings.runs_dir / "ledger.db").write_bytes(older)
    with pytest.raises(LedgerTampered, match=r"receipt of entry 3 .* the ledger ends at 2"):
        reserve(PrivacyLedger.of(settings), "c")


def test_a_stage_asks_before_it_computes(settings: Settings, ledger: PrivacyLedger):
    config = publishable.launch_config()
    made = publishable.stages("launch")
    forge(settings.runs_dir / "ledger.db", is_no)
    with pytest.raises(LedgerTampered):
        runner.run_stage("decide", config, runner.launch_id(config), settings, made)
    assert not list(settings.runs_dir.glob(f"*/public/decide/{RESULT}"))


SQLITE = {
    "does nothing": "CREATE TRIGGER {name} BEFORE DELETE ON privacy_ledger WHEN 0 BEGIN SELECT RAISE(ABORT, 'no'); END",
    "ignores": "CREATE TRIGGER more BEFORE INSERT ON privacy_ledger WHEN NEW.kind = 'review' "
    "BEGIN SELECT RAISE(IGNORE); END",
}
POSTGRES = {
    "does nothing": "CREATE OR REPLACE FUNCTION privacy_ledger_refuse() RETURNS trigger LANGUAGE plpgsql AS "
    "$$BEGIN RETURN NULL; END$$",
    "ignores": "CREATE FUNCTION pass() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END$$; "
    "CREATE TRIGGER more BEFORE INSERT ON privacy_ledger FOR EACH ROW EXECUTE FUNCTION pass()",
    "is off": "ALTER TABLE privacy_ledger DISABLE TRIGGER privacy_ledger_no_change",
    "is a rule": "CREATE RULE more AS ON INSERT TO privacy_ledger_results DO INSTEAD NOTHING",
}


@pytest.mark.parametrize("which", ["does nothing", "ignores", "is off", "is a rule"])
def test_a_trigger_that_does_something_else_is_noticed(ledger_url: str, which: str):
    """A name says nothing: it used to be all that was looked at."""
    made, postgres = PrivacyLedger.create(ledger_url), ledger_url.startswith("postgresql")
    made.register("devices", budget(max_rho=1.0), "somebody")
    if which not in (POSTGRES if postgres else SQLITE):
        pytest.skip("only PostgreSQL has it")
    engine = create_engine(ledger_url)
    with engine.begin() as connection:
        assert triggers.problems(connection) == []
        if which == "does nothing" and not postgres:
            connection.execute(text("DROP TRIGGER privacy_ledger_no_delete"))
        statement = (POSTGRES if postgres else SQLITE)[which].format(name="privacy_ledger_no_delete")
        connection.execute(text(statement))
    engine.dispose()
    problems = made.verify()
    assert problems, which
    assert all("trigger" in problem for problem in problems)
    with pytest.raises(LedgerTampered, match="trigger"):
        made.register("others", budget(max_rho=1.0), "somebody")


def copied(source: Path, target: Path) -> None:
    """What ``sqlite3 SOURCE ".backup TARGET"`` does, also back."""
    with closing(sqlite3.connect(source)) as read, closing(sqlite3.connect(target)) as write:
        read.backup(write)


@dataclass(frozen=True)
class Database:
    """An installation with a ledger, and the backups of docs/settings.md, by name."""

    settings: Settings
    back_up: Callable[[str], None]
    restore: Callable[[str], None]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.services)])
def database(request: pytest.FixtureRequest, settings: Settings, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        file = settings.runs_dir / "ledger.db"
        yield Database(settings, lambda name: copied(file, tmp_path / name), lambda name: copied(tmp_path / name, file))
    else:
        yield from of_postgresql(request.getfixturevalue("postgres_url"), settings, tmp_path)


def of_postgresql(server: str, settings: Settings, folder: Path) -> Iterator[Database]:
    """A database ``ledger`` of a user ``ledger``, and the commands as they stand in docs/settings.md."""
    documented = (Path(__file__).parents[3] / "docs" / "settings.md").read_text(encoding="utf-8")
    (dump, drop, put) = re.findall(r"^((?:pg_dump|psql|pg_restore) .*?)(?:  +#.*)?$", documented, re.MULTILINE)
    url = make_url(server).set(username="ledger", password="secret", database="ledger")
    login = {"PGHOST": str(url.host), "PGPORT": str(url.port), "PGUSER": "ledger", "PGPASSWORD": "secret"}

    def run(*commands: str) -> None:
        for command in commands:
            subprocess.run(["sh", "-c", command], env=os.environ | login, cwd=folder, check=True, capture_output=True)

    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in ("CREATE ROLE ledger LOGIN PASSWORD 'secret'", "CREATE DATABASE ledger OWNER ledger"):
            connection.execute(text(statement))
    address = url.render_as_string(hide_password=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TACIT_LEDGER_URL", address)
        PrivacyLedger.create(address)
        yield Database(
            replace(settings, ledger_url=address),
            lambda name: run(dump, f"mv ledger.dump {name}"),
            lambda name: run(f"cp {name} ledger.dump", drop, put),
        )
    with engine.connect() as connection:
        for statement in ("DROP DATABASE ledger WITH (FORCE)", "DROP ROLE ledger"):
            connection.execute(text(statement))
    engine.dispose()


@pytest.mark.slow
def test_a_restored_backup_spends_nothing_until_the_spends_since_are_back(database: Database) -> None:
    """Commands of docs/settings.md: a backup, a launch that spends, a restore of the older and of the newer backup."""
    settings, stages = database.settings, Calls().stages
    first, since = launch_config(), launch_config(name="since")
    run_all(first, settings, stages)
    database.back_up("older")
    run_all(since, settings, stages)
    database.back_up("newer")
    before = PrivacyLedger.of(settings).spends()

    database.restore("older")
    told = answered(settings.home, "ledger", "verify", code=65)
    missing = [problem for problem in told["problems"] if "holds the receipt of entry" in problem]
    assert any(launch_id(since) in problem for problem in missing), told
    for config in (since, launch_config(name="another")):
        for name in ("fine_tune", "ingest_private"):
            with pytest.raises(LedgerTampered, match="holds the receipt of entry"):
                runner.run_stage(name, config, launch_id(config), settings, stages)
    assert len(PrivacyLedger(settings.ledger_url).spends()) < len(before), "nothing was written to it"

    database.restore("newer")
    assert answered(settings.home, "ledger", "verify")["problems"] == []
    run_all(since, settings, stages)
    assert PrivacyLedger.of(settings).spends() == before
    run_all(launch_config(name="another"), settings, stages)
    assert len(PrivacyLedger.of(settings).spends()) > len(before), "launches go on"


def test_entries_that_are_lost_for_good_are_set_aside_by_a_person(settings: Settings, tmp_path: Path) -> None:
    file, backup = settings.runs_dir / "ledger.db", tmp_path / "ledger.backup"
    stages, since = Calls().stages, launch_config(name="since")
    run_all(launch_config(), settings, stages)
    copied(file, backup)
    run_all(since, settings, stages)
    copied(backup, file)
    ledger = PrivacyLedger.of(settings)
    with pytest.raises(LedgerTampered, match="holds the receipt of entry"):
        ledger.register("others", budget(max_rho=1.0), "somebody")
    (settings.runs_dir / launch_id(since)).rename(tmp_path / "aside")
    assert ledger.verify() == []
    ledger.register("others", budget(max_rho=1.0), "somebody")
