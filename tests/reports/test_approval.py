"""An answer is asked for with the worst facts in sight, each of which an approval accepts."""

from reports.approval import concerns, summary
from reports.disclosure.document import Disclosure
from reports.losses import up
from reports.worst import worst_facts
from tests.helpers.reports.reports_example import block, example

LOSS = {"candidate": "private", "baseline": "champion", "metric": "top1_recall"} | {
    "value": -0.0522,
    "low": -0.0586,
    "high": -0.0457,
}


def worse() -> Disclosure:
    """A launch that is clearly worse than what users have."""
    utility = block("utility")
    return example(utility=utility | {"differences": [*utility["differences"], LOSS]})


def test_what_is_clearly_worse_is_a_concern_and_stands_in_the_summary() -> None:
    said = "-5.22 pp (-5.86 pp to -4.57 pp)"
    assert sum(said in concern for concern in concerns(worse())) == 1
    assert f"against version 3, which users have: {said}" in summary(worse())


def test_every_worst_fact_and_warning_is_accepted_by_itself() -> None:
    launch = example().launch.model_copy(update={"synthetic_population": True})
    made_up = worse().model_copy(update={"launch": launch})
    assert set(worst_facts(made_up)) < set(concerns(made_up))
    assert any("population is synthetic" in concern for concern in concerns(made_up))
    assert any("ε = 80" in concern for concern in concerns(made_up)), "words cost that much"


def test_the_summary_states_the_one_number_and_says_where_nothing_was_compared() -> None:
    bound = up(example().accounting.bound)
    assert (
        summary(example())[0] == f"guarantee of one device: epsilon {bound} at delta 1e-06 (words 2.01, training 5.02)"
    )
    first = example(utility=block("utility") | {"champion": None})
    assert summary(first)[-1] == "users have no model of this keyboard yet"
    apart = block("utility")["champion"] | {"left_out": "it trained on other devices"}
    left_out = example(utility=block("utility") | {"champion": apart})
    assert summary(left_out)[-1] == "not compared with version 3, which users have: it trained on other devices"
    assert summary(example().model_copy(update={"utility": None}))[-1] == "no comparison on held-out devices"
