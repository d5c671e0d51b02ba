"""Gates and MLflow's numbers follow from the comparison."""

from dataclasses import replace
from pathlib import Path

import pytest

from evaluation.comparison import verdicts
from evaluation.comparison.intervals import AbResult, ArmMetric, Difference, Estimate
from evaluation.comparison.results import Comparison, SliceRow
from evaluation.comparison.slices import HeadShare
from pipeline.ground import settings
from pipeline.ground.errors import PermanentError
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.registry import PublishedModel
from pipeline.run.run_dir import RunDir, StageRecord
from pipeline.run.stage import StageContext
from pipeline.stages.ab_inputs import Baseline
from pipeline.stages.comparison import PUBLIC_TEXT, ab_result, attempt_of, described
from pipeline.verify import replay
from tests.helpers.launches.installed import at
from tests.helpers.launches.pipeline_launch import launch_config

METRICS = ("top1_recall", "top3_recall", "prate", "words_modified", "words_per_minute", "errors_left")
PAIRS = (("private", "start"), ("private", "champion"))


def estimate(value: float, half: float) -> Estimate:
    return Estimate(value=value, low=value - half, high=value + half, standard_error=half / 2, degrees=100)


def compared(
    changes: dict[tuple[str, str], tuple[float, float]],
    session_words: int = 100,
    signs: tuple[verdicts.SignCheck, ...] = (),
) -> Comparison:
    """A comparison by hand.

    Args:
      changes: relative change and half an interval by (baseline, metric); without it 0.1 better, sure.
    """

    def difference(baseline: str, metric: str) -> Difference:
        sign = -1 if metric in verdicts.LOWER_IS_BETTER else 1
        value, half = changes.get((baseline, metric), (sign * 0.1, 0.01))
        relative = estimate(value, half)
        return Difference(
            candidate="private",
            baseline=baseline,
            metric=metric,
            absolute=estimate(value / 10, 0.01),
            relative=relative,
        )

    table = AbResult(
        devices_at_least=100,
        confidence=0.95,
        arms=tuple(
            ArmMetric(arm=arm, metric=metric, numerator=10, denominator=100, estimate=estimate(0.1, 0.01))
            for arm in ("start", "private", "champion")
            for metric in METRICS
        ),
        differences=tuple(difference(baseline, metric) for _, baseline in PAIRS for metric in METRICS),
    )
    new_words, primary = estimate(0.02, 0.01), "prate" if session_words else "top1_recall"
    return Comparison(
        table=table,
        verdicts=tuple(
            verdicts.verdict(table, *pair, primary, verdicts.guardrails(pair[1], typed=session_words > 0), "NWP")
            for pair in PAIRS
        ),
        second_opinions=(
            verdicts.SecondOpinion(
                candidate="private",
                baseline="start",
                metric="prate",
                jackknife=0.1,
                delta=0.11,
                bootstrap=0.12,
                agree=True,
            ),
        ),
        slices=tuple(
            SliceRow(part=part, arm=arm, baseline=baseline, metric=f"top{shown}_recall", estimate=each)
            for shown in (1, 3)
            for part, arm, baseline, each in (
                ("new_words", "start", None, estimate(0.9, 0.0)),
                ("new_words", "private", None, new_words if shown == 1 else estimate(0.08, 0.02)),
                ("new_words", "private", "start", estimate(0.7, 0.0)),
                ("all", "private", None, estimate(0.6, 0.0)),
            )
        ),
        head_words=(HeadShare(arm="private", words=10, typed=0.2, predicted=0.5, right=0.6),),
        variety={"start": 12.0, "ngram": 13.0, "private": 11.0},
        compose=(),
        signs=signs,
        session_words=session_words,
        judged_words=5 * session_words,
    )


ARMS = ["start", "private", "champion"]
THEIRS = PublishedModel("keyboard-en-US-NWP", 3, "earlier", "d" * 64)
CHAMPION = described(Baseline("NWP", THEIRS, "champion", ""))
ASKED = {"NWP": (CHAMPION, 1)}


def test_discovered_words_have_a_headline_and_evidence_of_their_own() -> None:
    result = ab_result(compared({}), ARMS, ASKED)
    assert result.headline["new_words_top1_recall"] == 0.02
    assert result.headline["new_words_top3_recall"] == 0.08
    assert result.new_word_top3_low == pytest.approx(0.06)
    nobody = ab_result(replace(compared({}), slices=()), ARMS, ASKED)
    assert nobody.new_word_top3_low is None
    assert not [name for name in nobody.headline if "new_words" in name]


@pytest.mark.parametrize(
    ("changes", "broken", "worse", "shown"),
    [
        ({}, [], [], True),
        # Not shown to be no worse: enough against the starting point, not against what users have.
        ({("start", "prate"): (0.0, 0.1)}, ["predictions accepted (PRate) may be worse by 10.00%"], [], True),
        ({("champion", "prate"): (0.0, 0.1)}, [], [], False),
        ({("champion", "prate"): (-0.1, 0.02)}, [], ["predictions accepted (PRate) changes by -10.00%"], False),
        ({("champion", "words_modified"): (0.1, 0.02)}, [], ["words modified (WMR) changes by +10.00%"], False),
        ({("champion", "words_modified"): (0.1, 0.2)}, [], [], True),
        ({("champion", "top1_recall"): (-0.1, 0.02)}, [], ["top-1 recall changes by -10.00%"], False),
        ({("champion", "top3_recall"): (-0.1, 0.02)}, [], ["top-3 recall changes by -10.00%"], False),
    ],
)
def test_only_what_is_clearly_worse_than_users_have_holds(
    changes: dict, broken: list[str], worse: list[str], shown: bool
) -> None:
    result = ab_result(compared(changes), ARMS, ASKED)
    for found, parts in ((result.broken_margins, broken), (result.worse_than_champion, worse)):
        assert len(found) == len(parts)
        assert all(said.startswith(part) for said, part in zip(found, parts, strict=True))
    against = {row.baseline: row for row in result.verdicts}
    assert against["champion"].passes == shown
    assert (result.champion.version, result.champion.launch_id) == (3, "earlier")


def test_without_sessions_there_are_no_margins_to_break() -> None:
    result = ab_result(compared({}, session_words=0), ARMS, ASKED)
    assert result.broken_margins is None
    assert result.worse_than_champion == ()
    assert result.broken_typists is None
    assert result.model_dump(mode="json")["features"] == {
        "NWP": ["prate"],
        "SC": [],
        "OTF": ["words_modified", "words_per_minute", "errors_left"],
    }


@pytest.mark.parametrize(("alone", "mixed", "always"), [(0.02, 0.005, 0.03), (0.005, 0.02, 0.03), (0.03, 0.02, 0.005)])
def test_what_needs_no_training_is_beaten_all_of_it(alone: float, mixed: float, always: float) -> None:
    made, free = compared({}), {"ngram": alone, "public_mixture": mixed, "constant": always}
    rivals = [Difference("private", arm, "top1_recall", estimate(gain, 0.001), None) for arm, gain in free.items()]
    made = replace(made, table=replace(made.table, differences=(*made.table.differences, *rivals)))
    assert ab_result(made, ARMS, ASKED).ngram_gain_low is None, "neither was an arm"
    rows = tuple(
        replace(made.table.arms[0], arm=arm, metric=metric) for arm in free for metric in ("top1_recall", "top3_recall")
    )
    made = replace(made, table=replace(made.table, arms=(*made.table.arms, *rows)))
    assert ab_result(made, [*ARMS, *free], ASKED).ngram_gain_low == pytest.approx(0.004)


def test_a_start_that_fits_people_badly_lowers_no_floor() -> None:
    broken = {"start": 1.9, "ngram": 1.6, "private": 2.0}
    for more, floor in (({PUBLIC_TEXT: 24.7}, 24.7), ({}, 1.6)):  # all of public text where evaluation has a budget
        assert ab_result(replace(compared({}), variety=broken | more), ARMS, ASKED).variety_public == floor


def test_typists_that_contradict_hold_and_say_how() -> None:
    better, worse, unsure = estimate(0.02, 0.01), estimate(-0.03, 0.01), estimate(0.0, 0.02)
    signs = tuple(
        verdicts.SignCheck("private", "start", metric, {"median": better, "fast": unsure, "sloppy": last}, *found)
        for metric, last, found in (
            ("prate", unsure, (True, ())),
            ("words_modified", worse, (False, ())),
            ("words_per_minute", worse, (False, ("sloppy",))),
        )
    )
    result = ab_result(compared({}, signs=signs), ARMS, ASKED)
    modified, speed = result.broken_typists
    assert modified.startswith("words modified (WMR) against public model with the new words: better under one, worse")
    assert speed.startswith(
        "words per minute (WPM) against public model with the new words: clearly worse under sloppy"
    )
    assert speed.endswith("(median +1.00% to +3.00%; fast -2.00% to +2.00%; sloppy -4.00% to -2.00%)")
    assert [row.metric for row in result.unstable_signs] == ["words_modified", "words_per_minute"]


def test_verdicts_state_margin_standard_error_and_power() -> None:
    result = ab_result(compared({("start", "prate"): (0.0, 0.03)}), ARMS, {"NWP": (CHAMPION, 4)})
    row = result.verdicts[0]
    assert (row.standard_error, row.margin) == (0.015, 0.05)
    assert 0.5 < row.power < 0.95
    assert (result.attempt, result.judged_words) == (4, 500)


def test_what_is_worse_where_the_baseline_is_without_fault_is_said_so() -> None:
    check = verdicts.Check("errors_left", "guardrail", 0.02, -0.01, 0.0, 0.005, None, passes=False, clearly_worse=True)
    held = replace(compared({}), verdicts=(verdicts.Verdict("private", "start", (check,), (), False, "prate", "NWP"),))
    (said,) = ab_result(held, ARMS, ASKED).broken_margins
    assert said == "words left wrong is worse by at least 1.00% where the baseline is without fault, 0.00% allowed"


@pytest.mark.slow
def test_each_launch_against_what_users_have_is_an_attempt_and_publication_begins_anew(tmp_path: Path) -> None:
    here = at(tmp_path)
    PrivacyLedger.create(here)

    def attempt(
        number: int, champion: PublishedModel | None = None, *, again: bool = False, feature: str = "NWP"
    ) -> int:
        run = RunDir(tmp_path, f"launch-{number}")
        ctx = StageContext(launch_config(), run, here, "ab_test", None)
        return attempt_of(ctx, feature, champion, again=again)

    users_have = PublishedModel("keyboard-en-US-NWP", 3, "earlier", "d" * 64)
    assert [attempt(number) for number in (1, 2, 1, 2, 3)] == [1, 2, 1, 2, 3]
    # Published: another question, on which launch 4 is first, and launch 3 as well if it comes back.
    assert [attempt(4, users_have), attempt(3, users_have), attempt(4, users_have)] == [1, 2, 1]
    # Rolled back: the old question, with all its attempts.
    assert attempt(5) == 4
    assert attempt(6, feature="SC") == 1
    ledger = PrivacyLedger.of(here)
    before = len(ledger.entries())
    # Deriving a finished launch again is no attempt, and says the same.
    assert [attempt(2, again=True), attempt(7, again=True)] == [2, 5]
    assert len(ledger.entries()) == before
    assert ledger.verify() == []


def test_a_launch_for_two_features_is_an_attempt_at_each(tmp_path: Path) -> None:
    here = at(tmp_path)
    PrivacyLedger.create(here)

    def attempt(number: int, feature: str) -> int:
        run = RunDir(tmp_path, f"launch-{number}")
        return attempt_of(StageContext(launch_config(), run, here, "ab_test", None), feature, None)

    assert [attempt(1, "NWP"), attempt(1, "OTF"), attempt(2, "NWP")] == [1, 1, 2]
    # The third launch is the second for OTF; asked again it is the same attempt at each.
    assert [attempt(3, "OTF"), attempt(3, "NWP"), attempt(3, "OTF"), attempt(1, "OTF")] == [2, 3, 2, 1]


def test_each_feature_has_its_own_margins_champion_and_verdicts() -> None:
    """OTF is hurt, its users have another model, and NWP neither shows nor suffers it."""
    made = compared({("champion", "words_modified"): (0.1, 0.02)})
    hurt = [verdicts.verdict(made.table, *pair, "words_modified", feature="OTF") for pair in PAIRS]
    fine = [replace(row, checks=row.checks[:1], passes=True) for row in made.verdicts]
    theirs = described(Baseline("OTF", replace(THEIRS, name="keyboard-en-US-OTF"), "champion", ""))
    result = ab_result(replace(made, verdicts=(*fine, *hurt)), ARMS, {"NWP": (CHAMPION, 3), "OTF": (theirs, 1)})
    assert (result.broken_margins, result.attempt) == ((), 3)
    other = result.others["OTF"]
    assert (other.attempt, other.champion.registered_model) == (1, "keyboard-en-US-OTF")
    assert [said[:14] for said in other.worse_than_champion] == ["words modified"]
    assert [(row.feature, row.primary, row.baseline) for row in result.verdicts] == [
        *(("NWP", "prate", baseline) for _, baseline in PAIRS),
        *(("OTF", "words_modified", baseline) for _, baseline in PAIRS),
    ]
    # An arm of its own: what is worse than that is nothing to NWP.
    apart = described(Baseline("OTF", THEIRS, "champion_OTF", ""))
    renamed = [replace(row, baseline="champion_OTF") if row.baseline == "champion" else row for row in hurt]
    result = ab_result(replace(made, verdicts=(*fine, *renamed)), ARMS, {"NWP": (CHAMPION, 1), "OTF": (apart, 1)})
    assert result.others["OTF"].worse_than_champion == other.worse_than_champion
    assert (result.broken_margins, result.worse_than_champion) == ((), ())


@pytest.mark.parametrize("session_words", [0, 100])
def test_recall_clearly_worse_than_users_have_counts_whether_or_not_typing_is_simulated(session_words: int) -> None:
    worse = compared({("champion", "top1_recall"): (-0.3522, 0.04)}, session_words=session_words)
    assert ab_result(worse, ARMS, ASKED).worse_than_champion == ("top-1 recall changes by -35.22% of the baseline's",)


def test_a_champion_that_was_not_compared_counts_against_the_launch() -> None:
    unfair = described(Baseline("NWP", THEIRS, "champion", "it trained on devices that may be held out here"))
    (said,) = ab_result(compared({}), ["start", "private"], {"NWP": (unfair, 1)}).worse_than_champion
    assert said.startswith("version 3 of keyboard-en-US-NWP could not be compared: it trained on devices")
    lost = replace(compared({}), verdicts=compared({}).verdicts[:1])
    assert ab_result(lost, ARMS, ASKED).worse_than_champion == ("version 3 of keyboard-en-US-NWP was not compared",)
    assert ab_result(compared({}), ARMS, {"NWP": (None, 1)}).worse_than_champion == ()


def test_a_launch_derived_again_asks_the_ledger_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``tacit verify`` reads the number of the attempt, and makes none."""
    asked = []

    def stage(ctx: StageContext, before: object, *, again: bool = False) -> None:
        asked.append(again)
        raise PermanentError("enough")

    monkeypatch.setattr("pipeline.stages.comparison.ab_test", stage)
    run, here = RunDir(tmp_path, "launch-1"), settings.load({"TACIT_HOME": str(tmp_path)})
    (run.private("ingest_private") / "store").mkdir()
    record = StageRecord(
        launch_id="launch-1",
        stage="ab_test",
        config_digest="",
        inputs={},
        outputs={},
        private_outputs=False,
        started_at="",
        seconds=0.0,
        processor="any",
        result={"champion": None},
    )
    check = replay.replay_one("ab_test", launch_config(), run, here, record, True)
    assert "enough" in check.detail
    assert asked == [True]
