"""A secret key belongs to one stage of one launch: its commitment is refused wherever it would be another one's."""

import pytest

from pipeline.ground.errors import LedgerConflict
from pipeline.ground.settings import Settings
from pipeline.ledger.ledger import PrivacyLedger
from tests.helpers.launches.installed import registered
from tests.helpers.launches.spends import device, reserve

KEY = {"config": "c", "inputs": "i", "key": "the commitment"}
OTHERS = {
    "another launch": {"launch": "second"},
    "another stage": {"stage": "count"},
    "another launch with other inputs": {"launch": "second", "binding": KEY | {"inputs": "j", "config": "d"}},
    "another population": {"launch": "second", "population": "others"},
    "another run of the same launch file": {"launch": "first-2"},
}


@pytest.fixture
def ledger(settings: Settings) -> PrivacyLedger:
    return registered(PrivacyLedger.of(settings), "people", "others")


def asked(ledger: PrivacyLedger, launch: str = "first", **changes: object) -> object:
    return reserve(ledger, launch, device(0.1), **{"binding": KEY} | changes)


@pytest.mark.parametrize("until", ["reserved", "committed", "given back"])
@pytest.mark.parametrize("other", OTHERS)
def test_a_key_of_another_launch_or_stage_is_refused(ledger: PrivacyLedger, other: str, until: str) -> None:
    asked(ledger)
    if until == "committed":
        ledger.commit("first", "fine_tune", device(0.1))
    if until == "given back":
        ledger.release("first", "fine_tune", "of a test")
    before = ledger.entries()
    with pytest.raises(LedgerConflict, match="first/fine_tune has this key") as refused:
        asked(ledger, **OTHERS[other])
    assert "the commitment" not in str(refused.value)
    assert ledger.entries() == before
    asked(ledger, "second", binding=KEY | {"key": "one of its own"})


def test_a_retry_keeps_its_key(ledger: PrivacyLedger) -> None:
    first = asked(ledger)
    assert asked(ledger) == first
    ledger.release("first", "fine_tune", "of a test")
    again = asked(ledger)
    assert (again.kind, again.names("key")) == ("reserve 2", first.names("key"))
    ledger.commit("first", "fine_tune", device(0.1))
    assert ledger.verify() == []


def test_a_seeded_key_is_anybody_s(ledger: PrivacyLedger) -> None:
    """It protects nobody, and every launch of its seed has it."""
    seeded = {"config": "c", "inputs": "i", "seeded_key": "the commitment"}
    for launch in ("first", "second"):
        asked(ledger, launch, binding=seeded)
    assert ledger.verify() == []


def test_a_ledger_with_one_key_twice_is_not_whole(ledger: PrivacyLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a version wrote it that asked nothing."""
    asked(ledger)
    with monkeypatch.context() as then:
        then.setattr("pipeline.ledger.rows.require_own_key", lambda *given: None)
        asked(ledger, "second")
    (problem,) = ledger.verify()
    assert problem == "entry 4 (reserve of second/fine_tune) has the key of first/fine_tune"
