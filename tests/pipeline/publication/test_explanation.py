"""Explanations: every exit code, gate and field has its words, in one place each."""

import pytest

from pipeline.ground.errors import ENDINGS, HELD, PERMANENT, TEMPORARY, BudgetExceeded, StageBusy, exit_code
from pipeline.launch.config import LaunchConfig
from pipeline.publication.explanation import (
    FieldMeanings,
    FieldWords,
    GateMeaning,
    TermMeaning,
    completions,
    fields_of,
    meaning,
    names,
)
from pipeline.publication.gates.words import GATES
from tests.helpers.launches.checkout import ROOT


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples are of the launch files of this checkout."""
    monkeypatch.setenv("TACIT_HOME", str(ROOT))


def fields(name: str) -> tuple[FieldWords, ...]:
    found = meaning(name)
    assert isinstance(found, FieldMeanings | GateMeaning | TermMeaning)
    return found.fields


def test_every_field_says_what_it_means():
    every = list(fields_of(LaunchConfig))
    assert len({path for path, _, _ in every}) > 120
    blocks = {path.rpartition(".")[0] for path, _, _ in every}
    assert [path for path, _, field in every if not field.description and path not in blocks] == []
    assert [path for path, _, field in every if (field.description or "").endswith(".")] == [], "no sentence, a phrase"


@pytest.mark.parametrize("path", ["mechanism.noise_multiplier", "policy.budget.rho", "private_text.test_fraction"])
def test_a_field_says_what_it_takes_and_shows_a_line_that_ships(path: str):
    (field,) = fields(path)
    assert field.path == path
    assert "a number" in field.takes
    line, _, file = field.example.partition(", in ")
    assert line in (ROOT / file).read_text(encoding="utf-8")


def test_bounds_choices_defaults_and_kinds():
    restarts = fields("restarts")[0]
    assert restarts.takes == "a list, each a whole number, at most 1,000 long, at least 1, at most 100,000"
    assert (restarts.where, restarts.default) == ("kind: tree, kind: blt", "[]")
    assert fields("server.optimizer")[0].takes == "one of momentum, nesterov, sgd, adam"
    assert fields("seed")[0].default is None
    assert "kind: banded" in fields("mechanism")[0].takes
    assert fields("policy.cover_everything")[0].gates == ("covered",)
    assert len(fields("noise_multiplier")) == 4, "one for each block that has one"


@pytest.mark.parametrize("gate", GATES)
def test_a_gate_names_its_field_and_the_field_its_gate(gate: str):
    words = meaning(gate)
    assert isinstance(words, GateMeaning)
    assert words.asks
    assert words.fix
    if words.field:
        assert gate in fields(words.field)[0].gates


def test_a_name_of_both_a_gate_and_a_field_shows_both():
    both = meaning("min_sep")
    assert isinstance(both, GateMeaning)
    assert both.gate == "min_sep"
    assert [field.path for field in both.fields] == ["mechanism.min_sep"]


def test_codes_of_errors_are_explained():
    assert {exit_code(BudgetExceeded()), exit_code(StageBusy()), HELD} == {PERMANENT, TEMPORARY, HELD} <= ENDINGS.keys()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("noise_multiplyer", "did you mean noise_multiplier"),
        ("POLICY.MIN_TOP1_GAIN", "did you mean policy.min_top1_gain"),
        ("qqqqqqq", "lists all names"),
    ],
)
def test_a_wrong_name_is_answered_with_close_ones(name: str, says: str):
    with pytest.raises(ValueError, match=says):
        meaning(name)


def test_names_are_completed_and_a_field_s_last_name_too():
    every = names()
    assert {*map(str, every.codes), *every.gates, *every.fields, "noise_multiplier"} <= set(completions())
    assert completions("mechanism.noise") == ["mechanism.noise_multiplier"]
