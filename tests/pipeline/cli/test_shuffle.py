"""``tacit shuffle``: three numbers in their order, each within a second, and errors that say what to do."""

import json
import time

import pytest
import typer
from typer.testing import CliRunner

from discovery.device.randomizer import subset_selection
from pipeline.cli.shuffle import shuffle

APP = typer.Typer()
APP.command()(shuffle)
PAPER = ["--epsilon0", "10", "--messages", "30000000", "--domain", "1000000", "--delta", "1e-10"]


def asked(*arguments: str):
    return CliRunner().invoke(APP, list(arguments))


def test_the_paper_s_parameters_and_the_tighter_number_beside():
    began = time.process_time()
    done = asked(*PAPER, "--json")
    assert time.process_time() - began < 3  # three bounds, each within a second
    answer = json.loads(done.stdout)
    assert answer["attack"] <= answer["blanket"] <= answer["clones"] <= answer["epsilon0"]
    assert answer["clones"] == pytest.approx(0.307467, abs=1e-6)
    assert answer["blanket"] == pytest.approx(0.148477, rel=2e-3)
    assert answer["k"] == subset_selection(10.0, 1_000_000).size == 45
    assert "not certified" in answer["closed_2023_note"]
    text = asked(*PAPER).stdout
    assert "item level, swap adjacency" in text
    assert "erratum, not certified" in text


def test_the_size_of_a_message_can_be_given():
    few, many = (json.loads(asked(*PAPER, "--k", k, "--json").stdout)["blanket"] for k in ("1", "45"))
    assert few != many


@pytest.mark.parametrize(
    ("change", "named"),
    [(("--k", "0"), "k: got 0"), (("--domain", "1"), "domain: got 1"), (("--delta", "0"), "delta")],
)
def test_what_cannot_be_is_refused(change, named):
    done = asked(*PAPER, *change)
    assert done.exit_code == 65
    assert named in done.output


def test_more_messages_hide_better():
    few, many = (
        json.loads(
            asked("--epsilon0", "4", "--messages", messages, "--domain", "100", "--delta", "1e-8", "--json").stdout
        )["clones"]
        for messages in ("1000", "1000000")
    )
    assert 0 < many < few <= 4
