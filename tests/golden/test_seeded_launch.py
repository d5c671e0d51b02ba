"""A seeded launch computes what version 0.1 computed, number by number; ``make_version_0_1.py`` recorded it."""

import json
from pathlib import Path

import pytest

from tests.golden import facts
from tests.golden.make_version_0_1 import select
from tests.helpers.launched import Launched

RECORDED = json.loads((Path(__file__).parent / "version-0.1.json").read_text(encoding="utf-8"))
SAME_MACHINE = facts.machine() == RECORDED["machine"]
# A rank among 10,000 continuations moves by a few places where low bits of the scores differ.
NEAR_RANKS = 20

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(seeded: Launched) -> dict[str, dict[str, facts.Fact]]:
    return select(seeded.found)


@pytest.mark.parametrize("kind", ["exact", "losses", "ranks", "weights"])
def test_the_same_facts_are_there(found: dict[str, dict[str, facts.Fact]], kind: str) -> None:
    assert found[kind].keys() == RECORDED["seeded_launch"][kind].keys()


def test_privacy_amounts_words_gates_and_participation_are_exact(found: dict[str, dict[str, facts.Fact]]) -> None:
    assert found["exact"] == RECORDED["seeded_launch"]["exact"]


def test_losses_are_those_recorded(found: dict[str, dict[str, facts.Fact]]) -> None:
    assert found["losses"] == pytest.approx(RECORDED["seeded_launch"]["losses"], rel=1e-4)


def test_canaries_have_their_ranks(found: dict[str, dict[str, facts.Fact]]) -> None:
    allowed = 0 if SAME_MACHINE else NEAR_RANKS
    assert found["ranks"] == pytest.approx(RECORDED["seeded_launch"]["ranks"], rel=0, abs=allowed)


@pytest.mark.skipif(not SAME_MACHINE, reason="low bits of a product are those of a processor and its libraries")
def test_weights_have_their_bits(found: dict[str, dict[str, facts.Fact]]) -> None:
    assert found["weights"] == RECORDED["seeded_launch"]["weights"]
