"""Stages that follow private data are taken over by later launches, and each release of them is paid for once."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from pipeline.ground.errors import BudgetExceeded
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.releases.local_words import local_discovery
from pipeline.run import cache, runner
from pipeline.run.cache import CacheHit, audit_digest, cited_audit, preview, reused_stages
from pipeline.run.known import run_folder
from pipeline.run.run_dir import RESULT, RunDir
from pipeline.run.runner import StageOutcome
from pipeline.run.stage import StageContext
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


def words(settings: Settings, run_id: str) -> bytes:
    return (settings.runs_dir / run_id / "private" / "discover" / "words.json").read_bytes()


@pytest.mark.slow
def test_another_noise_multiplier_asks_nobody_again(private: Private, settings: Settings):
    first = run(private, settings, FIRST)
    second = run(private, settings, SECOND)
    ledger = PrivacyLedger.of(settings)
    assert private.made == list(NAMES)
    assert ledger.total("chitchat:people", "item") == 1.0
    assert entries(settings, "reserve", "commit", "reuse") == [
        (A, "discover", "reserve"),
        (A, "discover", "commit"),
        (B, "discover", "reuse"),
    ]
    assert ledger.verify([receipt for record in second for receipt in record.ledger.values()]) == []
    assert words(settings, B) == words(settings, A)
    for record, source in zip(second, first, strict=True):
        assert (record.launch_id, record.reused_from, source.reused_from) == (B, A, None)
        assert None is not record.content != source.content is not None, "one key would tell that the text is one"
        assert record.outputs == source.outputs
        assert record.result == source.result | {"spend": None}
        assert runner.find_done(record.stage, SECOND, B, settings) == StageOutcome(record, skipped=True)
    # What devices answered, and the key under which they did, stay where they are.
    left = {path.name for path in (settings.runs_dir / B / "private" / "discover").iterdir()}
    assert left == {"words.json", "audit.json", ".lock", ".manifest.json"}
    assert checked(settings, B).passed
    assert "epsilon 1 per item" in checked(settings, B).detail


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "made_again"),
    [
        ({"vocabulary": {"max_new_words": 3}}, ["build_vocabulary"]),
        ({"vocabulary": {"filters": ["digits"]}}, ["build_vocabulary"]),  # filters, and no device, judge words again
        ({"discovery": {"layers": 5}}, []),  # this small discovery does not read it
        ({"discovery": {"epsilon0": 2.0}}, ["discover", "build_vocabulary"]),
        ({"mechanism": {"randomness": "seeded"}}, ["discover", "build_vocabulary"]),
        ({"private_text": {"max_words_per_device": 99}}, ["ingest_private"]),
        ({"private_text": {"name": "others"}}, list(NAMES)),
    ],
    ids=str,
)
def test_what_a_stage_reads_makes_it_another(
    private: Private, settings: Settings, changes: dict, made_again: list[str]
):
    run(private, settings, FIRST)
    private.made.clear()
    changed = launch_config(name="changed", **changes)
    run(private, settings, changed)
    assert private.made == made_again
    spent = entries(settings, "commit")
    assert ((launch_id(changed), "discover", "commit") in spent) == ("discover" in made_again)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["text", "code"])
def test_other_text_or_code_is_not_the_same(
    private: Private, settings: Settings, monkeypatch: pytest.MonkeyPatch, what: str
):
    run(private, settings, FIRST)
    if what == "text":
        private.text.write_text("something else", encoding="utf-8")
    else:
        monkeypatch.setattr(cache, "code_digest", lambda root, places: "other")
    run(private, settings, SECOND)
    assert private.made == [*NAMES, *NAMES]
    assert PrivacyLedger.of(settings).total("chitchat:people", "item") == 2.0


@pytest.mark.slow
def test_a_release_that_failed_its_audit_is_made_anew(
    private: Private, settings: Settings, caplog: pytest.LogCaptureFixture
):
    run(private, settings, FIRST)
    private.honest = False
    record = run(private, settings, SECOND)[1]
    assert private.audited == [(A, True)]
    assert record.reused_from is None
    assert entries(settings, "commit") == [(A, "discover", "commit"), (B, "discover", "commit")]
    assert "the audit of its release failed (sum)" in caplog.text


@pytest.mark.slow
def test_a_release_that_cannot_be_audited_any_more_is_made_anew(
    private: Private, settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    run(private, settings, FIRST)
    monkeypatch.setattr(private, "audit", lambda *asked: None)
    assert run(private, settings, SECOND)[1].reused_from is None
    assert "its release was never audited, and its private files no longer allow" in caplog.text


@pytest.mark.slow
def test_a_source_that_ran_again_is_the_same_release(private: Private, settings: Settings):
    """Its record was lost, so it made the same words once more, in another record."""
    run(private, settings, FIRST)
    run(private, settings, SECOND)
    for launch in (A, B):
        (settings.runs_dir / launch / "public" / "discover" / RESULT).unlink()
    # Its time may be the same to two digits.
    with mock.patch.object(runner, "this_hour", return_value="2027-01-01T00:00:00+00:00"):
        run(private, settings, FIRST)
    assert run(private, settings, SECOND)[1].reused_from == A
    assert private.made == [*NAMES, "discover"]
    assert entries(settings, "reserve", "commit", "reuse") == [
        (A, "discover", "reserve"),
        (A, "discover", "commit"),
        (B, "discover", "reuse"),
    ]
    assert checked(settings, B).passed


@pytest.mark.slow
def test_a_record_does_not_hold_over_the_private_files_of_an_interrupted_attempt(private: Private, settings: Settings):
    text = private.text.read_text(encoding="utf-8")

    def put_text(content: str) -> None:
        private.text.write_text(content, encoding="utf-8")
        for launch in (A, B, C):
            (settings.runs_dir / launch / "public" / "ingest_private" / RESULT).unlink(missing_ok=True)

    remove = cache.remove_folder

    def cut_off(folder: Path) -> None:
        if folder.name == "discover":
            raise ArithmeticError("cut off")
        remove(folder)

    run(private, settings, FIRST)
    run(private, settings, SECOND)
    put_text("other text")
    run(private, settings, THIRD)
    with mock.patch.object(cache, "remove_folder", side_effect=cut_off), pytest.raises(ArithmeticError):
        run(private, settings, SECOND)
    put_text(text)
    run(private, settings, SECOND)
    assert words(settings, B) == words(settings, A)


@pytest.mark.slow
def test_a_re_use_cites_the_audit_in_the_ledger(private: Private, settings: Settings):
    run(private, settings, FIRST)
    run(private, settings, SECOND)
    ledger, there = PrivacyLedger.of(settings), run_folder(settings, B)
    cited = cited_audit(there, "discover", ledger)
    assert cited is not None
    assert (cited.made_by, [verdict.passed for verdict in cited.verdicts]) == (A, [True])
    noted = ledger.noted("reuse", B, "discover")
    assert noted is not None
    assert noted.names("audit") == audit_digest(cited)
    path = there.private("discover") / "audit.json"
    path.write_text(path.read_text("utf-8").replace(A, C), "utf-8")
    assert cited_audit(there, "discover", ledger) is None


def changed_words_and_seal(launch: Path) -> None:
    changed_words(launch)
    RunDir(launch.parent, launch.name).seal_private("discover")


def lost_words(launch: Path) -> None:
    (launch / "private" / "discover" / "words.json").unlink()


def erased(launch: Path) -> None:
    shutil.rmtree(launch / "private")


DAMAGES = (changed_words, changed_words_and_seal, lost_words, erased, changed_record)


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.__name__)
def test_a_tampered_or_erased_source_is_refused(
    private: Private, settings: Settings, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], None]
):
    run(private, settings, FIRST)
    damage(settings.runs_dir / A)
    private.made.clear()
    record = run(private, settings, SECOND)[1]
    assert "discover" in private.made
    assert record.reused_from is None
    assert entries(settings, "reuse") == []
    assert f"launch {A} has the same result, but it is not reused: its" in caplog.text
    assert b"planted" not in words(settings, B)


@pytest.mark.slow
def test_a_source_that_nobody_paid_for_is_refused(
    private: Private, settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    """As of another installation, whose folder was copied here."""
    run(private, settings, FIRST)
    monkeypatch.setattr(cache, "commit_of", lambda paid, stage, entries: None)
    assert run(private, settings, SECOND)[1].reused_from is None


@pytest.mark.slow
def test_a_source_that_paid_something_else_is_refused(private: Private, settings: Settings):
    run(private, settings, FIRST)
    stages = private.stages
    dearer = replace(stages["discover"], planned=lambda config, run: local_discovery(2.0, 1, 2.0, 5e-7, "planned"))
    runner.run_stage("ingest_private", SECOND, B, settings, stages)
    changed = runner.run_stage("discover", SECOND, B, settings, {**stages, "discover": dearer})
    assert changed.record.reused_from is None


def with_budget(config: LaunchConfig, ceiling: float) -> LaunchConfig:
    policy = config.policy.model_copy(update={"population_max_discovery_epsilon": ceiling})
    return config.model_copy(update={"policy": policy})


@pytest.mark.slow
def test_a_used_up_budget_allows_what_is_paid_for_and_nothing_else(private: Private, settings: Settings):
    first, second, third = (with_budget(config, 1.0) for config in (FIRST, SECOND, THIRD))
    run(private, settings, first)
    run(private, settings, second)
    assert PrivacyLedger.of(settings).total("chitchat:people", "item") == 1.0
    for launch in (first, second):
        erased(settings.runs_dir / launch_id(launch))
    with pytest.raises(BudgetExceeded, match="epsilon per typed word"):
        run(private, settings, third)
    assert private.made.count("discover") == 1


def test_a_launch_that_asks_for_more_than_its_population_has_takes_nothing_over(private: Private, settings: Settings):
    run(private, settings, with_budget(FIRST, 1.0))
    with pytest.raises(BudgetExceeded, match="a launch can only ask for less"):
        run(private, settings, with_budget(SECOND, 5.0))


@pytest.mark.slow
def test_what_was_taken_over_outlives_the_launch_that_paid(private: Private, settings: Settings):
    run(private, settings, FIRST)
    run(private, settings, SECOND)
    erased(settings.runs_dir / A)
    third = run(private, settings, THIRD)
    assert private.made == list(NAMES)
    assert [record.reused_from for record in third] == [A, A, A], "who paid, not who handed it on"
    assert checked(settings, C).passed
    assert PrivacyLedger.of(settings).verify() == []


@pytest.mark.slow
def test_devices_that_were_asked_are_not_forgotten(
    private: Private, settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    """A discovery that was interrupted goes on, although another launch made the same meanwhile."""

    def killed(ctx: StageContext) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(private, "discover", killed)
    with pytest.raises(KeyboardInterrupt):
        run(private, settings, SECOND)
    monkeypatch.undo()
    run(private, settings, FIRST)
    assert run(private, settings, SECOND)[1].reused_from is None
    assert PrivacyLedger.of(settings).total("chitchat:people", "item") == 2.0


@pytest.mark.slow
def test_a_crash_on_the_way_is_repaired(private: Private, settings: Settings, monkeypatch: pytest.MonkeyPatch):
    run(private, settings, FIRST)
    runner.run_stage("ingest_private", SECOND, B, settings, private.stages)

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pipeline.run.runner.write_down", killed)
    with pytest.raises(KeyboardInterrupt):
        runner.run_stage("discover", SECOND, B, settings, private.stages)
    monkeypatch.undo()
    assert run(private, settings, SECOND)[1].reused_from == A
    assert len(entries(settings, "reuse")) == 1
    assert checked(settings, B).passed


def test_a_key_tells_nothing_of_the_text(private: Private, settings: Settings):
    """Of the same text and configuration, in another installation."""
    content = run(private, settings, FIRST)[0].content
    ledger = PrivacyLedger.of(settings)
    secret = ledger.split_secret("chitchat:people")
    ctx = StageContext(FIRST, run_folder(settings, A), settings, "ingest_private", None, "chitchat:people")
    key = cache.content_key(ctx, private.stages)
    assert key != content == cache.shown_key(key, ctx, A, private.stages)
    assert content != cache.shown_key(key, ctx, B, private.stages)
    other = type("Other", (PrivacyLedger,), {"split_secret": lambda self, name: bytes(reversed(secret))})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "PrivacyLedger", other)
        assert cache.content_key(ctx, private.stages) != key


def test_a_stage_sees_no_field_that_it_does_not_say_it_reads(
    private: Private, settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(private, "ingest_private", lambda ctx: ctx.config.seed)
    with pytest.raises(AttributeError, match="seed"):
        run(private, settings, FIRST)


@pytest.mark.slow
def test_half_of_it_begun_on_other_text_is_not_used_again(private: Private, settings: Settings):
    folder = run_folder(settings, A).private("ingest_private") / "store"
    folder.mkdir()
    (folder / "words.txt").write_text("other", encoding="utf-8")
    assert run(private, settings, FIRST)[0].content is None


def look(private: Private, settings: Settings, config: LaunchConfig) -> list[CacheHit]:
    return preview(config, launch_id(config), settings, private.stages)


@pytest.mark.slow
def test_what_will_be_taken_over_is_known_before(private: Private, settings: Settings):
    assert look(private, settings, FIRST) == []
    run(private, settings, FIRST)
    before = entries(settings, "reserve", "commit", "reuse", "register")
    told = look(private, settings, SECOND)
    assert [(each.stage, each.launch_id, each.problem) for each in told] == [(name, A, "") for name in NAMES]
    assert str(told[1]).startswith(f"discover: reused from launch {A} (spent epsilon 1 per typed word on ")
    changed = look(private, settings, launch_config(name="changed", discovery={"epsilon0": 2.0}))
    assert [each.stage for each in changed] == ["ingest_private"]
    assert entries(settings, "reserve", "commit", "reuse", "register") == before
    assert not (settings.runs_dir / B).exists(), "looking makes nothing"
    run(private, settings, SECOND)
    assert reused_stages(look(private, settings, SECOND)) == set(NAMES), "they spend nothing again"
    assert look(private, settings, FIRST) == [], "it has spent"
    changed_words(settings.runs_dir / A)
    changed_words(settings.runs_dir / B)
    discovered = next(each for each in look(private, settings, THIRD) if each.stage == "discover")
    assert "it runs again" in str(discovered)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("another launch", "paid for it"),
        ("another release", "differs from the release of launch"),
        ("the source's record", "was changed"),
        ("no re-use", "no entry of its reuse"),
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
    ledger = PrivacyLedger.of(settings)
    (commit,) = [entry for entry in ledger.entries() if entry.kind == "commit"]
    ledger.note("reuse", "chitchat:people", B, "discover", {"launch": A, "commit": commit.hash})
    assert ledger.verify() == []
    ledger.note("reuse", "chitchat:people", C, "count", {"launch": A, "commit": commit.hash})
    (problem,) = ledger.verify()
    assert "names no commit before it" in problem


def test_what_decides_the_answers_decides_whose_words_they_are() -> None:
    """All of discovery's block but what is done with the words afterwards, and of a test's noise its seed."""
    reads = STAGES["discover"].reads
    afterwards = {"discovery.blocklist"}
    asked = {f"discovery.{name}" for name in type(FIRST.discovery).model_fields} - afterwards
    assert set(reads(FIRST)) == asked | {"locale", "mechanism.randomness"}
    assert set(reads(launch_config(mechanism={"randomness": "seeded"}))) == {*reads(FIRST), "seed"}


def test_people_decide_on_words_launch_by_launch() -> None:
    results = {"discover": {"words_sha256": "w"}}
    run_dir = SimpleNamespace(result=results.__getitem__, outputs=lambda stage: {})

    def given(**changes: object) -> object:
        ctx = SimpleNamespace(config=launch_config(vocabulary=changes), run=run_dir)
        return STAGES["build_vocabulary"].given(ctx)

    assert given(review=False) == {"words": "w", "blocked": None, "ingest_public": {}}
    assert given(review=True) is None
