"""``tacit shuffle``: the statement as text and as JSON, and errors with their exit code."""

import json

import pytest
import typer
from typer.testing import CliRunner

from pipeline.cli.shuffle import shuffle

APP = typer.Typer()
APP.command()(shuffle)
PAPER = ["--epsilon0", "10", "--messages", "30000000", "--domain", "1000000", "--delta", "1e-10"]


def asked(*arguments: str):
    return CliRunner().invoke(APP, list(arguments))


def test_the_statement_is_five_lines_or_one_object():
    told = json.loads(asked(*PAPER, "--json").stdout)
    assert (told["k"], told["unit"], told["adjacency"]) == (45, "item", "swap")
    text = asked(*PAPER).stdout
    assert text.startswith("epsilon 0.31 at delta 1e-10 by ")
    assert "item level, swap adjacency" in text
    assert "erratum, not certified" in text


@pytest.mark.parametrize(
    ("change", "named"),
    [(("--k", "0"), "k: got 0"), (("--domain", "1"), "domain: got 1"), (("--delta", "0"), "delta")],
)
def test_what_cannot_be_is_refused(change, named):
    done = asked(*PAPER, *change)
    assert done.exit_code == 65
    assert named in done.output
