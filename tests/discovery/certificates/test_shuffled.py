"""Shuffled messages: three numbers in their order, each within a second, and errors that say what to do."""

import time
from typing import Any

import pytest

from discovery.certificates.shuffled import shuffled
from discovery.device.randomizer import subset_selection

PAPER: dict[str, Any] = {"epsilon0": 10.0, "messages": 30_000_000, "domain": 1_000_000, "delta": 1e-10}


def test_the_paper_s_parameters_and_the_tighter_number_beside():
    began = time.process_time()
    found = shuffled(**PAPER)
    assert time.process_time() - began < 3  # three bounds, each within a second
    assert found.attack <= found.blanket <= found.clones <= found.epsilon0
    assert found.clones == pytest.approx(0.307467, abs=1e-6)
    assert found.blanket == pytest.approx(0.148477, rel=2e-3)
    assert found.k == subset_selection(10.0, 1_000_000).size == 45
    assert "not certified" in found.closed_2023_note


def test_the_size_of_a_message_can_be_given():
    assert shuffled(**PAPER, k=1).blanket != shuffled(**PAPER, k=45).blanket


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"k": 0}, "k: got 0"),
        ({"k": 1_000_000}, "k: got 1000000; expected from 1 to 999999"),
        ({"domain": 1}, "domain: got 1"),
        ({"messages": 0}, "messages: got 0"),
        ({"epsilon0": 101.0}, "epsilon0: got 101"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], named: str):
    with pytest.raises(ValueError, match=named):
        shuffled(**PAPER | change)


def test_more_messages_hide_better():
    few, many = (shuffled(4.0, messages, 100, 1e-8).clones for messages in (1000, 1_000_000))
    assert 0 < many < few <= 4
