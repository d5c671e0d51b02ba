"""``tacit explain``: every exit code, gate and field has its words, in one place each."""

import json

import pytest

from pipeline.cli.explain import fields_of
from pipeline.ground.errors import ENDINGS, HELD, PERMANENT, TEMPORARY, BudgetExceeded, StageBusy, exit_code
from pipeline.launch.config import LaunchConfig
from pipeline.publication.gates.words import GATES
from tests.helpers.launches.command import ROOT, ended


def answer(name: str, code: int = 0) -> dict:
    return json.loads(ended("explain", name, "--json", code=code, variables={"TACIT_HOME": str(ROOT)}).stdout)


def test_every_field_says_what_it_means():
    fields = list(fields_of(LaunchConfig))
    assert len({path for path, _, _ in fields}) > 120
    blocks = {path.rpartition(".")[0] for path, _, _ in fields}
    assert [path for path, _, field in fields if not field.description and path not in blocks] == []
    assert [path for path, _, field in fields if (field.description or "").endswith(".")] == [], "no sentence, a phrase"


@pytest.mark.parametrize("path", ["mechanism.noise_multiplier", "policy.budget.rho", "private_text.test_fraction"])
def test_a_field_says_what_it_takes_and_shows_a_line_that_ships(path: str):
    (field,) = answer(path)["fields"]
    assert field["path"] == path
    assert "a number" in field["takes"]
    line, _, file = field["example"].partition(", in ")
    assert line in (ROOT / file).read_text(encoding="utf-8")


def test_bounds_choices_defaults_and_kinds():
    restarts = answer("restarts")["fields"][0]
    assert restarts["takes"] == "a list, each a whole number, at most 1,000 long, at least 1, at most 100,000"
    assert (restarts["where"], restarts["default"]) == ("kind: tree, kind: blt", "[]")
    assert answer("server.optimizer")["fields"][0]["takes"] == "one of momentum, nesterov, sgd, adam"
    assert answer("seed")["fields"][0]["default"] is None
    assert "kind: banded" in answer("mechanism")["fields"][0]["takes"]
    assert answer("policy.cover_everything")["fields"][0]["gates"] == ["covered"]
    assert len(answer("noise_multiplier")["fields"]) == 4, "one for each block that has one"


@pytest.mark.parametrize("gate", GATES)
def test_a_gate_names_its_field_and_the_field_its_gate(gate: str):
    words = answer(gate)
    assert words["asks"]
    assert words["fix"]
    if words["field"]:
        (field,) = answer(words["field"])["fields"][:1]
        assert gate in field["gates"]


def test_a_name_of_both_a_gate_and_a_field_shows_both():
    both = answer("min_sep")
    assert both["gate"] == "min_sep"
    assert [field["path"] for field in both["fields"]] == ["mechanism.min_sep"]


@pytest.mark.parametrize("code", ENDINGS)
def test_exit_codes(code: int):
    assert answer(str(code))["means"] == ENDINGS[code].means


def test_codes_of_errors_are_explained():
    assert {exit_code(BudgetExceeded()), exit_code(StageBusy()), HELD} == {PERMANENT, TEMPORARY, HELD} <= ENDINGS.keys()


def test_a_wrong_name_is_answered_with_close_ones():
    assert "did you mean noise_multiplier" in answer("noise_multiplyer", code=65)["error"]
    assert "did you mean policy.min_top1_gain" in answer("POLICY.MIN_TOP1_GAIN", code=65)["error"]
    assert "lists all names" in answer("qqqqqqq", code=65)["error"]
    text = ended("explain").stdout
    assert all(name in text for name in ("exit codes", "utility", "mechanism.noise_multiplier"))
