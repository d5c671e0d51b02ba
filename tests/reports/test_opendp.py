"""A launch as a record of OpenDP's registry: by the registry's schema of the day that the adapter names."""

import datetime
import json
from typing import Any

import jsonschema
import pytest
import yaml

from reports.render import OPENDP_COMMIT, OPENDP_DAY, OPENDP_FILE, pages
from tests.helpers.launches.checkout import ROOT
from tests.helpers.reports.reports_example import block, example, group_of

SCHEMA = json.loads((ROOT / "reports" / "templates" / f"opendp-{OPENDP_DAY}.schema.json").read_text(encoding="utf-8"))
GROUP = [group_of(block("accounting"), 2, 17.2345)]


def record(**changes: object) -> dict[str, Any]:
    return yaml.safe_load(pages(example(**changes), {})[OPENDP_FILE])


def complaints(content: dict[str, Any]) -> list[str]:
    checks = jsonschema.Draft7Validator.FORMAT_CHECKER
    return [error.message for error in jsonschema.Draft7Validator(SCHEMA, format_checker=checks).iter_errors(content)]


def test_a_record_fits_and_has_the_numbers_of_the_report() -> None:
    stated = record(accounting=block("accounting", group=GROUP))
    assert complaints(stated) == []
    loss = stated["deployment"]["privacy_loss"]
    assert loss["privacy_parameters"] == {"epsilon": 7.03, "delta": 1e-6}, "words have no rho"
    assert "2 devices has epsilon 17.24" in loss["privacy_parameters_details"]
    assert "ab_test: held-out aggregates" in stated["deployment"]["dp_variant"]["unprotected_quantities"]
    assert datetime.date.fromisoformat(stated["deployment"]["basic"]["publication_date"])
    spends = [*block("composition")["spends"], block("composition")["spends"][0] | {"launch_id": "earlier"}]
    several = record(composition=block("composition", spends=spends))["deployment"]["deployment_model"]
    assert several["release_type"] == "Many releases"
    assert "2 launches have spent" in several["release_type_details"]
    assert record()["deployment"]["deployment_model"]["release_type"] == "One release"


@pytest.mark.parametrize(
    "evil", ['x"\nstatus: Approved', "a: b # c\n- d", "{{ 7 * 7 }} {% raw %}", "\u2028\n  tier: 1", "`<script>`"]
)
def test_no_text_of_a_disclosure_becomes_a_field(evil: str) -> None:
    launch = block("launch", id=evil, contact=evil, intended_use=evil, locale=evil)
    stated = record(launch=launch, unit=evil, adjacency=evil, output=evil, limitations=[evil], assumptions=[evil])
    assert complaints(stated) == []
    assert (stated["status"], stated["tier"]) == ("Draft", 3)
    assert stated["deployment"]["basic"]["data_curators"] == [evil]


def test_what_is_no_deployment_has_no_record() -> None:
    gates = [block("decision")["gates"][0] | {"passed": False}]
    held = example(decision=block("decision", decision="hold", gates=gates))
    seeded = block("accounting", randomness="seeded")
    void = example(launch=block("launch", seeded_randomness=True), accounting=seeded)
    assert not any(OPENDP_FILE in pages(each, {}) for each in (held, void))


def test_a_record_says_by_which_schema_it_was_written() -> None:
    assert f"as of {OPENDP_DAY} (commit {OPENDP_COMMIT[:7]})" in pages(example(), {})[OPENDP_FILE]
    assert OPENDP_COMMIT in SCHEMA["$comment"]
    assert OPENDP_DAY in SCHEMA["$comment"]
