"""A seeded launch computes what ``make_today.py`` recorded, on whatever machine.

What a processor's low bits may move is compared to the digits that they leave alone.
"""

import json
from pathlib import Path

import pytest

from reports.disclosure.document import Disclosure
from tests.golden import facts
from tests.helpers.launches.launched import Launched
from tests.helpers.reports.contradictions import contradictions

RECORDED = json.loads((Path(__file__).parent / "today.json").read_text(encoding="utf-8"))
# A rank among 10,000 continuations moves by a few places where low bits of the scores differ.
NEAR_RANKS = 20
# Lengths differ by 2e-8 of themselves and directions by 9e-7 between AVX-512 and SSE.
NEAR_WEIGHTS = 1e-4

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(seeded: Launched) -> dict[str, dict[str, facts.Fact]]:
    return facts.select(seeded.found)


@pytest.mark.parametrize("kind", ["exact", "losses", "ranks", "norms", "directions"])
def test_the_same_facts_are_there(found: dict[str, dict[str, facts.Fact]], kind: str) -> None:
    assert found[kind].keys() == RECORDED[kind].keys()


def test_privacy_amounts_words_gates_and_participation_are_exact(found: dict[str, dict[str, facts.Fact]]) -> None:
    assert found["exact"] == RECORDED["exact"]


def test_what_was_released_is_shown_to_be_what_it_should_be(seeded: Launched) -> None:
    """By the whole pipeline: another process draws the noise of a restarted BLT with adaptive clipping again."""
    assert seeded.found["gate/released/passed"] is True
    assert seeded.found["gate/audit_power/passed"] is True


def test_losses_are_those_recorded(found: dict[str, dict[str, facts.Fact]]) -> None:
    assert found["losses"] == pytest.approx(RECORDED["losses"], rel=1e-4)


def test_canaries_have_their_ranks(found: dict[str, dict[str, facts.Fact]]) -> None:
    assert found["ranks"] == pytest.approx(RECORDED["ranks"], rel=0, abs=NEAR_RANKS)


def test_weights_have_their_lengths_and_directions(found: dict[str, dict[str, facts.Fact]]) -> None:
    assert found["norms"] == pytest.approx(RECORDED["norms"], rel=NEAR_WEIGHTS)
    assert found["directions"] == pytest.approx(RECORDED["directions"], rel=0, abs=NEAR_WEIGHTS)


def test_its_report_contradicts_itself_nowhere(seeded: Launched) -> None:
    content = (seeded.run / "public" / "report" / "disclosure.json").read_bytes()
    assert contradictions(Disclosure.model_validate_json(content)) == []
