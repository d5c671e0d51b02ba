"""What is said of a release used again: before anything is run, by verification, and by the ledger itself."""

import json
import shutil
from types import SimpleNamespace

import pytest

from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run.reuse.foreseen import Foreseen, foreseen
from pipeline.run.run_dir import RESULT
from pipeline.run.sharing import is_public
from pipeline.stages.graph import STAGES
from tests.helpers.launches.pipeline_launch import launch_config
from tests.helpers.launches.private_stages import (
    FIRST,
    NAMES,
    SECOND,
    THIRD,
    A,
    B,
    C,
    Private,
    changed_record,
    changed_words,
    checked,
    entries,
    run,
)


def look(private: Private, settings: Settings, config: LaunchConfig) -> list[Foreseen]:
    return foreseen(config, launch_id(config), settings, private.stages)


@pytest.mark.slow
def test_what_will_be_taken_over_is_known_before(private: Private, settings: Settings):
    assert look(private, settings, FIRST) == []
    run(private, settings, FIRST)
    before = entries(settings, "reserve", "commit", "reuse", "register")
    told = look(private, settings, SECOND)
    assert [(each.stage, each.launch_id, each.problem) for each in told] == [(name, A, "") for name in NAMES]
    assert str(told[1]).startswith(f"discover: taken over from launch {A}, which spent epsilon 1 per typed word on it")
    changed = look(private, settings, launch_config(name="changed", discovery={"epsilon0": 2.0}))
    assert [each.stage for each in changed] == ["ingest_private"]
    assert entries(settings, "reserve", "commit", "reuse", "register") == before
    assert not (settings.runs_dir / B).exists(), "looking makes nothing"
    run(private, settings, SECOND)
    assert look(private, settings, SECOND) == [], "it is done"
    changed_words(settings.runs_dir / A)
    changed_words(settings.runs_dir / B)
    discovered = next(each for each in look(private, settings, THIRD) if each.stage == "discover")
    assert "so it is made anew" in str(discovered)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("another launch", "paid for it"),
        ("another release", "not what launch"),
        ("the source's record", "was changed"),
        ("no re-use", "no re-use of it"),
    ],
)
def test_a_forged_re_use_does_not_verify(private: Private, settings: Settings, what: str, message: str):
    run(private, settings, FIRST)
    run(private, settings, SECOND)
    path = settings.runs_dir / B / "public" / "discover" / RESULT
    content = json.loads(path.read_text(encoding="utf-8"))
    if what == "another launch":
        content["reused_from"] = C
    elif what == "another release":
        content["result"]["words_sha256"] = "0" * 64
    elif what == "the source's record":
        changed_record(settings.runs_dir / A)
    else:
        content["launch_id"] = "elsewhere"
        shutil.copytree(settings.runs_dir / B, settings.runs_dir / "elsewhere")
        path = settings.runs_dir / "elsewhere" / "public" / "discover" / RESULT
    path.write_text(json.dumps(content), encoding="utf-8")
    check = checked(settings, path.parents[2].name)
    assert check.passed is False
    assert message in check.detail


def test_a_forged_entry_is_found_by_the_ledger_itself(private: Private, settings: Settings):
    run(private, settings, FIRST)
    ledger = PrivacyLedger(settings.ledger_url)
    (commit,) = [entry for entry in ledger.entries() if entry.kind == "commit"]
    ledger.note("reuse", "chitchat:people", B, "discover", {"launch": A, "commit": commit.hash})
    assert ledger.verify() == []
    ledger.note("reuse", "chitchat:people", C, "count", {"launch": A, "commit": commit.hash})
    (problem,) = ledger.verify()
    assert "names no commit before it" in problem


def test_training_is_never_taken_over() -> None:
    taken_over = {name for name, stage in STAGES.items() if stage.reads and not is_public(name, STAGES)}
    assert taken_over == {"ingest_private", "discover", "build_vocabulary", "adapt", "count"}


def test_what_decides_the_answers_decides_whose_words_they_are() -> None:
    """All of discovery's block but what is done with the words afterwards, and of a test's noise its seed."""
    reads = STAGES["discover"].reads
    afterwards = {"discovery.blocklist"}
    asked = {f"discovery.{name}" for name in type(FIRST.discovery).model_fields} - afterwards
    assert set(reads(FIRST)) == asked | {"locale", "mechanism.randomness"}
    assert set(reads(launch_config(mechanism={"randomness": "seeded"}))) == {*reads(FIRST), "seed"}


def test_people_decide_on_words_launch_by_launch() -> None:
    results = {
        "discover": {"words_sha256": "w"},
        "ingest_private": {"population": "p", "store_digest": "d", "split": "s"},
    }
    run_dir = SimpleNamespace(result=results.__getitem__, outputs=lambda stage: {})

    def given(**changes: object) -> object:
        ctx = SimpleNamespace(config=launch_config(vocabulary=changes), run=run_dir)
        return STAGES["build_vocabulary"].given(ctx)

    assert given(review=False) == {"words": "w", "blocked": None, "ingest_public": {}, **results["ingest_private"]}
    assert given(review=True) is None
