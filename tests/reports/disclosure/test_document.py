"""A disclosure that contradicts itself is no disclosure."""

import json
from collections.abc import Callable

import pytest
from pydantic import ValidationError

from reports.disclosure.document import Disclosure
from tests.helpers.reports.reports_example import (
    COUNTS,
    EVALUATION,
    LOCAL_WORDS,
    TRAINING,
    block,
    example,
    group_of,
    releases,
)

GROUP = group_of(block("accounting"), 2, 17.0)
NOISED_ALONE = GROUP | {"epsilon": 10.9, "parts": [GROUP["parts"][1] | {"epsilon": 10.9}]}

AMPLIFIED = {"sampling": "poisson", "sampling_rate": 0.01, "epsilon": 1.0, "epsilon_second": None, "methods": ["one"]}
AMPLIFIED |= {"adjacency": "zero-out", "assumption": "nobody tells"}


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
        (lambda raw: at(raw, "utility").update(simulation_without_privacy=False), "contradicts the arms"),
        (lambda raw: at(raw, "accounting").update(mu=0.1), "sqrt"),
        (lambda raw: at(raw, "accounting").update(group=[GROUP | {"devices": 3}]), "all releases of one"),
        (lambda raw: at(raw, "accounting").update(group=[NOISED_ALONE]), "all releases of one"),
        (lambda raw: at(raw, "accounting").update(group=[GROUP], failure=1e-9), "group: no group bound"),
        (lambda raw: at(raw, "releases", 0).update(device_level_epsilon0=8.0), "messages at epsilon0"),
        (lambda raw: at(raw, "releases", 1, "participation").update(observed_mins=4), "strictly between"),
        (lambda raw: at(raw, "releases", 1).update(amplified=AMPLIFIED), "not sampled in secret"),
        (lambda raw: at(raw, "releases", 1).update(name="counts"), "counts"),
        (lambda raw: at(raw, "accounting").update(randomness="seeded"), "must say the same"),
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


@pytest.mark.parametrize(
    "wrong",
    [
        [LOCAL_WORDS, COUNTS, TRAINING],  # evaluation is in the total, and no release
        [LOCAL_WORDS, COUNTS, TRAINING, EVALUATION, EVALUATION],
        [LOCAL_WORDS, COUNTS | {"rho": 0.2}, TRAINING, EVALUATION],
        [LOCAL_WORDS, COUNTS, TRAINING | {"rho": 0.4, "mu": 0.8**0.5}, EVALUATION],
        [LOCAL_WORDS, COUNTS, TRAINING, EVALUATION | {"rho": 0.55}],
        [LOCAL_WORDS | {"device_epsilon_central": 3.0}, COUNTS, TRAINING, EVALUATION],
    ],
)
def test_the_total_is_of_the_releases_that_were_made(wrong: list[dict]) -> None:
    right = releases(LOCAL_WORDS, COUNTS, EVALUATION)
    example(**right)
    with pytest.raises(ValidationError, match=r"accounting\.total"):
        example(**right | {"releases": wrong})


def test_the_split_that_loses_more_counts() -> None:
    for rho in (0.1, 5.0):
        made = releases(LOCAL_WORDS, EVALUATION | {"rho": rho})
        assert example(**made).accounting.rho == max(rho, TRAINING["rho"])
        for other in (min(rho, TRAINING["rho"]), rho + TRAINING["rho"]):
            accounting = made["accounting"] | {"rho": other, "mu": (2 * other) ** 0.5}  # type: ignore[operator]
            with pytest.raises(ValidationError, match="the largest loss of a split"):
                example(**made | {"accounting": accounting})


def test_schema_can_be_exported_and_closes_every_block() -> None:
    schema = Disclosure.model_json_schema()
    assert schema["properties"]["schema_version"]["const"] == schema["properties"]["schema_version"]["default"]
    blocks = {"Disclosure": schema} | schema["$defs"]
    assert {"Accounting", "Participation", "LocalWords", "DataAccess"} <= set(blocks)
    assert [name for name, block in blocks.items() if block["additionalProperties"] is not False] == []
