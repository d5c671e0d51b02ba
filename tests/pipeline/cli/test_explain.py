"""``tacit explain``: a meaning as text and as JSON."""

import json

from tests.helpers.launches.command import ROOT, ended


def explained(*asked: str, code: int = 0) -> str:
    return ended("explain", *asked, code=code, variables={"TACIT_HOME": str(ROOT)}).stdout


def test_a_meaning_is_a_few_lines_and_its_fields_as_json():
    assert explained("65").startswith("exit code 65: ")
    gate, _, field = explained("min_sep").partition("\n\nmechanism.min_sep")
    assert gate.startswith("gate min_sep: ")
    assert "  takes:   a whole number" in field
    told = json.loads(explained("min_sep", "--json"))
    assert list(told) == ["gate", "asks", "field", "fix", "absent", "chance", "fields"]
    assert told["fields"][0]["path"] == "mechanism.min_sep"


def test_a_wrong_name_is_an_error():
    assert "did you mean noise_multiplier" in json.loads(explained("noise_multiplyer", "--json", code=65))["error"]


def test_without_a_name_all_are_listed():
    assert all(name in explained() for name in ("exit codes", "utility", "zero-out", "mechanism.noise_multiplier"))


def test_a_term_is_found_by_each_of_its_names_and_stands_before_fields_of_its_name():
    for name in ("\u03c1", "Rho", "mu"):
        assert explained(name).startswith("\u03c1 (rho), \u03bc (mu): "), name
    told = json.loads(explained("rho", "--json"))
    assert "policy.budget.rho" in [row["path"] for row in told["fields"]]
