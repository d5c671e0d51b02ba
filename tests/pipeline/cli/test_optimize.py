"""``tacit optimize`` finds published optima, and a launch file takes what it prints."""

import json

import pytest

from federated.config.mechanism import BltMechanism
from federated.mechanisms import build
from tests.helpers.launches.command import invoked


def answer(*arguments: str) -> dict:
    return json.loads(invoked(["--quiet", "optimize", *arguments, "--json"]).stdout)


RUN = ("--rounds", "2052", "--min-sep", "342", "--max-participations", "6")


def test_blt_reaches_the_published_loss_and_fits_a_launch_file() -> None:
    found = answer("blt", *RUN, "--num-buffers", "2", "--loss", "max")
    assert found["max_loss"] == pytest.approx(10.8063, abs=2e-4)  # McMahan et al. 2024, table 3: 10.81
    assert found["rms_loss"] == pytest.approx(9.34, abs=0.01)
    config = BltMechanism(
        kind="blt",
        theta=found["theta"],
        omega=found["omega"],
        noise_multiplier=7.0,
        clip_norm=1.0,
        rounds=2052,
        report_goal=10,
        min_sep=342,
        max_participations=6,
        delta=1e-10,
        randomness="seeded",
    )
    squared = build(config).sensitivity_squared(2052, 342, 6)
    assert squared == pytest.approx(found["sensitivity_squared"])


def test_banded_has_unit_columns() -> None:
    found = answer("banded", "--rounds", "60", "--min-sep", "15", "--max-participations", "4")
    assert found["sensitivity_squared"] == pytest.approx(4)
    assert found["rms_loss"] < found["max_loss"]


def test_what_cannot_happen_is_refused_with_the_reason() -> None:
    refused = answer("blt", "--rounds", "2052", "--min-sep", "342", "--max-participations", "7")
    assert refused["exit_code"] == 65
    assert "at most 6" in refused["error"]
