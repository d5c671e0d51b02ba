"""Words found locally: their spend follows from what a discovery states, and a table and a sentence say what it is."""

import pytest

from discovery.certificates.blanket import blanket
from discovery.certificates.group import group
from discovery.device.randomizer import subset_selection
from pipeline.releases.local_words import LOCAL_WORDS, certified, words_of
from pipeline.releases.release import gaussian
from pipeline.releases.total import total
from pipeline.releases.uses import accesses
from tests.helpers.launches.pipeline_launch import launch_config
from tests.helpers.reports.reports_example import discovered

DELTA, EPSILON0, SENT = 1e-6, 2.0, 3

WORDS_DELTA = DELTA / 2


def by_hand(asked: int, domain: int, share: float = 0.5) -> float:
    randomizer, honest = subset_selection(EPSILON0, domain), SENT * (1 + int(share * (asked - 1)))
    return group(lambda at: blanket(randomizer, honest, at), SENT, EPSILON0, WORDS_DELTA)


@pytest.mark.slow
def test_the_worst_layer_counts_with_its_honest_devices_alone() -> None:
    words = discovered((40_000, 900), (10_000, 30), (200_000, 30))
    assert certified(words) == pytest.approx(max(by_hand(10_000, 30), by_hand(40_000, 900)), rel=1e-9)
    assert certified(words) < certified(discovered((10_000, 30), honest_share=0.25))
    # An average layer would say less than the worst.
    assert certified(words) > by_hand(83_000, 30)


@pytest.mark.slow
def test_one_small_layer_is_what_a_launch_is_as_weak_as() -> None:
    assert certified(discovered((200_000, 30))) < 1
    assert certified(discovered((200_000, 30), (20, 30))) > 4
    assert certified(discovered((200_000, 30), (2, 30))) == SENT * EPSILON0


def test_a_certificate_that_is_no_better_than_the_local_bound_is_that_bound() -> None:
    spend = words_of(discovered((20, 30), device_epsilon_central=SENT * EPSILON0))
    assert (spend.device_epsilon, spend.device_delta, spend.messages) == (SENT * EPSILON0, 0.0, SENT)
    hidden = words_of(discovered((20, 30), device_epsilon_central=1.25))
    assert (hidden.device_epsilon, hidden.device_delta, hidden.epsilon) == (1.25, WORDS_DELTA, EPSILON0)


def test_who_reads_the_table_sees_that_words_are_a_device_s() -> None:
    config = launch_config(discovery={"messages_per_device": 2}, policy={"max_total_epsilon": 60.0})
    (row,) = (row for row in accesses(config) if row.stage == "discover")
    assert (row.unit, "counted together" in (row.mechanism or "")) == ("device", True)


@pytest.mark.parametrize(("certificate", "says"), [(1.25, "a shuffler"), (SENT * EPSILON0, "trusts no party")])
def test_what_the_number_counts_on_is_said(certificate: float, says: str) -> None:
    spend = words_of(discovered((20, 30), device_epsilon_central=certificate))
    whole = total(launch_config(), {"discover": spend, "fine_tune": gaussian(0.4, DELTA, "")})
    (sentence,) = LOCAL_WORDS.trusts(launch_config(), whole)
    assert says in sentence
    assert ("50% of the other devices of a layer follow the protocol" in sentence) == (whole.words.how == "shuffled")
