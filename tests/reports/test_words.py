"""The report on discovered words: their protection, at which level, and by which trust."""

import pytest
from pydantic import ValidationError

from reports.disclosure.document import Disclosure
from reports.disclosure.releases import CentralWords
from reports.render import pages
from reports.worst import worst_facts
from tests.helpers.reports.contradictions import contradictions
from tests.helpers.reports.reports_example import (
    ALL_COVERED,
    CENTRAL_WORDS,
    LOCAL,
    LOCAL_WORDS,
    TOTAL,
    TRAINING,
    block,
    example,
    releases,
)


def report(disclosure: Disclosure) -> str:
    return pages(disclosure, {})["report.md"]


def test_central_words_are_part_of_the_launch_s_number_and_name_their_trust() -> None:
    disclosure = example(**releases(CENTRAL_WORDS))
    assert Disclosure.model_validate_json(disclosure.model_dump_json()).release(CentralWords) is not None
    text = report(disclosure)
    front, back = text.split("## Gates")
    assert "at most 50 out-of-vocabulary words from each device" in front
    for phrase in ("the aggregator receives at most", "0.0962", "3e-07", "central words and training |"):
        assert phrase in back
    for phrase in ("per typed word", "Layer by layer", "messages"):
        assert phrase not in text
    assert contradictions(disclosure) == []
    assert not any("collector" in fact for fact in worst_facts(disclosure))


@pytest.mark.parametrize(
    ("change", "message"), [({"rho": 0.1}, "rho: 0.1"), ({"failure": 2e-6}, "failure"), ({"failure": 0.0}, "failure")]
)
def test_central_numbers_that_contradict_each_other_are_refused(change: dict, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        example(**releases(CENTRAL_WORDS) | {"releases": [CENTRAL_WORDS | change, TRAINING]})


@pytest.mark.slow
def test_a_weak_guarantee_of_a_device_is_said_to_be_none() -> None:
    assert "a whole device has no meaningful guarantee" in report(example(**LOCAL))
    good = report(example())
    assert "no meaningful guarantee" not in good
    assert "2.01 after shuffling (reasonable)" in good


def one_number(**accounting: object) -> Disclosure:
    """The example, all of whose uses of private text are covered."""
    return example(accounting=block("accounting") | accounting, data_accesses=ALL_COVERED)


def test_words_that_shuffling_hides_are_in_the_one_number_everywhere() -> None:
    disclosure = one_number()
    rendered = pages(disclosure, {})
    front, back = rendered["report.md"].split("## Gates")
    for phrase in (
        "**ε ≤ 7.03**",
        "ε ≤ 2.01 for all 10 messages",
        "the messages of all devices are shuffled",
        "that 50.00% of the other devices of a layer answer honestly",
        "ε ≤ 5.02 (ρ ≤ 0.5002, δ = 5e-07)",
        "Against an attacker who links its messages, a device has ε = 80.00",
        "the number covers every",
    ):
        assert phrase in front, phrase
    assert "4.89" not in front
    assert "| local words | trains | 2.01 | 5e-07 | – | shuffled, with 50.00% of the other devices" in back
    card = rendered["README.md"]
    assert "epsilon: 7.03\n" in card
    assert "| part of ε | local words: 2.01 at δ 5e-07, shuffled" in card
    assert contradictions(disclosure) == []
    assert disclosure.accounting.bound == 7.0211


@pytest.mark.slow
def test_words_that_shuffling_does_not_hide_are_in_the_number_in_full() -> None:
    disclosure = example(**LOCAL, data_accesses=ALL_COVERED)
    front, back = report(disclosure).split("## Gates")
    assert "**ε ≤ 84.89**" in front
    assert "ε ≤ 80.00 for all 10 messages of the device, against any collector" in front
    assert "shuffled" not in front.split("### The guarantee")[1].split("### ")[0]
    assert "| local words | trains | 80.00 | 0 | – | 10 of 8.00 each, against any collector |" in back
    assert any("includes it in full" in fact for fact in worst_facts(disclosure))
    assert contradictions(disclosure) == []


def changed(**words: object) -> dict:
    """The example's total with another part for its words."""
    parts = TOTAL["parts"]
    return TOTAL | {"parts": [parts[0] | words, parts[1]]}


@pytest.mark.parametrize(
    ("total", "message"),
    [
        (TOTAL | {"epsilon": 5.0171}, "epsilon"),  # words are forgotten
        (TOTAL | {"epsilon": 8.0}, "epsilon"),
        (TOTAL | {"epsilon": 5.0171, "parts": TOTAL["parts"][1:]}, "local_words"),
        (changed(delta=1e-6), "delta"),  # delta is counted once
        (TOTAL | {"delta": 2e-6}, "total: at delta"),  # and is the launch's
        (changed(how="local"), "a local bound holds at delta 0"),
        (changed(epsilon=1.0) | {"epsilon": 6.0171}, "words"),  # another certificate than discovery's
        (changed(split="test") | {"epsilon": 5.0171}, "local_words"),  # the larger split counts, and this is none
        (TOTAL | {"parts": [*TOTAL["parts"], TOTAL["parts"][1] | {"split": "test"}]}, "but the releases are"),
        (
            TOTAL
            | {"epsilon": TOTAL["epsilon"] + TOTAL["parts"][1]["epsilon"]}
            | {"parts": [*TOTAL["parts"], TOTAL["parts"][1] | {"delta": 0.0}]},
            "names a release twice",
        ),
    ],
)
def test_one_number_that_is_not_the_sum_of_its_parts_is_refused(total: dict, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        one_number(total=total)


@pytest.mark.parametrize("device", [0.5, 81.0])
def test_a_device_is_never_better_off_than_a_message_nor_worse_than_their_sum(device: float) -> None:
    with pytest.raises(ValidationError, match="device_epsilon_central"):
        example(releases=[LOCAL_WORDS | {"device_epsilon_central": device}, TRAINING])


def layers(*stated: dict) -> dict:
    """The example with layers that state this of people."""
    rows = [row | more for row, more in zip(LOCAL_WORDS["layers"], stated, strict=True)]
    return {"releases": [LOCAL_WORDS | {"layers": rows}, TRAINING]}


def test_it_is_said_how_few_people_a_word_may_be_of() -> None:
    many = {"anonymity": 90, "one_holder_chance": 0.0, "lemma_1": 0.2}
    few = {"anonymity": 52, "one_holder_chance": 1e-9, "lemma_1": 0.237}
    text = report(example(**layers(many, few)))
    assert "fewer than **52** messages" in text
    assert "23.70% for the same 52" in text
    # A layer in which no word can end says nothing of words.
    assert "fewer than **90** messages" in report(example(**layers(many, few | {"word_votes": 1101})))
    noise = {"anonymity": 0, "one_holder_chance": 0.04, "lemma_1": 1.0}
    text = report(example(**layers(many, noise)))
    assert "A word of one device alone is published with probability at most 4.00%" in text
