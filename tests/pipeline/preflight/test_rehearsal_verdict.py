"""Which verdict is a file's own, and that nothing is spent on a run that a rehearsal found not worth it."""

from collections.abc import Iterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id, load_launch
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.preflight import rehearsal_verdict
from pipeline.preflight.rehearsal import typed_streams
from pipeline.run.run_dir import RunDir
from pipeline.run.runner import run_stage
from pipeline.run.stage import Stages
from pipeline.stages import plan as planning_stage
from pipeline.stages.graph import STAGES
from pretrain.packaged import PackagedText
from pretrain.vocabulary import EOS, SPECIALS, UNK, Vocabulary
from tests.helpers.launches.pipeline_launch import Counted, launch_config
from tests.helpers.launches.rehearsals import PLANNING, written
from tests.helpers.launches.stages import stages_of


def config(**changes: object) -> LaunchConfig:
    return launch_config(**({"planning": PLANNING} | changes))


def test_a_verdict_is_found_by_what_it_depends_on(settings: Settings) -> None:
    verdict = written(config(), settings.runs_dir, 0.02)
    assert rehearsal_verdict.find(config(), settings.runs_dir) == verdict
    # What no rehearsal looks at, or what it is there to choose, is another launch but no other verdict.
    same = [
        config(report={"contact": "someone else"}),
        config(server={"learning_rate": 0.5}),
        config(mechanism={"noise_multiplier": 9.0}),
        config(audit={"repeats": 2}),
    ]
    assert {launch_id(each) for each in same} & {launch_id(config())} == set()
    assert all(rehearsal_verdict.find(each, settings.runs_dir) == verdict for each in same)
    others = [
        config(planning=PLANNING | {"population_estimate": 61}),
        config(planning=PLANNING | {"target_rho": 0.4}),
        config(policy={"min_top1_gain": 0.01}),
        config(local_training={"learning_rate": 0.2}),
        config(vocabulary={"base_size": 21}),
        config(private_text={"max_words_per_device": 90}),
        config(seed=8),
        launch_config(),
    ]
    assert all(rehearsal_verdict.find(each, settings.runs_dir) is None for each in others)


def test_pseudo_users_type_what_pretraining_does_not_read() -> None:
    # The launch's own private text is theirs alone.
    assert rehearsal_verdict.typed(config()) is None
    people = {"source": "files", "paths": ["people.parquet"]}
    text = rehearsal_verdict.typed(config(private_text=people))
    assert text is not None
    assert text.name == "typed chat (chitchat-dataset 0.9.0)"
    assert rehearsal_verdict.typed(config(private_text=people, locale="fr-FR")) is None


def test_a_start_that_has_read_chat_is_rehearsed_without_it(settings: Settings) -> None:
    people = {"source": "files", "paths": ["people.parquet"]}
    launch = config(private_text=people, public_text={"source": "sample-with-chat"})
    played = rehearsal_verdict.played(launch)
    assert played == config(private_text=people) == rehearsal_verdict.played(played)
    # Its verdict is that of the launch.
    assert rehearsal_verdict.find(launch, settings.runs_dir) is None
    verdict = written(played, settings.runs_dir, 0.02)
    assert rehearsal_verdict.find(launch, settings.runs_dir) == verdict


def test_typed_text_trains_and_evaluates_apart_and_is_read_as_far_as_needed() -> None:
    def said(folder: Path) -> Iterator[str]:
        return (f"number {number} is said. yes" for number in range(40))

    text = PackagedText("gensim", metadata.version("gensim"), "gensim", "made up", "none", said)
    words = Vocabulary((*SPECIALS, "is", "number"))
    train, judge = typed_streams(text, "en-US", words, (10, 1000))
    owner = [words.index["number"], EOS, words.index["is"], UNK, EOS, UNK, EOS]
    assert [train.owner(number).tolist() for number in range(len(train))] == 3 * [owner]
    assert [judge.owner(number).tolist() for number in range(len(judge))] == 4 * [owner]


def test_the_newest_verdict_counts(settings: Settings) -> None:
    written(config(), settings.runs_dir, 0.02)
    newest = written(config(report={"contact": "a colleague"}), settings.runs_dir, -0.02)
    assert rehearsal_verdict.find(config(), settings.runs_dir) == newest


def test_a_rehearsal_beside_its_launch_file_is_used_until_a_field_changes(settings: Settings) -> None:
    file = settings.home / "here.yaml"
    assert rehearsal_verdict.kept(config(), file) is None
    verdict = written(config(), settings.runs_dir, 0.02)
    path = rehearsal_verdict.keep(verdict, file, None)
    assert path == settings.home / "rehearsals" / "here.json"
    assert rehearsal_verdict.kept(config(), file) == rehearsal_verdict.Kept(path, "", verdict)
    assert rehearsal_verdict.kept(config(server={"learning_rate": 0.5}), file).verdict == verdict
    assert rehearsal_verdict.kept(config(seed=8), file) == rehearsal_verdict.Kept(path, "", None)
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match=r"here\.json: not a rehearsal; run 'tacit rehearse .* --keep' again"):
        rehearsal_verdict.kept(config(), file)


def test_another_file_s_start_belongs_to_what_a_rehearsal_depends_on(settings: Settings) -> None:
    """Language, text, vocabulary and model are the other file's, and a change there is noticed; the plan is its own."""
    file, start = settings.home / "here.yaml", settings.home / "starts" / "other.yaml"
    start.parent.mkdir()

    def write_start(**changes: object) -> LaunchConfig:
        made = launch_config(**({"name": "other", "locale": "fr-FR", "seed": 9} | changes))
        start.write_text(yaml.safe_dump(made.model_dump(mode="json", exclude_unset=True)), encoding="utf-8")
        return load_launch(start)

    played = rehearsal_verdict.on_start(config(), write_start())
    assert (played.seed, played.locale, played.planning) == (9, "fr-FR", config().planning)
    verdict = written(played, settings.runs_dir, 0.02)
    path = rehearsal_verdict.keep(verdict, file, start)
    assert rehearsal_verdict.kept(config(), file) == rehearsal_verdict.Kept(path, "starts/other.yaml", verdict)
    # The launch's own start plays no part, its plan does.
    assert rehearsal_verdict.kept(config(seed=8), file).verdict == verdict
    assert rehearsal_verdict.kept(config(planning=PLANNING | {"target_rho": 0.4}), file).verdict is None
    write_start(vocabulary={"base_size": 21})
    assert rehearsal_verdict.kept(config(), file).verdict is None
    start.unlink()
    assert rehearsal_verdict.kept(config(), file).verdict is None
    # On the launch's own start nothing was rehearsed, and nothing is refused.
    assert rehearsal_verdict.require_worth(config(), settings.runs_dir) is None


@pytest.mark.parametrize("damaged", ["", "[]", '{"inputs": 3', "{}"])
def test_a_damaged_verdict_stops_a_launch_and_is_named(settings: Settings, damaged: str) -> None:
    written(config(), settings.runs_dir, -0.02)
    (path,) = settings.runs_dir.glob("*/public/rehearsal/verdict.json")
    path.write_text(damaged, encoding="utf-8")
    with pytest.raises(ValueError, match=r"verdict\.json: not a verdict of a rehearsal; delete it"):
        rehearsal_verdict.require_worth(config(), settings.runs_dir)


def test_only_exactly_the_run_that_was_rehearsed_is_judged(settings: Settings) -> None:
    verdict = written(config(), settings.runs_dir, -0.02, better=0.02)
    assert rehearsal_verdict.outcome_of_file(verdict, config()) is verdict.outcomes[0]
    assert rehearsal_verdict.outcome_of_file(verdict, config(server={"learning_rate": 0.5})) is verdict.outcomes[1]
    assert rehearsal_verdict.outcome_of_file(verdict, config(mechanism={"noise_multiplier": 9.0})) is None
    with pytest.raises(ValueError, match="Another split pays"):
        rehearsal_verdict.require_worth(config(), settings.runs_dir)
    assert rehearsal_verdict.require_worth(config(server={"learning_rate": 0.5}), settings.runs_dir) is not None
    assert rehearsal_verdict.require_worth(config(mechanism={"noise_multiplier": 9.0}), settings.runs_dir) is None


def test_a_smaller_goal_in_the_file_is_another_verdict(settings: Settings) -> None:
    written(config(), settings.runs_dir, -0.02)
    with pytest.raises(ValueError, match="This population is too small"):
        rehearsal_verdict.require_worth(config(), settings.runs_dir)
    assert rehearsal_verdict.require_worth(config(policy={"min_top1_gain": -0.1}), settings.runs_dir) is None


def staged(monkeypatch: pytest.MonkeyPatch) -> Stages:
    """The plan stage itself, and discovery's spend; what they read is a stand-in."""
    devices = Counted.model_construct(value=1)
    monkeypatch.setattr(RunDir, "result", lambda run, stage: {"devices_by_split": {"train": 60, "test": 60}})
    spends = replace(STAGES["discover"], code=())
    return stages_of({"plan": planning_stage.plan, "discover": lambda ctx: devices}, spends)


def test_no_go_refuses_before_anything_is_spent(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    written(config(), settings.runs_dir, -0.02)
    stages = staged(monkeypatch)
    for name in ("discover", "plan"):
        with pytest.raises(ValueError, match=r"says no\. .* too small: 60 devices that train gain at most -2\.00"):
            run_stage(name, config(), launch_id(config()), settings, stages)
    assert list(PrivacyLedger.of(settings).spends()) == []


@pytest.mark.parametrize(
    ("gain", "headroom", "expected"),
    [(0.02, 0.05, (True, "+2.00 points (± 0.20)")), (-0.02, 0.0, (False, "This rehearsal cannot tell"))],
    ids=["go", "inconclusive"],
)
def test_the_plan_records_what_was_rehearsed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, gain: float, headroom: float, expected: tuple[bool, str]
) -> None:
    written(config(), settings.runs_dir, gain, headroom)
    result = run_stage("plan", config(), launch_id(config()), settings, staged(monkeypatch)).result
    assert result["rehearsed"] is expected[0]
    assert expected[1] in result["verdict"]


def test_without_a_rehearsal_the_plan_goes_on_and_says_so(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    result = run_stage("plan", config(), launch_id(config()), settings, staged(monkeypatch)).result
    assert (result["rehearsed"], result["verdict"]) == (False, None)
    assert "this run was not rehearsed" in caplog.text
