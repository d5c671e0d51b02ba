"""Plain words are what YAML 1.2's core schema takes them for."""

import math

import pytest
from ruamel.yaml import YAML

from pretrain.reading import yaml_text

# Kinds that a reader of YAML 1.2 may know beside the core schema, or that hide a number.
TEXT_HERE = ("010", "00.5", "0x1f", "0o7", "2026-01-01", "2026-01-01T10:00:00Z", "=", "<<")
WORDS = ("yes", "no", "on", "Off", "y", "1:30", "1:30:15", "true", "True", "FALSE", "tRue", "null", "~", "Null", "")
WORDS += (
    "0",
    "-0",
    "+3",
    "17",
    "1_000",
    "2_000_000",
    "1e-6",
    "1.0e-6",
    "1e",
    "e1",
    "5.",
    ".5",
    "-.5",
    ".",
    "+",
    "1.5E3",
)
WORDS += (".inf", "-.INF", ".nan", ".Inf", "1.2.3", "1-2", "1_0.5", "no-letter", "@monthly", "0 6 1 * *")


@pytest.mark.parametrize("word", WORDS)
def test_as_a_reader_of_yaml_1_2(word: str):
    text = f"a: '{word}'" if word.startswith("@") else f"a: {word}"
    here, there = (load(text) for load in (lambda text: yaml_text.load(text, "f"), YAML(typ="safe", pure=True).load))
    assert type(here["a"]) is type(there["a"])
    assert here == there or (math.isnan(here["a"]) and math.isnan(there["a"]))


@pytest.mark.parametrize("word", TEXT_HERE)
def test_what_only_some_readers_convert_stays_text(word: str):
    assert yaml_text.load(f"a: {word}", "f") == {"a": word}
