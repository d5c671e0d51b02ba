"""``tacit account``: the same numbers as the accountant, small tables, and one clear line for every mistake."""

import os
from pathlib import Path

import numpy as np
import pytest

from federated.accounting import guarantees as accounting
from federated.accounting.published_rows import ROWS, SETTINGS
from federated.mechanisms import Banded, Blt, Independent, Tree
from federated.mechanisms import mechanism_file as files
from pipeline.ground import settings
from pipeline.launch.config import LaunchConfig, launch_id, load_launch
from pipeline.run import runner
from pipeline.run.stage import Stage, StageContext
from pipeline.stages.graph import STAGES
from tests.helpers.launches.account_command import answer, run
from tests.helpers.launches.checkout import ROOT
from tests.helpers.launches.installed import installed
from tests.helpers.launches.pipeline_launch import RAW, Counted, launch_config, spend, stand_in, write_launch
from tests.helpers.launches.stages import stages_of

SHAPE = "rounds: 1000, min_sep: 300, max_participations: 4"
TREE = ("--mechanism", f"kind: tree, noise_multiplier: 7, {SHAPE}")
DEMO = ROOT / "dags" / "launches" / "demo-en-US.yaml"


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


@pytest.mark.parametrize(
    "block",
    [
        f"{{kind: tree, noise_multiplier: 7, {SHAPE}}}",
        f"kind: tree\nnoise_multiplier: 7\n{SHAPE.replace(', ', chr(10))}",
        f"kind: tree,\n  noise_multiplier: 7, {SHAPE}",
    ],
)
def test_a_block_is_yaml_in_any_form_and_a_file_too(block: str, tmp_path: Path) -> None:
    (tmp_path / "block.yaml").write_text(block if block[0] == "{" else f"{{{block}}}" if "," in block else block)
    told = answer(*TREE)
    assert answer("--mechanism", block) == told
    assert answer("--mechanism", str(tmp_path / "block.yaml")) == told


def test_a_single_field_is_changed_and_the_block_is_a_launch_file_s(tmp_path: Path) -> None:
    told, block = answer(str(DEMO)), load_launch(DEMO).mechanism
    assert told["rho"] == pytest.approx(accounting.account(block).rho)
    assert list(told["epsilon"]) == [f"{block.delta:g}"]
    louder = answer(str(DEMO), "--set", f"noise_multiplier={2 * block.noise_multiplier}", "--set", "delta=1e-9")
    assert louder["rho"] == pytest.approx(told["rho"] / 4)
    assert list(louder["epsilon"]) == ["1e-09"]
    assert list(answer(str(DEMO), "--delta", "1e-7")["epsilon"]) == ["1e-07"]


@pytest.mark.parametrize(
    ("block", "mechanism"),
    [
        ("kind: tree", lambda starts: Tree(7.0, starts)),
        ("kind: blt, theta: [0.9, 0.5], omega: [0.2, 0.3]", lambda starts: Blt(7.0, (0.9, 0.5), (0.2, 0.3), starts)),
    ],
)
def test_restarts(block: str, mechanism) -> None:
    asked = ("--mechanism", f"{block}, noise_multiplier: 7, {SHAPE}")
    told = answer(*asked, "--set", "restarts=[128, 256]")
    reached = accounting.guarantee_of(mechanism((128, 256)), 1000, 300, 4, (1e-10,))
    assert told["rho"] == reached.rho
    assert told["rho"] != answer(*asked)["rho"]


def test_blt_of_the_paper() -> None:
    shape = "rounds: 1280, min_sep: 301, max_participations: 4"
    told = answer("--preset", "min-sep-400", "--mechanism", f"noise_multiplier: 7.379, {shape}")
    assert told["rho"] == pytest.approx(0.153371, abs=1e-6)
    assert told["epsilon"]["1e-10"] == pytest.approx(3.4565, abs=1e-4)
    assert answer("--preset", "es-ES BLT-7.379") == told


PRINTED = {row.row: row for row in ROWS if row.quantity == "rho" and row.row in SETTINGS and row.follows}


@pytest.mark.slow
@pytest.mark.parametrize("name", PRINTED)
def test_a_published_launch_has_its_published_loss(name: str) -> None:
    least, most = PRINTED[name].accepted
    assert least <= answer("--preset", name)["rho"] <= most


def test_every_paper_s_launches_are_presets() -> None:
    assert {"NWP de-DE", "OTF ru-RU", "id-ID TreeAgg-7", "pt-PT BLT-3.12", "pt-BR BandMF-4.523"} <= set(PRINTED)
    assert len(SETTINGS) == 32


def test_banded_needs_no_search_for_its_guarantee() -> None:
    limits = "rounds: 60, min_sep: 20, max_participations: 3, bands: 20"
    told = answer("--mechanism", f"kind: banded, noise_multiplier: 2, {limits}")
    assert told["sensitivity_squared"] == 3.0
    from federated.mechanisms.optimise_banded import optimise_banded

    searched = optimise_banded(60, 20, 3, 20).strategy
    assert searched.sensitivity_squared(60, 20, 3) == pytest.approx(told["sensitivity_squared"])


@pytest.mark.slow
def test_independent_says_what_sampling_gains() -> None:
    poisson = "kind: independent, noise_multiplier: 2, rounds: 20, population: 5000, report_goal: 50, delta: 1.0e-6"
    told = answer("--mechanism", poisson, "--set", "sampling=poisson")
    assert told["rho"] == 20 / 8
    gained = told["amplified"]
    assert gained["epsilon"]["1e-06"] < gained["epsilon_second"]["1e-06"] < told["epsilon"]["1e-06"]
    assert gained["epsilon_unamplified"] == pytest.approx(told["epsilon"], rel=1e-6)
    assert (gained["adjacency"], gained["sampling_rate"]) == ("zero-out", 0.01)
    assert "secret" in gained["assumption"]
    fixed = answer("--mechanism", poisson, "--set", "sampling=fixed")
    assert fixed["amplified"]["adjacency"] == "replace-one"
    assert fixed["amplified"]["epsilon_second"] is None
    assert fixed["amplified"]["epsilon"]["1e-06"] > gained["epsilon"]["1e-06"]
    text = run("--mechanism", poisson, "--set", "sampling=poisson").stdout
    for part in ("with sampling", "rate 0.01", "only if", "second accountant"):
        assert part in text


def test_rounding_before_secure_aggregation_is_said_to_be_left_out() -> None:
    told = answer(*TREE, "--set", "secagg={bits: 32}")
    assert accounting.WITHOUT_ROUNDING in told["method"]
    assert told["rho"] == answer(*TREE)["rho"]


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
    "tree": (Tree(7.0, (128,)), f"kind: tree, noise_multiplier: 7, restarts: [128], {SHAPE}"),
    "blt": (Blt(3.0, (0.9,), (0.3,)), f"kind: blt, noise_multiplier: 3, theta: [0.9], omega: [0.3], {SHAPE}"),
    "banded": (Banded(2.0, np.full((1000, 1), 1.5)), f"kind: banded, noise_multiplier: 2, bands: 1, {SHAPE}"),
    "independent": (
        Independent(2.0, "poisson", 0.01, 100),
        "kind: independent, noise_multiplier: 2, sampling: poisson, population: 100, report_goal: 1, rounds: 20",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", MECHANISMS)
def test_strategy_of_a_mechanism_file(kind: str, tmp_path: Path) -> None:
    mechanism, block = MECHANISMS[kind]
    files.save(mechanism, tmp_path / "mechanism.json")
    asked = ("--mechanism", block, "--strategy", str(tmp_path / "mechanism.json"))
    limits = (20, 1, 20) if kind == "independent" else (1000, 300, 4)
    assert answer(*asked)["rho"] == accounting.guarantee_of(mechanism, *limits, (1e-10,)).rho
    error = answer(*asked, "--set", "noise_multiplier=5", code=65)["error"]
    assert "mechanism.json is not of this mechanism" in error


BLT = ("--mechanism", f"kind: blt, noise_multiplier: 7, {SHAPE}")
BANDED = ("--mechanism", f"kind: banded, noise_multiplier: 7, {SHAPE}")
FIXED = ("--mechanism", "kind: independent, sampling: fixed, rounds: 9, noise_multiplier: 1")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((*TREE, "--set", "noise_multiplier=0"), "mechanism.noise_multiplier: got 0; give a number at least 1e-09"),
        ((*TREE, "--set", "noise_multiplier=.nan"), "mechanism.noise_multiplier: got nan"),
        ((*TREE, "--set", "noise_multiplier=seven"), "mechanism.noise_multiplier: got 'seven'; give a number"),
        (("--preset", "min-sep-400"), "mechanism.noise_multiplier: missing; add it"),
        ((*TREE, "--set", "mins=299"), "mechanism.mins: no such field, got 299; did you mean 'min_sep'?"),
        ((*TREE, "--set", "kind=bush"), "mechanism.kind: got 'bush'; choose one of 'tree', 'blt'"),
        ((*TREE, "--set", "7"), "set: got '7'; write it as FIELD=VALUE"),
        ((*TREE, "--set", "rounds=[1"), "set rounds: not valid YAML"),
        (
            (*TREE, "--set", "max_participations=5"),
            "max_participations: 5 cannot happen, 1000 rounds at min_sep 300 allow at most 4",
        ),
        ((*TREE, "--delta", "1"), "delta: got 1; give a number between 0 and 1"),
        ((*TREE, "--delta", "0"), "delta: got 0"),
        ((*TREE, "--set", "restarts=[128, 1000]"), "restarts: [128, 1000] must rise and lie between 1 and 999"),
        ((*TREE, "--set", "restarts=[256, 128]"), "restarts: [256, 128] must rise"),
        ((*TREE, "--strategy", "no.json"), "strategy: no.json does not exist; give the mechanism.json"),
        (("--mechanism", "no.yaml"), "mechanism: no.yaml does not exist; give a file with a mechanism block"),
        (("--mechanism", "kind: tree: 7"), "mechanism: not valid YAML"),
        (("--mechanism", "\n- kind: tree"), "a block is a mapping of fields"),
        (("--mechanism", "mechanism: {kind: tree}"), "holds more than the fields of a mechanism block"),
        (("trial",), "launch: 'trial' is no launch file"),
        (("trial", "--set", "rounds=5"), "set: launch trial says this already; leave out set; name its launch file"),
        (("trial.yaml", *TREE), "mechanism: launch file trial.yaml says this already"),
        (("trial.yaml", "--preset", "NWP de-DE"), "preset: launch file trial.yaml says this already"),
        (BLT, "mechanism: got 0 theta and 0 omega; give one of each a buffer"),
        (("--preset", "min-sep-9"), "'min-sep-9' does not exist; choose one of min-sep-100"),
        ((*BLT, "--set", "theta=[0.5]"), "mechanism: got 1 theta and 0 omega"),
        ((*BLT, "--set", "theta=[0.5]", "--set", "omega=[1.5]"), "omega: the scales add up to 1.5"),
        (BANDED, "mechanism.bands: missing; add it"),
        ((*BANDED, "--set", "bands=301"), "bands: 301 at min_sep 300 and 1000 rounds would let two participations"),
        ((*BANDED, "--set", "bands=0"), "mechanism.bands: got 0"),
        ((*FIXED, "--set", "population=10"), "mechanism.report_goal: missing; add it"),
        ((*FIXED, "--set", "population=10", "--set", "report_goal=11"), "population: 10 devices cannot fill rounds of"),
        (("--json",), "account: no mechanism; name a launch file, or give --mechanism, --preset or --paper"),
        (("--slow",), "slow: goes with --paper"),
        (("--paper", *TREE), "mechanism: --paper says this already"),
    ],
)
def test_a_mistake_is_one_line_with_the_fix(
    arguments: tuple[str, ...], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TACIT_HOME", str(tmp_path))
    write_launch(tmp_path)
    done = run(*arguments, code=65)
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("error: "))
    assert named in line


def test_a_launch_without_training_has_no_mechanism_to_account_for() -> None:
    error = answer(str(DEMO.with_name("demo-en-US-counts.yaml")), code=65)["error"]
    assert "trains nothing on devices, so its mechanism costs nothing; see what its counts cost by 'tacit plan" in error


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
    told = answer(launch_id(trained))
    reached = accounting.guarantee_of(Tree(6.0), 6, 3, 2, (RAW["mechanism"]["delta"],))
    assert told["rho"] == reached.rho
    assert list(told["epsilon"]) == ["1e-06"]
    assert list(answer(launch_id(trained), "--delta", "1e-9")["epsilon"]) == ["1e-09"]
