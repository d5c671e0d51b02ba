"""A disclosure that contradicts itself is no disclosure."""

import json
from collections.abc import Callable

import pytest
from pydantic import ValidationError

from reports.disclosure.document import Disclosure
from tests.helpers.reports.reports_example import example

GROUP = {"devices": 2, "rho": 4 * 0.50012, "epsilon": 8.0}


def at(raw: dict, *path: str | int) -> dict:
    for step in path:
        raw = raw[step]
    return raw


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda raw: at(raw, "decision", "gates", 0).update(passed=False), "must be 'hold'"),
        (lambda raw: at(raw, "decision").update(gates=[]), "gates"),
        (lambda raw: raw.update(audit=None), "without audit"),
        (lambda raw: raw.update(utility=None), "without utility"),
        (lambda raw: at(raw, "audit").update(stress=None), "exactly where canaries"),
        (lambda raw: at(raw, "utility").update(simulation_without_privacy=False), "not what the arms say"),
        (lambda raw: at(raw, "accounting").update(mu=0.1), "sqrt"),
        (lambda raw: at(raw, "accounting").update(group=[{"devices": 2, "rho": 1.1, "epsilon": 8.0}]), "of one makes"),
        (lambda raw: at(raw, "accounting").update(group=[GROUP], failure=1e-9), "does not grow by the square"),
        (lambda raw: at(raw, "discovery").update(device_level_epsilon0=8.0), "messages at epsilon0"),
        (lambda raw: at(raw, "participation").update(observed_min_sep=4, observed_mins=4), "strictly between"),
        (lambda raw: at(raw, "mechanism").update(randomness="seeded"), "must say the same"),
        (lambda raw: at(raw, "population").update(synthetic=True), "must say the same"),
        (
            lambda raw: raw["data_accesses"].append({"stage": "s", "data": "private", "covered": True}),
            "by what and for whom",
        ),
        (
            lambda raw: raw["data_accesses"].append({"stage": "s", "data": "private", "covered": False, "reason": " "}),
            "say why",
        ),
        (lambda raw: raw.update(surprise=1), "Extra inputs"),
        (lambda raw: at(raw, "accounting").update(epsilon=float("inf")), "finite"),
    ],
)
def test_contradictions_are_refused(change: Callable[[dict], None], named: str) -> None:
    raw = json.loads(example().model_dump_json())
    Disclosure.model_validate(raw)
    change(raw)
    with pytest.raises(ValidationError, match=named):
        Disclosure.model_validate(raw)


def test_schema_can_be_exported_and_closes_every_block() -> None:
    schema = Disclosure.model_json_schema()
    assert schema["properties"]["schema_version"]["const"] == schema["properties"]["schema_version"]["default"]
    blocks = {"Disclosure": schema} | schema["$defs"]
    assert {"Accounting", "Participation", "DiscoveryBlock", "DataAccess"} <= set(blocks)
    assert [name for name, block in blocks.items() if block["additionalProperties"] is not False] == []
