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
    assert all(name in explained() for name in ("exit codes", "utility", "mechanism.noise_multiplier"))
