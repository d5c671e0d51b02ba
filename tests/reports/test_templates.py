"""Pages: every number as the disclosure has it, loud warnings, populations apart, arms named."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from reports import appendix
from reports.disclosure.document import Disclosure
from reports.disclosure.releases import ReleaseName
from reports.formats import compared, shown_arms
from reports.languages import LANGUAGES
from reports.render import TEMPLATES
from tests.helpers.reports.reports_example import (
    CENTRAL_WORDS,
    COUNTS,
    EVALUATION,
    LOCAL,
    LOCAL_WORDS,
    REPORTS,
    TRAINING,
    block,
    example,
    releases,
    rendered,
    visible,
)


def numbers(value: object, path: tuple = ()) -> Iterator[tuple]:
    """Paths of all numbers."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        yield from numbers(each, (*path, name))
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield path


def changed(within: Any, path: tuple, value: object) -> Any:
    """A block with one value replaced, whatever its validators say."""
    if not path:
        return value
    name, *rest = path
    if isinstance(within, dict):
        return within | {name: changed(within[name], tuple(rest), value)}
    if isinstance(within, tuple):
        return (*within[:name], changed(within[name], tuple(rest), value), *within[name + 1 :])
    return within.model_copy(update={name: changed(getattr(within, name), tuple(rest), value)})


def read(disclosure: Disclosure) -> dict[str, str]:
    return appendix.files(disclosure)


def silent(disclosure: Disclosure) -> set[str]:
    """Numbers below some block that may change while the appendix does not."""
    before = read(disclosure)
    paths = list(numbers(disclosure.model_dump(mode="json")))
    # The first row of each list.
    first = {"/".join(each for each in path if isinstance(each, str)): path for path in reversed(paths)}
    return {name for name, path in first.items() if read(changed(disclosure, path, 0.77)) == before}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("made", [(LOCAL_WORDS, COUNTS, EVALUATION), (CENTRAL_WORDS,)])
def test_every_number_is_in_the_appendix(made: tuple) -> None:
    """Nothing that a launch discloses is left out of the tables."""
    disclosure = example(**releases(*made))
    assert silent(disclosure) == set()


def test_every_release_has_its_part_and_every_part_a_place() -> None:
    parts = {path.name.removesuffix(".md.j2"): path.read_text(encoding="utf-8") for path in files("releases")}
    assert parts.keys() == set(get_args(ReleaseName))
    given = {name: set(re.findall(r"\{% macro (\w+)\(\)", text)) for name, text in parts.items()}
    asked = {place for path in files("") for place in re.findall(r'told\("(\w+)"', path.read_text(encoding="utf-8"))}
    places = {place + language for place in asked for language in (LANGUAGES if place.endswith("_") else ("",))}
    assert set().union(*given.values()) == places
    for name in ("setting", "registry"):
        assert all(name in macros for macros in given.values())


def files(folder: str) -> list[Path]:
    """Templates in a folder, or in all."""
    return sorted((TEMPLATES / folder).glob("*.j2" if folder else "**/*.j2"))


def test_losses_are_rounded_up() -> None:
    text = visible(rendered()["report.html"])
    # The part of training has rho 0.50012 and epsilon 5.0171.
    for shown in ("0.5002", "5.02", "80.00", "Over all releases ε ≤ 7.03"):
        assert shown in text, shown


def test_losses_of_different_units_are_never_added() -> None:
    text = visible(rendered()["report.html"])
    for wrong in (4.8812 + 8.0, 0.50012 + 8.0, 4.8812 + 80.0):
        assert f"{wrong:.1f}" not in text


def test_weak_synthetic_seeded_and_held_are_said_loudly() -> None:
    calm = rendered()
    broken = TRAINING["participation"] | {"violations": 3}
    loud = rendered(
        launch=block("launch", synthetic_population=True, seeded_randomness=True),
        population=block("population", synthetic=True),
        decision=block("decision", decision="hold", reasons=["budget exceeded"]),
        accounting=LOCAL["accounting"] | {"epsilon": 12.0, "epsilon_pld": 12.5, "agree": False, "randomness": "seeded"},
        releases=[LOCAL["releases"][0], TRAINING | {"participation": broken}],
        tool=block("tool", git_commit="abc-dirty"),
    )
    phrases = (
        "is synthetic",
        "on made-up text",
        "is seeded",
        "void",
        "on hold. Nothing was published",
        "above 10 is weak",
        "accountants do not agree",
        "violations: 3",
        "uncommitted changes",
    )
    for name in REPORTS:
        for phrase in phrases:
            assert phrase in visible(loud[name]), f"{name} lacks {phrase}"
            assert phrase not in visible(calm[name]).replace("Strong is ε", "")
    for shown in ("is synthetic", "is seeded", "void", "on hold. Nothing was published"):
        assert shown in loud["README.md"]
    assert 'class="red on"' in loud["report.html"]
    assert 'class="green on"' in calm["report.html"]
    assert loud["report.html"].count('<blockquote role="note" class="bad">') == 4
    # Two warnings, and the box of the worst facts.
    assert loud["report.html"].count('<blockquote role="note">') == 3
    assert "detects that a given device took part" not in loud["report.html"]


@pytest.mark.slow
def test_a_launch_with_a_warning_is_amber() -> None:
    launch, population = block("launch", synthetic_population=True), block("population", synthetic=True)
    page = rendered(launch=launch, population=population)["report.html"]
    assert 'class="amber on"' in page
    assert "with warnings" in page


def test_missing_parts_still_give_a_report() -> None:
    seen = {"observed_min_sep": None, "observed_mins": None, "observed_max_participations": 0}
    nobody = TRAINING["participation"] | seen | {"participation_histogram": {}, "separation_histogram": {}}
    made = rendered(
        decision=block("decision", decision="hold", reasons=["evidence is missing"]),
        audit=None,
        utility=None,
        curves={"pretraining": [], "adaptation": [], "fine_tuning": []},
        accounting=block("accounting", curve=[]),
        releases=[LOCAL_WORDS | {"layers": []}, TRAINING | {"participation": nobody}],
        words=block("words", words=[]),
        composition=block("composition", spends=[]),
        artifacts=[],
    )
    for name in REPORTS:
        assert "No audit was made" in made[name]
        assert "No comparison was made" in made[name]


def test_bad_findings_stand_out() -> None:
    row = block("audit")["canaries"][0] | {"ceiling_bits": 1.0, "exposure_bits": 1.5, "found_by_beam": True}
    audits = [block("audit")["audits"][0] | {"verdict": "failed"}]
    gates = block("decision")["gates"][:1]
    page = rendered(
        audit=block("audit", canaries=[row], stress=None, audits=audits, found_single_user=1, broken_ceilings=1),
        decision=block("decision", decision="hold", reasons=["r"], gates=[gates[0] | {"passed": False}]),
        **releases(participation={"violations": 3}),
    )["report.html"]
    for bad in (
        "fail",
        "completed by a search: 1",
        "above the exposure that the guarantee allows: 1",
        "bounds broken",
        "3",
    ):
        assert f"<strong>{bad}</strong>" in page
    assert "gate passed" not in page
    assert "<strong>1 of them speaks against the claim</strong> (noise added)" in page
    rows = [block("audit")["control"]["rows"][1] | {"found": 1}]
    lost = rendered(audit=block("audit", control=block("audit")["control"] | {"rows": rows}))
    assert "<strong>The attack does not find all canaries with the most copies" in lost["report.html"]


def test_words_are_shown_only_where_the_launch_lists_them() -> None:
    assert "not listed here: nobody has reviewed them." in rendered()["report.html"]
    assert "are not listed here." in rendered(words=block("words", reviewed=True))["report.html"]
    assert "<code>haha</code>" in rendered(words=block("words", words=["haha"]))["report.html"]


def test_dropped_words_are_counted() -> None:
    made = rendered()
    for name in REPORTS:
        assert "Filters of the launch file dropped 3 of them." in made[name]
    reviewed = rendered(words=block("words", reviewed=True, dropped_by_person=2))["report.md"]
    assert "after a person decided on each and dropped 2." in reviewed
    assert "applies no filter" in rendered(words=block("words", filters=[]))["report.md"]


def test_stress_stands_apart_and_counts_nowhere_else() -> None:
    made = rendered()
    for name in REPORTS:
        before, under = made[name].split("Under stress")
        assert "no gate reads them" in under
        assert "90,000" in under
        assert "90,000" not in before
    without = rendered(audit=block("audit", canaries=block("audit")["canaries"][:1], stress=None))
    assert all("Under stress" not in without[name] for name in REPORTS)


def test_the_report_says_where_each_canary_lives() -> None:
    held = "The launched model holds the canaries of devices that obey the timer and no others."
    assert held in rendered()["report.md"]
    twin = block("audit")["twin"] | {"populations": ["compliant", "stress"]}
    nowhere = rendered(audit=block("audit", in_launch=[], twin=twin))["report.md"]
    assert "The launched model holds none of these canaries. They are in a twin model" in nowhere
    everything = rendered(audit=block("audit", in_launch=["compliant", "stress"], twin=None))["report.md"]
    assert "obey the timer and those of devices under stress." in everything
    assert "twin" not in everything.split("## Memorisation audit")[1].split("Audits of the noise")[0]
    before = rendered(audit=block("audit", in_launch=None, twin=None, control=None))["report.md"]
    assert "**No positive control was made" in before


def test_the_table_of_arms_begins_with_both_recalls_and_the_launch_s_feature() -> None:
    for feature, third in (("NWP", "predictions accepted (PRate)"), ("OTF", "words modified (WMR) ↓")):
        made = example(launch=block("launch", feature=feature, features=[feature]))
        assert [name for name, _ in compared(made)][:3] == ["top-1 recall", "top-3 recall", third]


def test_the_table_of_arms_has_six_at_most_this_launch_and_the_users_model_first() -> None:
    utility = block("utility")
    row = utility["arms"][0]
    more = [row | {"arm": arm} for arm in ("ngram", "counts", "start_and_counts", "private_history", "champion")]
    made = example(utility=utility | {"arms": [*utility["arms"], *more]}).utility
    assert made is not None
    assert shown_arms(made) == ["private", "champion", "start", "start_and_counts", "counts", "ngram"]


def test_marks_are_the_verdicts_on_the_differences() -> None:
    text = rendered()["report.md"]
    nbsp = "\N{NO-BREAK SPACE}"
    assert f"| top-1 recall | 9.00%{nbsp}±{nbsp}1.00 | 6.00%{nbsp}±{nbsp}1.00{nbsp}*▲* |" in text


def test_each_feature_of_a_launch_has_its_rows_verdicts_and_champion() -> None:
    utility = block("utility")
    verdict = {**utility["verdicts"][0], "feature": "OTF", "primary": "words_modified"}
    judged = [row | {"feature": "NWP"} for row in utility["verdicts"]]
    theirs = {**utility["champion"], "registered_model": "keyboard-en-US-OTF", "launch_id": "test-fixture-77"}
    other = {"champion": theirs, "attempt": 5, "broken_margins": [], "missing_metrics": [], "worse_than_champion": []}
    text = rendered(
        launch=block("launch", features=["NWP", "OTF"]),
        utility=utility | {"others": {"OTF": other}, "verdicts": [*judged, verdict]},
    )["report.md"]
    for said in ("attempt 5", "keyboard-en-US-OTF", "words modified (WMR)"):
        assert said in text
    assert "| On-the-fly rescoring not inferior |  | *yes* |" in text


def test_typing_under_a_budget_is_told_and_arms_without_it_have_a_dash() -> None:
    utility = block("utility", session_words=0, judged_words=6000, others={})
    utility["arms"] = [
        row for row in utility["arms"] if row["arm"] == "private" or row["metric"] not in ("words_modified", "prate")
    ]
    text = rendered(utility=utility, **releases(EVALUATION))["report.md"]
    assert "Simulated users typed about 6,000 of the words again under the arms that decide" in text
    assert "| words modified (WMR) ↓ |" in text
    assert "| – |" in text
    untyped = rendered(utility=utility | {"judged_words": 0}, **releases(EVALUATION))["report.md"]
    assert "Typing was not simulated, so recall decides" in untyped


@pytest.mark.parametrize(
    ("at_rate", "said"),
    [
        ([], "**equally precise** on other devices"),
        (["start", "private"], "so they offer phrases **equally often**"),
    ],
)
def test_phrases_are_compared_at_one_rate_or_one_precision(at_rate: list[str], said: str) -> None:
    assert said in rendered(utility=block("utility", compose_at_rate=at_rate))["report.md"]


def test_an_arm_without_privacy_is_named_as_one_everywhere() -> None:
    for name in REPORTS:
        text = visible(rendered()[name])
        assert "must never be trained on people's own text" in text
        assert text.count("trained without privacy, simulation only") >= 2
        assert "non_private" not in text
