"""One comparison has one verdict in one unit, wherever a report speaks of it, and the worst stands in front."""

import itertools

import pytest

from reports.disclosure.document import Disclosure
from reports.formats import light, verdict
from reports.losses import strength, up
from reports.render import pages
from reports.worst import LEAST_VARIETY, worst_facts
from tests.helpers.reports.contradictions import contradictions
from tests.helpers.reports.reports_example import LOCAL, LOCAL_WORDS, TRAINING, block, example, guarantee_of

GAINS = ((0.02, 0.03, 0.04), (-0.04, -0.03, -0.02), (-0.01, 0.01, 0.03))


def compared(*changes: tuple, metric: str = "prate", failed: tuple[str, ...] = ()) -> Disclosure:
    """A disclosure with one difference: absolute interval and relative one."""
    (low, value, high), (relative_low, relative_value, relative_high) = changes
    row = {"candidate": "private", "baseline": "start", "metric": metric, "value": value, "low": low, "high": high}
    row |= {"relative": {"value": relative_value, "low": relative_low, "high": relative_high}}
    judged = {"candidate": "private", "baseline": "start", "primary": metric, "passes": not failed}
    return example(
        utility=block("utility", differences=[row], verdicts=[judged | {"failed": list(failed), "missing": []}])
    )


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["prate", "words_modified", "top1_recall"])
@pytest.mark.parametrize("changes", list(itertools.product(GAINS, GAINS)))
def test_tables_and_pictures_tell_the_same_of_any_two_intervals(changes: tuple, metric: str) -> None:
    told = verdict(compared(*changes, metric=metric).utility.differences[0])
    failed = (metric,) if told != "better" else ()
    assert contradictions(compared(*changes, metric=metric, failed=failed)) == []


@pytest.mark.slow
def test_the_reading_finds_what_it_looks_for() -> None:
    assert contradictions(compared(GAINS[0], GAINS[0], failed=("prate",)))
    gates = block("decision")["gates"]
    twice = [gates[0] | {"id": "top3_guardrail"}, gates[1] | {"id": "typing", "evidence": "top-3 recall is worse"}]
    assert contradictions(example(decision=block("decision", gates=twice)))


def test_the_example_contradicts_itself_nowhere() -> None:
    assert contradictions(example()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "words"), [("chitchat", "a public data set of typed chat"), ("files", "as it is stored")]
)
def test_whose_text_it_was_is_said_alike_in_front_and_at_the_back(source: str, words: str) -> None:
    disclosure = example(population=block("population", source=source))
    text = pages(disclosure, {})["report.md"]
    assert words in text.split("## Gates")[0]
    assert "simulated on the stored text" in text.split("## Gates")[0]
    assert contradictions(disclosure) == []


def fact(**utility: object) -> list[str]:
    return worst_facts(example(utility=block("utility", **utility)))


def test_words_that_are_never_suggested_stand_in_front() -> None:
    row = {"part": "new_words", "arm": "private", "metric": "top3_recall", "low": 0.0, "high": 0.0}
    (never,) = [line for line in fact(slices=[row | {"value": 0.0}]) if "discovered word " in line]
    assert "never among the three suggestions." in never
    seldom = row | {"value": 0.0499, "low": 0.01, "high": 0.07}
    assert any("in only 4.99% of cases (1.00% to 7.00%)" in line for line in fact(slices=[seldom]))
    assert not any("discovered word " in line for line in fact(slices=[row | {"value": 0.05}]))
    text = pages(example(utility=block("utility", slices=[row | {"value": 0.0}])), {})["report.md"]
    front = text[text.index("## On one page") : text.index("Rounded up.")]
    assert never in front


def test_few_first_words_stand_in_front() -> None:
    few = {"ngram": 12.0, "private": 12 * LEAST_VARIETY - 0.1, "start": 10.0}
    said = "In 300 typed words the model is right by only 5.9 different words; n-gram, public text: 12.0."
    assert said in fact(variety=few)
    assert not any("different words" in line for line in fact(variety=few | {"private": 12 * LEAST_VARIETY}))


def test_keystrokes_lost_stand_in_front() -> None:
    row = {"candidate": "private", "baseline": "ngram", "metric": "keystroke_savings", "value": -0.01}
    worse = row | {"low": -0.02, "high": -0.005, "relative": {"value": -0.1, "low": -0.2, "high": -0.05}}
    said = "Clearly worse than n-gram, public text: keystrokes saved, -10.00% (-20.00% to -5.00%)."
    assert said in fact(differences=[worse])
    unclear = worse | {"relative": {"value": -0.1, "low": -0.2, "high": 0.05}}
    assert said not in fact(differences=[unclear])
    assert not any("Clearly" in line for line in fact(differences=[worse | {"baseline": "non_private"}]))


def test_a_weak_epsilon_stands_in_front_and_a_void_one_has_its_own_words() -> None:
    weak = example(**LOCAL)
    (said,) = [line for line in worst_facts(weak) if "on its own it promises little" in line]
    assert said.startswith(f"ε = {up(weak.accounting.bound)} of one device")
    assert strength(weak.accounting.bound) == "weak"
    report = pages(weak, {})["report.md"]
    assert ("this number alone rules nothing out" in report) == ("at most 100" in report)


def test_the_canaries_stand_in_a_table_with_the_most_exposed() -> None:
    shown = example()
    rows = [row for row in shown.audit.of("compliant") if row.participations]
    most = max(row.exposure_bits for row in rows)
    report = pages(shown, {})["report.md"]
    assert f"Most exposed: {most:.2f} bits" in report
    assert report.count("\n| devices | copies | rank | exposure, bits | found |") == 1
    for row in rows:
        assert f"| {row.n_u} | {row.n_e} | {row.rank:,} | {row.exposure_bits:.2f} | " in report


def test_nothing_bad_leaves_no_box() -> None:
    one = {"epsilon0": 0.5, "messages_per_device": 1, "device_level_epsilon0": 0.5, "device_epsilon_central": 0.5}
    hidden = LOCAL_WORDS | one | {"epsilon_central": 0.3, "epsilon_clones": 0.4, "epsilon_attack": 0.1}
    calm = example(
        releases=[hidden, TRAINING],
        words=block("words", coverage=0.3),
        accounting=guarantee_of(hidden, TRAINING, how="local"),
        utility=block("utility", differences=[], slices=[], head_words=[], variety={"private": 60.0}),
    )
    assert worst_facts(calm) == []
    assert "Main concerns" not in pages(calm, {})["report.md"]
    assert light(calm) == light(example())
