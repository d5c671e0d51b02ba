"""The first page: short, the same numbers in every language, each written as that language writes them."""

import re

import pytest

from pipeline.releases.uses import USES
from reports import render
from reports.disclosure.document import Disclosure
from reports.formats import percent
from reports.front import concerns, front, summary
from reports.languages import LANGUAGES, in_digits_of
from reports.losses import up
from reports.render import pages
from reports.worst import IN_SENTENCES, SENTENCES, worst_facts
from tests.helpers.reports.reports_example import (
    CENTRAL_WORDS,
    COUNTS,
    LOCAL,
    LOCAL_WORDS,
    TRAINING,
    block,
    example,
    group_of,
    releases,
)

GROUP = [group_of(block("accounting"), 2, 17.2345), group_of(block("accounting"), 3, 29.1)]
UNCOVERED = {"data": "private", "covered": False, "reason": "held-out aggregates"}
LOCALES = {"de": "de-DE", "es": "es-ES", "fr": "fr-FR", "pt": "pt-BR"}
# Words of the English page, which no other language has.
ENGLISH = re.compile(r"\b(?:devices?|the|rounds|whatever|weak|reasonable|approved|noise)\b")


def of(language: str, **changes: object) -> str:
    """The first page in a language, as it stands in the report."""
    locale = LOCALES.get(language, "en-US")
    launch = {**block("launch"), "locale": locale} | changes.pop("launch", {})  # type: ignore[operator]
    text = pages(example(launch=launch, **changes), {})["report.md"]
    whole = text[text.index("## On one page") : text.index("## Gates")]
    assert len(re.findall(r"^## ", whole, flags=re.MULTILINE)) == (1 if language == "en" else 2)
    return whole if language == "en" else whole[whole.index("\n## ") :]


LOST = {"releases": ["training"], "split": "train", "epsilon": 5.512, "delta": 1e-6, "rho": 0.61, "how": "noise"}
LOSS = {"loss": {"epsilon": 5.512, "delta": 1e-6, "parts": [LOST]}}
SIZES = {"devices_at_least": 800, "words_added": 7}
EARLIER = LOSS | SIZES | {"created_at": "2025-11-05T00:00:00+00:00"}
EARLIER |= {"releases": {"training": {"rounds": 1234}, "counts": {"clip norm": 5.0}}}


def after(earlier: dict, **champion: object) -> dict:
    """A comparison with what users have, whose launch disclosed this."""
    utility = block("utility")
    more = {"candidate": "private", "baseline": "champion", "metric": "top1_recall"}
    gain = more | {"value": 0.0123, "low": 0.001, "high": 0.02}
    had = utility["champion"] | {"earlier": earlier} | champion
    return utility | {"champion": had, "differences": [*utility["differences"], gain]}


def everything() -> dict[str, object]:
    """Changes that bring out every warning and every part of the first page."""
    made = releases(
        LOCAL_WORDS, COUNTS, mechanism={"rounds": 1200, "report_goal": 1500}, participation={"violations": 3}
    )
    alone = made["accounting"]["total"]["epsilon"]  # type: ignore[index]
    group = [group_of(made["accounting"], devices, 2 * devices * alone) for devices in (2, 3)]  # type: ignore[arg-type]
    return {
        "launch": {"synthetic_population": True, "seeded_randomness": True, "reviewers": ["ana", "ben"]},
        "population": block("population", synthetic=True),
        "releases": made["releases"],
        "decision": block(
            "decision", decision="hold", gates=[gate | {"passed": False} for gate in block("decision")["gates"]]
        ),
        "accounting": made["accounting"] | {"agree": False, "randomness": "seeded", "group": group},  # type: ignore[operator]
        "tool": block("tool", git_commit="abc-dirty"),
        "utility": after(EARLIER),
        "data_accesses": [
            UNCOVERED | {"stage": stage}
            for stage in (
                "ingest_private",
                "ab_test: coverage",
                "fine_tune: validation curve",
                "ab_test",
                "ab_test: an arm trained without privacy",
            )
        ],
    }


def numbers(text: str) -> list[str]:
    """Numbers of a text without their marks, in any order."""
    text = re.sub(r"`[^`]*`", "", text)
    marks = "[.,\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE} ]"
    found = re.findall(r"\d(?:[.,\N{NARROW NO-BREAK SPACE}]?\d)*", re.sub(r"(?<=1) (?=000)", ",", text))
    return sorted(re.sub(marks, "", each) for each in found)


@pytest.mark.slow
@pytest.mark.parametrize("language", sorted(LOCALES))
def test_each_language_has_the_numbers_of_english_and_none_of_its_words(language: str) -> None:
    calm = example(accounting=block("accounting", group=GROUP))
    summed = block("accounting")
    summed["total"]["parts"][0]["how"] = "summed"
    for changes in (
        LOCAL,
        {"accounting": block("accounting", group=GROUP)},
        {"accounting": summed, "releases": [LOCAL_WORDS | {"secure_aggregation": True}, TRAINING]},
        releases(CENTRAL_WORDS, COUNTS),
        everything(),
    ):
        english, other = of("en", **dict(changes)), of(language, **dict(changes))
        # Warnings stand above the English page.
        assert set(numbers(other)) - {"2", "3"} == set(numbers(english)) - {"2", "3"}
        prose = re.sub(r"`[^`]*`", "", other)
        assert ENGLISH.findall(prose.replace(calm.launch.intended_use, "")) == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_warning_and_reviewer_stands_on_it(language: str) -> None:
    changes = everything()
    page = of(language, **changes)
    assert "ana" in page
    assert "ben" in page
    if language != "en":  # whose warnings stand above the page
        assert page.count("\n> ") == 9, "six warnings, and two main concerns below their title"
    assert in_digits_of(language, up(changes["accounting"]["total"]["epsilon"])) in page  # type: ignore[index]
    assert "%" in of(language)


@pytest.mark.parametrize(
    ("language", "shown", "written"),
    [
        ("en", "1,234.56%", "1,234.56%"),
        ("de", "1,234.56%", "1.234,56\N{NO-BREAK SPACE}%"),
        ("fr", "1,234,567", "1\N{NARROW NO-BREAK SPACE}234\N{NARROW NO-BREAK SPACE}567"),
        ("es", "1,234", "1234"),
        ("es", "12,345.6", "12.345,6"),
        ("pt", "14.80%", "14,80%"),
        ("de", "without bound", "without bound"),
    ],
)
def test_numbers_are_written_as_in_the_language(language: str, shown: str, written: str) -> None:
    assert in_digits_of(language, shown) == written


def test_other_languages_have_the_english_page_alone() -> None:
    assert of("en").count("### ") == 4
    text = pages(example(launch={**block("launch"), "locale": "ja-JP"}), {})["report.md"]
    assert text.count("\n## ") == pages(example(), {})["report.md"].count("\n## ")


def test_several_devices_of_a_person_are_told_of() -> None:
    group = block("accounting", group=GROUP)
    assert "a person with several devices, beyond each device alone;" in of("en", accounting=group)
    text = pages(Disclosure.model_validate(example(accounting=group)), {})["report.md"]
    assert (
        "Over all releases 2 devices have ε = 17.24 at δ = 1e-06 (weak); 3 devices have ε = 29.10 at δ = 1e-06 (weak)."
        in text
    )
    failing = block("accounting", failure=1e-9)
    assert "part of δ is a failure probability" in pages(example(accounting=failing), {})["report.md"]


@pytest.mark.slow
def test_what_changed_since_what_users_have_is_told() -> None:
    page = of("en", utility=after(EARLIER))
    assert "launch `test-fixture-00` of 2025-11-05: ε changes from 5.52 to 7.03" in page
    assert "changes by +1.23 points (+0.10 to +2.00)" in page
    assert "ε ging von 5,52 auf 7,03" in of("de", utility=after(EARLIER))
    text = pages(example(utility=after(EARLIER)), {})["report.md"].split("\n## Changes since the current model")[1]
    assert "| ρ |" not in text.split("## Accounting")[0], "words of this launch have none"
    assert "training: rounds 16 (1,234)" in text
    assert "counts: clip norm – (5)" in text
    assert "cannot be compared" not in text.split("## Accounting")[0]
    other = pages(example(utility=after(EARLIER | {"loss": EARLIER["loss"] | {"delta": 1e-5}})), {})["report.md"]
    assert other.count("cannot be compared") == 2
    apart = of("en", utility=after(EARLIER, left_out="it trained on other devices"))
    assert "changes by" not in apart
    first = pages(example(utility=block("utility", champion=None)), {})["report.md"]
    assert "No earlier launch of NWP for en-US is published: this one would be the first." in first
    assert "Users currently have" not in first


def test_two_persons_are_asked_for_as_two() -> None:
    launch = {"reviewers": ["ana", "ben", "eva"], "approvals": 2}
    assert "before 2 of ana, ben, eva approve this report" in of("en", launch=launch)
    assert "bevor 2 von ana, ben, eva diesem Bericht zustimmen" in of("de", launch=launch)
    assert "before ana or ben or eva approves" in of("en", launch=launch | {"approvals": 1})


WORSE = {"candidate": "private", "baseline": "champion", "metric": "top1_recall"} | {
    "value": -0.0522,
    "low": -0.0586,
    "high": -0.0457,
}


def worse() -> Disclosure:
    """A launch that is clearly worse than what users have."""
    utility = block("utility")
    return example(utility=utility | {"differences": [*utility["differences"], WORSE]})


def test_what_is_clearly_worse_is_a_concern_and_stands_in_the_summary() -> None:
    said = "-5.22 pp (-5.86 pp to -4.57 pp)"
    assert sum(said in concern for concern in concerns(worse())) == 1
    assert f"against the current version 3: {said}" in summary(worse())


def test_every_worst_fact_and_warning_is_accepted_by_itself() -> None:
    launch = example().launch.model_copy(update={"synthetic_population": True})
    made_up = worse().model_copy(update={"launch": launch})
    assert set(worst_facts(made_up)) < set(concerns(made_up))
    assert any("population is synthetic" in concern for concern in concerns(made_up))
    assert any("ε = 80" in concern for concern in concerns(made_up)), "words cost that much"


def test_the_summary_states_the_one_number_and_says_where_nothing_was_compared() -> None:
    assert summary(example())[0] == f"guarantee of one device: {example().accounting.total.sentence}"
    assert summary(example())[1].startswith("outside the guarantee: ")
    start = example().utility.value("start", "top1_recall")
    assert summary(example())[3] == f"before private training correct in {percent(start.value)}"
    first = example(utility=block("utility") | {"champion": None})
    assert summary(first)[-1] == "users have no model of this keyboard yet"
    apart = block("utility")["champion"] | {"left_out": "it trained on other devices"}
    left_out = example(utility=block("utility") | {"champion": apart})
    assert summary(left_out)[-1] == "not compared with the current version 3: it trained on other devices"
    assert summary(example().model_copy(update={"utility": None}))[-1] == "no comparison on held-out devices"


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_use_that_no_guarantee_covers_has_words_on_it(language: str) -> None:
    stages = [f"{use.stage}: {use.part}" if use.part else use.stage for use in USES if not use.covered]
    page = of(language, data_accesses=[UNCOVERED | {"stage": stage} for stage in stages])
    assert len(stages) >= 6
    assert not [stage for stage in stages if "_" in stage and stage in page], "a stage's name is for the tables"


@pytest.mark.parametrize("language", sorted(LOCALES))
def test_every_concern_and_every_name_in_it_is_translated(language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[dict[str, str], dict[str, str]]] = []

    def worst(title: str, sentences: dict[str, str], names: dict[str, str]) -> str:
        told.append((sentences, names))
        return title

    monkeypatch.setattr(render, "front", lambda disclosure, lang: front(disclosure, lang) | {"worst": worst})
    of(language)
    sentences, names = told[-1]  # the English page comes first
    assert sentences.keys() == SENTENCES.keys()
    assert names.keys() == set(IN_SENTENCES)
    for key, sentence in SENTENCES.items():
        assert set(re.findall(r"{(\w+)}", sentences[key])) >= set(re.findall(r"{(\w+)}", sentence)) - {"release"}


def test_a_concern_has_its_numbers_and_names_in_the_language() -> None:
    utility = block("utility")
    page = of("de", utility=utility | {"differences": [*utility["differences"], WORSE]})
    assert "Deutlich schlechter als bisheriges Modell: " in page
    assert "-5,22 pp (-5,86 pp bis -4,57 pp)" in page


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_says_what_the_server_sees_before_noise(language: str) -> None:
    """All that devices send in clear, and nothing of what is masked."""
    rare = in_digits_of(language, f"{CENTRAL_WORDS['words_per_device']:,}")
    seen = of(language, **releases(CENTRAL_WORDS))
    masked = of(language, launch={"trust": "secure sum"}, **LOCAL)
    word = {"en": "trusts the server", "de": "Vertraut wird", "es": "Se confía", "fr": "On fait confiance"}
    told = word.get(language, "Confia-se")
    assert told in seen
    assert told not in masked
    line = next(line for line in seen.splitlines() if told in line)
    assert f" {rare} " in line


@pytest.mark.parametrize("language", LANGUAGES)
def test_settings_chosen_on_this_very_text_are_said(language: str) -> None:
    told = {"en": "on this very text", "de": "eben diesem Text", "es": "este mismo texto", "fr": "ce même texte"}
    said = told.get(language, "este mesmo texto")
    assert said in of(language, launch={"tuning": "this population"})
    assert said not in of(language, launch={"tuning": "public text"})
