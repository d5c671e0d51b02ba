"""Audits of releases that other launches made: as the ledger holds them, or made from private files, or none."""

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id
from pipeline.run.known import run_folder
from pipeline.run.run_dir import KEY
from pipeline.run.runner import open_run
from pipeline.run.stage import StageContext
from pipeline.stages import audit_releases, count
from pipeline.stages.audit_releases import of_another
from pipeline.stages.graph import STAGES
from reports.disclosure.findings import ReleaseAudit
from tests.helpers.launches.counting import MADE_UP, counting
from tests.helpers.launches.pipeline_launch import after_stand_ins, launch_config, run_all

ALONE = {"noise_multiplier": 1.3, "model": "counts"}
NAMES = ["key", "split", "sum", "digits", "model"]


@pytest.fixture
def made(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> StageContext:
    """A launch that released counts, in the context of another one that would take them over."""
    config: LaunchConfig = launch_config(counts=ALONE, policy={"max_rho": 1.0}, private_text=MADE_UP)
    stages = counting(config, settings, monkeypatch)
    open_run(config, launch_id(config), settings)
    run_all(config, settings, stages)
    return StageContext(config, run_folder(settings, "another"), settings, "count", None, config.population)


def audited(made: StageContext, *, afresh: bool) -> ReleaseAudit | None:
    return of_another(made, launch_id(made.config), launch_id(made.config), afresh)


def folder(made: StageContext, half: str, stage: str) -> Path:
    return made.settings.runs_dir / launch_id(made.config) / half / stage


def run_its_audit(made: StageContext) -> None:
    opened = ("count", "discover", "build_vocabulary")
    audit = replace(STAGES["audit_releases"], needs=(), may_need=opened, follows=())
    stages = after_stand_ins(("ingest_public", "ingest_private", "build_vocabulary", "plan"), count.count)
    run_all(made.config, made.settings, {**stages, "audit_releases": audit})


def test_what_nobody_audited_is_audited_from_the_private_files_of_the_launch_that_made_it(made: StageContext) -> None:
    assert audited(made, afresh=False) is None
    now = audited(made, afresh=True)
    assert now is not None
    assert (now.made_by, now.cited) == (launch_id(made.config), None)
    assert [verdict.name for verdict in now.verdicts if verdict.passed] == NAMES


def test_what_was_audited_is_cited_as_the_ledger_holds_it(made: StageContext) -> None:
    run_its_audit(made)
    before = audited(made, afresh=False)
    assert before is not None
    assert before.cited == launch_id(made.config)
    assert [verdict.name for verdict in before.verdicts if verdict.passed] == NAMES
    path = folder(made, "public", "audit_releases") / "result.json"
    stated = path.read_text("utf-8")
    path.write_text(stated.replace('"passed": true', '"passed": false', 1), "utf-8")
    assert audited(made, afresh=False) is None
    path.write_text(stated, "utf-8")
    shutil.rmtree(folder(made, "private", "count"))
    assert audited(made, afresh=False) == before, "a verdict outlives the text that it is about"


def test_a_record_that_lacks_a_verdict_is_no_audit(made: StageContext, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as then:
        then.setattr(audit_releases, "audited", lambda ctx, release: ())
        run_its_audit(made)
    assert audited(made, afresh=False) is None


def test_without_its_private_files_there_is_no_audit(made: StageContext) -> None:
    shutil.rmtree(folder(made, "private", "count"))
    assert audited(made, afresh=True) is None


def test_another_key_than_the_committed_one_speaks_against_it(made: StageContext) -> None:
    (folder(made, "private", "count") / KEY).write_bytes(hashlib.sha256(b"another").digest())
    now = audited(made, afresh=True)
    assert now is not None
    assert [verdict.name for verdict in now.verdicts if not verdict.passed] == ["key", "sum"]
