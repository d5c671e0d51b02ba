"""A ledger that is behind a checkpoint of its log is refused, whoever rewrote it; one that is ahead is not."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from securesystemslib.signer import CryptoSigner
from sqlalchemy import create_engine, make_url, text

from pipeline.ground import keys
from pipeline.ground.errors import LaunchError, LedgerTampered, PermanentError
from pipeline.ground.settings import Settings, account
from pipeline.launch.config import LaunchConfig, launch_id, load_kept_launch
from pipeline.ledger import rows
from pipeline.ledger.budget import Ceilings
from pipeline.ledger.database import ENTRIES, trigger_problems
from pipeline.ledger.entries import Entry, Leaf
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.log.note import Signed
from pipeline.ledger.log.tiles import CHECKPOINT, WITNESSED, Log
from pipeline.ledger.outside import Outside
from pipeline.publication.approvals import rollback
from pipeline.publication.registry import Registry
from pipeline.run import runner
from pipeline.run.run_dir import RESULT
from pipeline.run.stage import Stage
from tests.helpers.launches import publishable
from tests.helpers.launches.command import answered
from tests.helpers.launches.installed import at
from tests.helpers.launches.pipeline_launch import Calls, launch_config, run_all, spend
from tests.helpers.launches.spends import budget
from tests.helpers.launches.stages import stages_of

pytestmark = [
    # MLflow's own code uses what SQLAlchemy 2.1 deprecates, and warns about type hints of its own.
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType.*:UserWarning"),
]


def forge(here: Settings, without: Callable[[dict], bool]) -> None:
    """Take entries out of a ledger, with its key, and leave it whole in itself: as if they had never been."""
    signer = keys.signer(here, "ledger")
    with sqlite3.connect(here.runs_dir / "ledger.db", isolation_level=None) as database:
        database.row_factory = sqlite3.Row
        made = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for row in made:
            database.execute(f"DROP TRIGGER {row['name']}")
        rows = [dict(row) for row in database.execute("SELECT * FROM privacy_ledger ORDER BY seq")]
        database.execute("DELETE FROM privacy_ledger")
        kept = [row for row in rows if not without(row)]
        for seq, row in enumerate(kept, start=1):
            entry = Entry.model_validate(row | {"seq": seq})
            digest = entry.expected_hash()
            signed = signer.sign(Leaf(seq, digest).message).signature
            entry = entry.model_copy(update={"hash": digest, "signature": signed})
            values = entry.model_dump()
            marks = ", ".join(f":{name}" for name in values)
            database.execute(f"INSERT INTO privacy_ledger ({', '.join(values)}) VALUES ({marks})", values)
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
@pytest.mark.parametrize("erased", ["nothing", "log", "MLflow", "log and MLflow"])
def test_a_no_that_was_taken_out_of_the_ledger_is_missed(
    rejected: tuple[LaunchConfig, str], tracked: Settings, erased: str
):
    """The log, MLflow and the witness know of it; each alone is enough."""
    run_id = rejected[1]
    forge(tracked, is_no)
    assert PrivacyLedger(tracked.ledger_url).verify() == [], "what was left is whole in itself"
    if "log" in erased:
        shutil.rmtree(tracked.log_dir)
    if "MLflow" in erased:
        with sqlite3.connect(tracked.runs_dir / "mlflow.db") as database:
            for table in ("tags", "experiment_tags"):
                database.execute(f"DELETE FROM {table} WHERE key = 'tacit.ledger'")
    yes = ("--answer", "approve", "--reason", "fine")
    for command in (("review", run_id, *yes), ("stage", "publish", run_id), ("launch", run_id)):
        error = answered(tracked.home, *command, code=65)["error"]
        assert ("in MLflow holds a checkpoint" in error) == ("MLflow" not in erased), command
        assert (f"{tracked.log_dir} holds entry" in error) == ("log" not in erased), command
        assert ("the witness in" in error) == (erased == "log and MLflow"), command
        assert "Restore" in error
    with pytest.raises(LedgerTampered, match=r"holds a checkpoint|has cosigned"):
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
    forge(settings, is_no)
    with pytest.raises(LedgerTampered, match=r"log holds entry 2 .* another"):
        write(ledger)
    assert len(ledger.entries()) == 2


def test_every_entry_is_a_signed_leaf_of_the_log_and_says_nothing_of_its_launch(
    ledger: PrivacyLedger, settings: Settings
):
    reserve(ledger)
    ledger.bind_result("a", "plan", "a" * 64)
    (result,) = [receipt for _, receipt in ledger.bound_results("a").values()]
    expected = [{"hash": entry.hash, "seq": entry.seq} for entry in ledger.entries()]
    expected.append({"hash": result, "seq": 4})
    log = Log(settings.log_dir)
    assert [json.loads(leaf) for leaf in log.leaves(log.size)] == expected
    assert Signed.parsed(ledger.checkpoint()).checkpoint.size == len(expected)


def test_an_entry_without_a_leaf_is_honest_and_gets_one(ledger: PrivacyLedger, settings: Settings):
    """As after a crash between the two, or where the log was removed."""
    with pytest.MonkeyPatch.context() as crashed:
        crashed.setattr(Outside, "extend", lambda *_: None)
        ledger.note("review", "devices", "a", "review 2", {"answer": "approve"})
    assert Log(settings.log_dir).size == 2
    ledger.require_whole({})
    assert Log(settings.log_dir).size == 3
    before = ledger.checkpoint()
    shutil.rmtree(settings.log_dir)
    ledger.require_whole({})
    assert Signed.parsed(ledger.checkpoint()).checkpoint == Signed.parsed(before).checkpoint
    assert ledger.verify() == []


def inserted(here: Settings, **changes: object) -> Entry:
    """Append an entry with the right hashes, as somebody can who writes to the database and has no key."""
    last = PrivacyLedger.of(here).entries()[-1]
    forged = last.model_copy(update={"seq": last.seq + 1} | changes)
    forged = forged.model_copy(update={"hash": forged.expected_hash()})
    engine = create_engine(here.ledger_url)
    with engine.begin() as connection:
        connection.execute(ENTRIES.insert().values(**forged.model_dump()))
    engine.dispose()
    return forged


@pytest.mark.parametrize("signature", ["", "00" * 64, "of another entry"])
def test_an_entry_that_nobody_signed_is_found_and_named(ledger: PrivacyLedger, settings: Settings, signature: str):
    reserve(ledger)
    other = {} if signature == "of another entry" else {"signature": signature}
    forged = inserted(settings, launch_id="c", **other)
    assert PrivacyLedger(settings.ledger_url).verify() == [], "it is whole in itself"
    assert ledger.verify() == [f"entry 4 ({forged.hash[:12]}) was not signed by the ledger's key"]
    with pytest.raises(LedgerTampered, match=r"entry 4 .* was not signed"):
        reserve(ledger, "d")
    assert Log(settings.log_dir).size == 3, "no checkpoint covers it"


def test_a_result_that_nobody_signed_is_found_and_named(ledger: PrivacyLedger, settings: Settings):
    ledger.bind_result("a", "plan", "a" * 64)
    with ledger.transaction() as connection:
        stranger = CryptoSigner.generate_ed25519()
        rows.sign_with(connection, stranger, [(1, bytes.fromhex(stranger.public_key.keyval["public"]))])
        rows.bind_result(connection, "a", "decide", "b" * 64)
    (problem,) = ledger.verify()
    assert re.fullmatch(r"entry 4 \([0-9a-f]{12}\) was not signed by the ledger's key", problem)
    with pytest.raises(LedgerTampered, match="entry 4"):
        ledger.bind_result("a", "report", "c" * 64)


def test_checkpoints_elsewhere_count_as_well(ledger: PrivacyLedger, settings: Settings):
    ledger.require_whole({"run a in MLflow": ledger.checkpoint()})
    older = (settings.runs_dir / "ledger.db").read_bytes(), settings.log_dir, settings.log_dir.with_name("older")
    shutil.copytree(*older[1:])
    reserve(ledger)
    later = ledger.checkpoint()
    (settings.runs_dir / "ledger.db").write_bytes(older[0])
    shutil.rmtree(settings.log_dir)
    shutil.move(older[2], settings.log_dir)
    for _ in range(2):
        with pytest.raises(LedgerTampered, match=r"run a in MLflow holds a checkpoint of 3 .* the ledger ends after 2"):
            PrivacyLedger.of(settings).require_whole({"run a in MLflow": later})
        # Nobody else knows of it, as the witness was not asked since.
        PrivacyLedger.of(settings).require_whole({})


def test_a_checkpoint_of_another_ledger_is_refused(ledger: PrivacyLedger, tmp_path: Path):
    other = PrivacyLedger.create(at(tmp_path / "other"))
    other.register("devices", budget(max_rho=1.0), "somebody")
    with pytest.raises(PermanentError, match=r"run a in MLflow: its checkpoint is of the privacy ledger tacit"):
        ledger.require_whole({"run a in MLflow": other.checkpoint()})
    forged = ledger.checkpoint().replace("\n2\n", "\n1\n")
    with pytest.raises(PermanentError, match="run a in MLflow: its checkpoint is of"):
        ledger.require_whole({"run a in MLflow": forged})


@pytest.mark.parametrize(
    "damaged", ["", "origin\n", "origin\n1\nAAAA\n\n\u2014 origin AAAA\n", "o\n01\n\n\u2014 o o\n"]
)
@pytest.mark.parametrize("name", [CHECKPOINT, WITNESSED])
def test_a_damaged_checkpoint_is_refused(ledger: PrivacyLedger, settings: Settings, damaged: str, name: str):
    ledger.witnessed()
    (settings.log_dir / name).write_text(damaged, encoding="utf-8")
    with pytest.raises(PermanentError, match=f"{name}: damaged"):
        ledger.require_whole({})


@pytest.mark.parametrize("kept", ["the log", "the witness"])
def test_an_older_ledger_spends_nothing_again(tmp_path: Path, kept: str):
    """An old dump with the run's folder removed; and with the log and all of runs, but not the witness, put back."""
    here = replace(at(tmp_path / "home"), witness=tmp_path / "somebody else's")
    PrivacyLedger.create(here)
    stages, config = Calls().stages, launch_config()
    run_all(launch_config(name="first"), here, stages)
    older = tmp_path / "older"
    shutil.copytree(here.runs_dir, older)
    run_all(config, here, stages)
    assert len(PrivacyLedger.of(here).spends()) == 4
    if kept == "the log":
        copied(older / "ledger.db", here.runs_dir / "ledger.db")
        shutil.rmtree(here.runs_dir / launch_id(config))
        expected = rf"{here.log_dir} holds entry .* and the ledger ends at .*Restore it from a backup"
    else:
        shutil.rmtree(here.runs_dir)
        shutil.copytree(older, here.runs_dir)
        expected = r"the witness in .* has cosigned the log .* at [0-9]+ entries, and its log .* ends after"
    before, again = len(PrivacyLedger.of(here).entries()), Calls()
    for name in ("ingest_private", "fine_tune"):
        with pytest.raises(LedgerTampered, match=expected):
            runner.run_stage(name, config, launch_id(config), here, again.stages)
    assert again.made == [], "it is refused before anything is spent"
    assert len(PrivacyLedger.of(here).entries()) == before


def test_what_a_killed_process_was_writing_goes_with_the_next_write(ledger: PrivacyLedger, settings: Settings):
    ended = subprocess.Popen(["true"])
    ended.wait()
    log, witness = settings.log_dir, Path(settings.witness)
    left = [folder / f".name.{ended.pid}.tmp" for folder in (log, log / "tile" / "entries", witness)]
    of_living = log / f".name.{os.getpid()}.tmp"
    for path in (*left, of_living):
        path.touch()
    ledger.note("review", "devices", "b", "review", {"answer": "reject"})
    ledger.witnessed()
    assert [path for path in (*left, of_living) if path.exists()] == [of_living]


def test_a_reservation_is_witnessed_before_its_noise_is_drawn(settings: Settings):
    """Whoever then puts the ledger and its log back to before it is found out."""
    config, seen = launch_config(), list[int]()

    def sees(ctx):
        (kept,) = Path(settings.witness).glob("*.checkpoint")
        size = Signed.parsed(kept.read_text(encoding="utf-8")).checkpoint.size
        seen.append(size - len(PrivacyLedger.of(settings).entries()))
        raise ArithmeticError("diverged")

    stages = stages_of({"fine_tune": sees}, Stage("fine_tune", "", planned=lambda config, run: spend(0.4)))
    with pytest.raises(ArithmeticError):
        runner.run_stage("fine_tune", config, launch_id(config), settings, stages)
    assert seen == [0]


def test_an_older_copy_of_the_database_is_refused(ledger: PrivacyLedger, settings: Settings):
    older = (settings.runs_dir / "ledger.db").read_bytes()
    reserve(ledger)
    (settings.runs_dir / "ledger.db").write_bytes(older)
    with pytest.raises(LedgerTampered, match=r"log holds entry 3 .* the ledger ends at 2"):
        reserve(PrivacyLedger.of(settings), "c")


def test_a_stage_asks_before_it_computes(settings: Settings, ledger: PrivacyLedger):
    config = publishable.launch_config()
    made = publishable.stages("launch")
    forge(settings, is_no)
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
    "is a rule": "CREATE RULE more AS ON INSERT TO privacy_ledger_secrets DO INSTEAD NOTHING",
}


@pytest.mark.parametrize("which", ["does nothing", "ignores", "is off", "is a rule"])
def test_a_trigger_that_does_something_else_is_noticed(there: Settings, which: str):
    """A name says nothing: it used to be all that was looked at."""
    made, postgres = PrivacyLedger.create(there), there.ledger_url.startswith("postgresql")
    made.register("devices", budget(max_rho=1.0), "somebody")
    if which not in (POSTGRES if postgres else SQLITE):
        pytest.skip("only PostgreSQL has it")
    engine = create_engine(there.ledger_url)
    with engine.begin() as connection:
        assert trigger_problems(connection) == []
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
        here = replace(settings, ledger_url=address)
        PrivacyLedger.create(here)
        yield Database(
            here,
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
    assert any("log holds entry" in problem and "the ledger ends at" in problem for problem in told["problems"]), told
    for config in (since, launch_config(name="another")):
        for name in ("fine_tune", "ingest_private"):
            with pytest.raises(LedgerTampered, match="log holds entry"):
                runner.run_stage(name, config, launch_id(config), settings, stages)
    assert len(PrivacyLedger.of(settings).spends()) < len(before), "nothing was written to it"

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
    with pytest.raises(LedgerTampered, match="log holds entry"):
        ledger.register("others", budget(max_rho=1.0), "somebody")
    settings.log_dir.rename(tmp_path / "aside")
    with pytest.raises(LedgerTampered, match=r"the witness in .* has cosigned"):
        ledger.require_whole({})
    (kept,) = Path(settings.witness).glob("*.checkpoint")
    kept.rename(tmp_path / "aside" / kept.name)
    ledger.require_whole({})
    ledger.register("others", budget(max_rho=1.0), "somebody")
