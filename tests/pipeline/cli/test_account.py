"""``tacit account``: the same numbers as the accountant, small tables, and one clear line for every mistake."""

import os
from pathlib import Path

import numpy as np
import pytest

from federated.accounting import guarantees as accounting
from federated.mechanisms import Banded, Blt, Independent, Tree
from federated.mechanisms import mechanism_file as files
from pipeline import runner, settings
from pipeline.config import LaunchConfig, launch_id
from pipeline.stage import Stage, StageContext
from pipeline.stages.graph import STAGES
from tests.helpers.launches.account_command import answer, run
from tests.helpers.launches.installed import installed
from tests.helpers.launches.pipeline_launch import RAW, Counted, launch_config, spend, stand_in
from tests.helpers.launches.stages import stages_of

SHAPE = ("--rounds", "1000", "--min-sep", "300", "--max-participations", "4")
TREE = ("tree", "--noise-multiplier", "7", *SHAPE)


def test_tree() -> None:
    told = answer(*TREE, "--delta", "1e-10", "--delta", "1e-6", "--twice")
    reached = accounting.guarantee_of(Tree(7.0), 1000, 300, 4, (1e-10, 1e-6))
    assert told["sensitivity_squared"] == reached.sensitivity_squared
    assert told["rho"] == pytest.approx(told["sensitivity_squared"] / 98)
    assert told["mu"] == pytest.approx((2 * told["rho"]) ** 0.5)
    assert told["epsilon"] == {"1e-10": reached.epsilon[1e-10], "1e-06": reached.epsilon[1e-6]}
    assert told["epsilon_pld"] == pytest.approx(told["epsilon"], abs=1e-3)
    assert (told["unit"], told["adjacency"], told["mins"]) == ("device", "zero-out", 299)
    assert "Balle and Wang" in told["method"]
    assert "amplified" not in told
    by_mins = answer(
        "tree", "--noise-multiplier", "7", "--rounds", "1000", "--mins", "299", "--max-participations", "4"
    )
    assert by_mins["sensitivity_squared"] == told["sensitivity_squared"]


@pytest.mark.parametrize(
    ("command", "extra", "mechanism"),
    [
        ("tree", ("--noise-multiplier", "7"), lambda starts: Tree(7.0, starts)),
        (
            "blt",
            ("--theta", "0.9,0.5", "--omega", "0.2,0.3", "--noise-multiplier", "7"),
            lambda starts: Blt(7.0, (0.9, 0.5), (0.2, 0.3), starts),
        ),
    ],
)
def test_restarts(command: str, extra: tuple[str, ...], mechanism) -> None:
    told = answer(command, *extra, *SHAPE, "--restarts", "128,256")
    reached = accounting.guarantee_of(mechanism((128, 256)), 1000, 300, 4, (1e-10,))
    assert told["rho"] == reached.rho
    assert told["rho"] != answer(command, *extra, *SHAPE)["rho"]


def test_blt_of_the_paper() -> None:
    shape = ("--rounds", "1280", "--mins", "300", "--max-participations", "4")
    told = answer("blt", "--preset", "min-sep-400", "--noise-multiplier", "7.379", *shape)
    assert told["rho"] == pytest.approx(0.153371, abs=1e-6)
    assert told["epsilon"]["1e-10"] == pytest.approx(3.4565, abs=1e-4)


def test_banded_needs_no_search_for_its_guarantee() -> None:
    shape = ("--rounds", "60", "--min-sep", "20", "--max-participations", "3")
    told = answer("banded", "--bands", "20", "--noise-multiplier", "2", *shape)
    assert told["sensitivity_squared"] == pytest.approx(3.0)
    from federated.mechanisms.optimise_banded import optimise_banded

    searched = optimise_banded(60, 20, 3, 20).strategy
    assert searched.sensitivity_squared(60, 20, 3) == pytest.approx(told["sensitivity_squared"])
    # A Toeplitz strategy's last columns are cut short, so it depends on the search.
    uneven = ("--rounds", "50", "--min-sep", "20", "--max-participations", "3")
    toeplitz = answer("banded", "--bands", "20", "--form", "toeplitz", "--noise-multiplier", "2", *uneven)
    assert 2 < toeplitz["sensitivity_squared"] < 3


@pytest.mark.slow
def test_independent_says_what_sampling_gains() -> None:
    shape = ("--noise-multiplier", "2", "--rounds", "20", "--delta", "1e-6")
    told = answer("independent", "--sampling", "poisson", "--sampling-rate", "0.01", *shape)
    assert told["rho"] == 20 / 8
    gained = told["amplified"]
    assert gained["epsilon"]["1e-06"] < gained["epsilon_second"]["1e-06"] < told["epsilon"]["1e-06"]
    assert gained["epsilon_unamplified"] == pytest.approx(told["epsilon"], rel=1e-6)
    assert (gained["adjacency"], gained["sampling_rate"]) == ("zero-out", 0.01)
    assert "secret" in gained["assumption"]
    fixed = answer("independent", "--sampling", "fixed", "--population", "5000", "--report-goal", "50", *shape)
    assert fixed["amplified"]["adjacency"] == "replace-one"
    assert fixed["amplified"]["epsilon_second"] is None
    assert fixed["amplified"]["epsilon"]["1e-06"] > gained["epsilon"]["1e-06"]
    text = run("independent", "--sampling", "poisson", "--population", "5000", "--report-goal", "50", *shape).stdout
    for part in ("with sampling", "rate 0.01", "only if", "second accountant"):
        assert part in text


def test_text_is_a_small_table() -> None:
    text = run(*TREE, "--delta", "1e-10").stdout
    rows = dict(line.split("  ", 1) for line in text.splitlines() if not line.startswith(" "))
    assert rows["sensitivity^2"].strip() == "38"
    # Rounded up: the epsilon is 5.6985.
    assert rows["epsilon at delta 1e-10"].strip() == "5.70"
    assert rows["per"].strip() == "device, zero-out adjacency"
    assert rows["for"].strip() == "1,000 rounds, each device in 4 at most, 300 apart (MinS 299)"
    assert max(map(len, text.splitlines())) <= 110


MECHANISMS = {
    "tree": (Tree(7.0, (128,)), SHAPE),
    "blt": (Blt(3.0, (0.9,), (0.3,)), SHAPE),
    "banded": (Banded(2.0, np.ones((1000, 1))), SHAPE),
    "independent": (Independent(2.0, "poisson", 0.01, 100), ("--rounds", "20")),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", MECHANISMS)
def test_mechanism_file(kind: str, tmp_path: Path) -> None:
    mechanism, shape = MECHANISMS[kind]
    files.save(mechanism, tmp_path / "mechanism.json")
    told = answer(kind, "--mechanism", str(tmp_path / "mechanism.json"), *shape)
    limits = (20, 1, 20) if kind == "independent" else (1000, 300, 4)
    assert told["rho"] == accounting.guarantee_of(mechanism, *limits, (1e-10,)).rho
    other = "blt" if kind != "blt" else "tree"
    error = answer(other, "--mechanism", str(tmp_path / "mechanism.json"), *SHAPE, code=65)["error"]
    assert f"holds kind {kind}; use: tacit account {kind} --mechanism" in error


def test_shuffle() -> None:
    few, many = (
        answer("shuffle", "--epsilon0", "4", "--messages", messages, "--domain", "100", "--delta", "1e-8")["clones"]
        for messages in ("1000", "1000000")
    )
    assert 0 < many < few <= 4


BLT = ("blt", "--noise-multiplier", "7", *SHAPE)
BANDED = ("banded", "--noise-multiplier", "7", *SHAPE)
POISSON = ("independent", "--sampling", "poisson", "--rounds", "9", "--noise-multiplier", "1")
FIXED = ("independent", "--sampling", "fixed", "--rounds", "9", "--noise-multiplier", "1")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("tree", "--noise-multiplier", "0", *SHAPE), "noise-multiplier: got 0.0; give a finite number above 0"),
        (("tree", "--noise-multiplier", "nan", *SHAPE), "noise-multiplier: got nan"),
        (("tree", *SHAPE), "noise-multiplier: missing"),
        (TREE[:7], "max-participations: missing; give --max-participations"),
        (("tree", "--mins", "9"), "rounds: missing; give --rounds, or name a launch"),
        ((*TREE, "--mins", "299"), "not both"),
        ((*TREE[:5], "--mins", "-1", "--max-participations", "2"), "mins: got -1"),
        ((*TREE[:-1], "5"), "max_participations: 5 cannot happen, 1000 rounds at min_sep 300 allow at most 4"),
        ((*TREE, "--delta", "1"), "delta: got 1; give a number between 0 and 1"),
        ((*TREE, "--delta", "0"), "delta: got 0"),
        ((*TREE, "--restarts", "x"), "restarts: got 'x'; give numbers with commas"),
        ((*TREE, "--restarts", "128,1000"), "restarts: 128,1000 must rise and lie between 1 and 999"),
        ((*TREE, "--restarts", "256,128"), "restarts: 256,128 must rise"),
        ((*TREE, "trial"), "launch trial says this already"),
        ((*TREE, "--mechanism", "no.json"), "noise-multiplier: --mechanism says this already"),
        (("tree", *SHAPE, "--mechanism", "no.json"), "mechanism: no.json does not exist"),
        (("tree", "trial"), "launch: 'trial' is no launch file"),
        (BLT, "preset: give either --preset, or --theta and --omega"),
        ((*BLT, "--preset", "min-sep-9"), "'min-sep-9' does not exist; choose one of min-sep-100"),
        ((*BLT, "--theta", "0.5"), "theta, omega: 1 and 0 numbers"),
        ((*BLT, "--theta", "0.5", "--omega", "1.5"), "omega: the scales add up to 1.5"),
        (BANDED, "bands: missing; give --bands, at most 300"),
        ((*BANDED, "--bands", "301"), "bands: got 301; give 1 to 300"),
        ((*BANDED, "--bands", "0"), "bands: got 0"),
        (POISSON, "population: missing"),
        ((*POISSON, "--sampling-rate", "2"), "sampling-rate: got 2; give a number above 0 and at most 1"),
        ((*POISSON, "--sampling-rate", "0.1", "--population", "10"), "population: --sampling-rate says this already"),
        ((*FIXED, "--sampling-rate", "0.1"), "sampling-rate: rounds of a fixed size need --population"),
        ((*FIXED, "--population", "10", "--report-goal", "11"), "report-goal: got 11; give 1 to 10"),
        (("independent", "--rounds", "9", "--noise-multiplier", "1"), "sampling: missing"),
        (("--json",), "account: give --paper, or a mechanism"),
    ],
)
def test_a_mistake_is_one_line_with_the_fix(
    arguments: tuple[str, ...], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TACIT_HOME", str(tmp_path))
    done = run(*arguments, code=65)
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("error: "))
    assert named in line


@stand_in
class Stated(Counted):
    model_config = Counted.model_config | {"extra": "allow"}


def fine_tune(ctx: StageContext) -> Stated:
    """Numbers as training states them, of a run that kept well within its limits."""
    return Stated(
        value=1,
        rounds=6,
        observed_min_sep=3,
        observed_max_participations=2,
        participation_histogram={"1": 4},
        separation_histogram={"3": 1},
        violations=0,
        synthetic_devices=0,
        secagg=None,
        spend=spend(0.1),
    )


def plan(ctx: StageContext) -> Stated:
    files.save(Tree(6.0), ctx.public / "mechanism.json")
    return Stated(value=1)


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LaunchConfig:
    """A launch that has trained, with a mechanism file of its own."""
    monkeypatch.setenv("TACIT_HOME", str(tmp_path))
    installed(tmp_path, "people")
    config, here = launch_config(), settings.load(dict(os.environ))
    special = {"plan": plan, "fine_tune": fine_tune}
    stages = stages_of(
        {name: special.get(name, lambda ctx: Stated(value=1)) for name in STAGES},
        Stage("fine_tune", "", needs=("ingest_private",), planned=lambda config, run: spend(0.2)),
    )
    for name in ("ingest_private", "plan", "fine_tune"):
        runner.run_stage(name, config, launch_id(config), here, stages)
    return config


@pytest.mark.slow
def test_a_run_is_accounted_from_what_happened(trained: LaunchConfig) -> None:
    told = answer("tree", launch_id(trained))
    reached = accounting.guarantee_of(Tree(6.0), 6, 3, 2, (RAW["mechanism"]["delta"],))
    assert told["rho"] == reached.rho
    assert list(told["epsilon"]) == ["1e-06"]
    assert list(answer("tree", launch_id(trained), "--delta", "1e-9")["epsilon"]) == ["1e-09"]
    error = answer("blt", launch_id(trained), code=65)["error"]
    assert f"used kind tree; use: tacit account tree {launch_id(trained)}" in error
