"""An update under launches: the ledger goes to the next version, made up here, and one worker is left behind.

One launch trains while the ledger is updated, another waits for its reviewers. The old worker is refused for the time
being; the new one ends both, with the ids, keys, bindings and spends that they had.
"""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from pipeline.ground.errors import TEMPORARY, LaunchError, LedgerNewer, exit_code
from pipeline.ground.settings import Settings, account
from pipeline.launch.config import launch_id
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.migrations import versioning
from pipeline.publication.registry import Registry
from pipeline.run import runner
from pipeline.run.stage import StageContext
from tests.helpers.launches import publishable
from tests.helpers.launches.command import answered
from tests.helpers.launches.pipeline_launch import Calls, Counted, launch_config
from tests.helpers.launches.spends import budget
from tests.helpers.launches.stages import running

NEXT = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "2", "1"


def upgrade():
    op.create_table("privacy_ledger_next", sa.Column("id", sa.Integer, primary_key=True))
    op.add_column("privacy_ledger_secrets", sa.Column("next", sa.Text, nullable=False, server_default="none"))
"""
Newer = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def newer(tmp_path: Path) -> Newer:
    """A block in which this process is the next version of tacit."""
    folder = tmp_path / "migrations"
    shutil.copytree(Path(versioning.__file__).parent, folder)
    (folder / "versions" / "r2_next.py").write_text(NEXT, encoding="utf-8")

    @contextmanager
    def block() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(versioning, "__file__", str(folder / "versioning.py"))
            patch.setattr(versioning, "REVISIONS", ("1", "2"))
            yield

    return block


def content(settings: Settings) -> list[tuple]:
    with sqlite3.connect(settings.runs_dir / "ledger.db") as database:
        return database.execute("SELECT * FROM privacy_ledger ORDER BY seq").fetchall()


def test_a_stage_that_an_update_overtakes_commits_by_a_new_worker_what_it_reserved(
    settings: Settings, newer: Newer
) -> None:
    config, calls = launch_config(), Calls()
    before = list[tuple]()

    def overtaken(ctx: StageContext) -> Counted:
        before.extend(content(settings))
        with newer():
            assert PrivacyLedger.of(settings).verify() == []
        return calls.fine_tune(ctx)

    for name in ("ingest_private", "plan"):
        runner.run_stage(name, config, launch_id(config), settings, calls.stages)
    for stages in (running(calls.stages, fine_tune=overtaken), calls.stages):
        with pytest.raises(LedgerNewer, match=r"tables of version 2, .* a newer tacit has updated it") as refused:
            runner.run_stage("fine_tune", config, launch_id(config), settings, stages)
        assert exit_code(refused.value) == TEMPORARY
    assert content(settings) == before, "neither the update nor the old worker wrote an entry"
    with newer():
        done = runner.run_stage("fine_tune", config, launch_id(config), settings, calls.stages)
        ledger = PrivacyLedger.of(settings)
        assert [entry.kind for entry in ledger.spends()] == ["reserve", "commit"]
        assert ledger.verify() == []
    assert content(settings)[: len(before)] == before
    assert len(set(calls.keys)) == 1, "the same noise"
    assert done.record.ledger["reserve"] in before[-1]


def test_a_ledger_that_was_open_during_an_update_is_not_written_to(settings: Settings, newer: Newer) -> None:
    ledger = PrivacyLedger.of(settings)
    with newer():
        PrivacyLedger.of(settings)
    before = content(settings)
    with pytest.raises(LedgerNewer, match="tables of version 2"):
        ledger.register("people", budget(max_rho=1.0), "somebody")
    assert content(settings) == before


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType.*:UserWarning")
def test_a_launch_that_waits_through_an_update_is_answered_and_published(
    tracked: Settings, tmp_path: Path, newer: Newer
) -> None:
    with pytest.raises(LaunchError, match="is waiting"):
        publishable.launch(tracked, tmp_path, reviewers=[account()])
    (run_id,) = [path.parents[2].name for path in tracked.runs_dir.glob("*/public/launch/launch.json")]
    with newer():
        PrivacyLedger.of(tracked)
    before = content(tracked)
    yes = ("review", run_id, "--answer", "approve", "--reason", "fine")
    assert "a newer tacit has updated it" in answered(tracked.home, *yes, code=TEMPORARY)["error"]
    assert content(tracked) == before
    with newer():
        answered(tracked.home, *yes)
        assert publishable.launch(tracked, tmp_path, reviewers=[account()])["run_id"] == run_id
    assert content(tracked)[: len(before)] == before
    assert Registry(tracked).alias(publishable.NAME, "champion") is not None
