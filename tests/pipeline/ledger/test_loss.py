"""Loss of one device: splits of one rule compose in parallel, everything else adds up."""

import itertools
import json
import math
import random

import pytest
from pydantic import ValidationError

from pipeline.ground.errors import BudgetExceeded, LedgerConflict
from pipeline.ground.settings import Settings
from pipeline.ledger.entries import SPLIT_RULE, Entry, Spend, problems_of
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.loss import Release, added
from tests.helpers.launches.installed import registered
from tests.helpers.launches.spends import BINDING, device, reserve

SPLITS = ("train", "validation", "test")


def on(split: str, rho: float, failure: float = 0.0) -> Spend:
    return device(rho).model_copy(update={"split": split, "failure": failure})


def under(rule: str) -> dict[str, dict[str, str]]:
    return {"binding": BINDING | {SPLIT_RULE: rule}}


@pytest.fixture
def ledger(there: Settings) -> PrivacyLedger:
    return registered(PrivacyLedger.create(there), "people", "others")


def on_every_path(counted: list[Release]) -> float:
    """Walk a device through every choice of a split under each rule, and add up what it meets."""
    rules = sorted({release.rule for release in counted} - {""})
    worst = 0.0
    for choice in itertools.product(SPLITS, repeat=len(rules)):
        side = dict(zip(rules, choice, strict=True))
        met = [each for each in counted if not each.rule or each.split == side[each.rule]]
        worst = max(worst, sum(each.amount for each in met))
    return worst


def test_one_device_loses_the_most_on_any_path_through_the_splits():
    dice = random.Random(7)
    for _ in range(200):
        counted = [
            Release(
                amount=dice.choice((0.0, 0.1, 0.25, dice.random())),
                written="",
                rule=dice.choice(("", "one", "two")),
                split=dice.choice(SPLITS),
            )
            for _ in range(dice.randrange(8))
        ]
        assert added(counted) == pytest.approx(on_every_path(counted))


def test_held_out_devices_pay_beside_those_that_train(ledger: PrivacyLedger):
    reserve(ledger, "first", on("train", 0.9), **under("one"))
    reserve(ledger, "first", on("test", 0.8), stage="ab_test", **under("one"))
    assert ledger.total("people") == 0.9
    # Who was tested may train under another rule, and may have been anywhere where no rule is named.
    with pytest.raises(BudgetExceeded, match=r"needs rho 0\.2, 0\.9 of 1 is spent"):
        reserve(ledger, "second", on("train", 0.2), **under("two"))
    with pytest.raises(BudgetExceeded, match=r"needs rho 0\.2"):
        reserve(ledger, "second", on("validation", 0.2))
    with pytest.raises(BudgetExceeded, match=r"needs rho 0\.3"):
        reserve(ledger, "second", on("test", 0.3), **under("one"))
    reserve(ledger, "second", on("test", 0.2), **under("one"))
    assert ledger.total("people") == 1.0


def test_what_of_a_spend_has_no_column_stands_in_the_binding(ledger: PrivacyLedger):
    usual = reserve(ledger, "first", device(0.4))
    beside = {"split": "train", "failure": 0.0, "messages": 0, "device_epsilon": 0.0, "device_delta": 0.0}
    beside |= {"witness": ledger.population("people").rules.witness}
    assert json.loads(usual.binding) == BINDING | beside
    unusual = reserve(ledger, "first", on("test", 0.1, failure=1e-9), stage="ab_test", **under("one"))
    assert json.loads(unusual.binding) == BINDING | beside | {SPLIT_RULE: "one", "split": "test", "failure": 1e-9}
    assert unusual.spend == on("test", 0.1, failure=1e-9)
    committed = ledger.commit("first", "ab_test", on("test", 0.1, failure=1e-10))
    assert (committed.spend.failure, committed.split, committed.names(SPLIT_RULE)) == (1e-10, "test", "one")
    assert ledger.verify() == []


def test_a_commit_is_about_the_devices_it_was_reserved_for(ledger: PrivacyLedger):
    reserve(ledger, "first", on("test", 0.4), **under("one"))
    with pytest.raises(LedgerConflict, match="committed per device"):
        ledger.commit("first", "fine_tune", on("train", 0.4))
    with pytest.raises(LedgerConflict, match="releases once"):
        reserve(ledger, "first", on("test", 0.4, failure=0.1), **under("one"))


def test_a_release_stays_on_the_devices_of_its_rule(ledger: PrivacyLedger):
    first = reserve(ledger, "first", device(0.4), **under("one"))
    with pytest.raises(LedgerConflict, match="the split_rule changed"):
        reserve(ledger, "first", device(0.4), **under("two"))
    assert reserve(ledger, "first", device(0.4), **under("one")) == first


@pytest.mark.parametrize("changed", [{"failure": -1e-9}, {"failure": math.nan}, {"failure": 1.0}, {"split": "nobody"}])
def test_a_failure_or_a_split_that_is_none_is_refused(ledger: PrivacyLedger, changed: dict):
    with pytest.raises(ValidationError):
        Spend.model_validate(device(0.1).model_dump() | changed)
    entry = reserve(ledger, "first", on("test", 0.4))
    forged = entry.model_copy(update={"binding": json.dumps(entry.content | changed)})
    assert any("failure" in line or "unknown split" in line for line in problems_of([forged]))


def test_a_forger_cannot_move_a_spend_to_other_devices(ledger: PrivacyLedger):
    reserve(ledger, "first", device(0.4), **under("one"))
    ledger.commit("first", "fine_tune", device(0.4))
    before = [entry for entry in ledger.entries() if entry.unit == "device"]
    for changed in ({"split": "test"}, {SPLIT_RULE: "two"}):
        moved = before[1].model_copy(update={"binding": json.dumps(before[1].content | changed)})
        assert any("follows no reservation of its own" in line for line in problems_of([before[0], moved]))


def test_the_rule_changes_with_whatever_decides_a_split(ledger: PrivacyLedger):
    people, others = ledger.population("people"), ledger.population("others")
    rules = [people.split_rule(0.1), people.split_rule(0.2), others.split_rule(0.1)]
    assert len(set(rules)) == 3
    assert people.split_rule(0.1) == rules[0]


def test_an_entry_that_is_no_json_spends_for_everybody(ledger: PrivacyLedger):
    entry: Entry = reserve(ledger, "first", device(0.4)).model_copy(update={"binding": "["})
    assert (entry.split, entry.failure, entry.names(SPLIT_RULE)) == ("train", 0.0, "")
