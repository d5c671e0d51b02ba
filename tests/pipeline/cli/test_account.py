"""``tacit account``: the accountant's numbers in small tables, of a block and of a launch that has trained."""

import os
from pathlib import Path

import pytest

import tacit
from federated.accounting import guarantees as accounting
from federated.mechanisms import Tree
from federated.mechanisms import mechanism_file as files
from pipeline.ground import settings
from pipeline.launch.config import LaunchConfig, launch_id, load_launch
from pipeline.releases.terms import Terms
from pipeline.run import runner
from pipeline.run.stage import Stage, StageContext
from pipeline.stages.graph import STAGES
from reports.losses import up
from tests.helpers.launches.account_command import answer, run
from tests.helpers.launches.installed import installed
from tests.helpers.launches.pipeline_launch import RAW, Counted, launch_config, spend, stand_in, write_launch
from tests.helpers.launches.stages import stages_of
from tests.helpers.reports.reports_example import discovered

SHAPE = "rounds: 1000, min_sep: 300, max_participations: 4"
TREE = ("--mechanism", f"kind: tree, noise_multiplier: 7, {SHAPE}")


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


def test_text_is_a_small_table() -> None:
    text = run(*TREE, "--delta", "1e-10").stdout
    rows = dict(line.split("  ", 1) for line in text.splitlines() if not line.startswith(" "))
    assert rows["sensitivity^2"].strip() == "38"
    # Rounded up: the epsilon is 5.6985.
    assert rows["epsilon at delta 1e-10"].strip() == "5.70"
    assert rows["per"].strip() == "device, zero-out adjacency"
    assert rows["for"].strip() == "1,000 rounds, each device in 4 at most, 300 apart (MinS 299)"
    assert max(map(len, text.splitlines())) <= 110


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((*TREE, "--set", "noise_multiplier=0"), "mechanism.noise_multiplier: got 0; give a number at least 1e-09"),
        ((*TREE, "--delta", "1"), "delta: got 1; give a number between 0 and 1"),
        ((*TREE, "--delta", "0"), "delta: got 0"),
        ((*TREE, "--strategy", "no.json"), "strategy: no.json does not exist; give the mechanism.json"),
        (("trial",), "launch: 'trial' is no launch file"),
        (("trial", "--set", "rounds=5"), "set: launch trial already states this; leave out set; name its launch file"),
        (("trial.yaml", *TREE), "mechanism: launch file trial.yaml already states this"),
        (("trial.yaml", "--preset", "NWP de-DE"), "preset: launch file trial.yaml already states this"),
        (("--preset", "min-sep-9"), "'min-sep-9' does not exist; choose one of min-sep-100"),
        (("--json",), "account: no mechanism; name a launch file, or give --mechanism, --preset or --paper"),
        (("--slow",), "slow: needs --paper"),
        (("--paper", *TREE), "mechanism: --paper already states this"),
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


@pytest.mark.slow
def test_a_launch_file_states_all_its_releases_as_its_plan_does() -> None:
    """It said the loss of training alone, 4.89 of a launch of 12.89."""
    file = Path(__file__).parents[3] / "dags" / "launches" / "demo-en-US.yaml"
    config = load_launch(file)
    whole = Terms.of_file(config, config.private_text.splits.expected(config.planning.population_estimate)).total
    told, shown = answer(str(file)), run(str(file)).stdout
    assert told["epsilon"] == {"1e-06": pytest.approx(whole.epsilon)}
    assert whole.sentence in shown.split("Training alone")[0]
    at_file = tacit.account(file)
    assert at_file.epsilon == {1e-6: pytest.approx(whole.epsilon)}
    assert (str(at_file), at_file.rho) == (shown.rstrip("\n"), None)
    less = answer(str(file), "--set", "noise_multiplier=8")
    assert less["training"]["rho"] < told["training"]["rho"]
    assert whole.words.epsilon < less["epsilon"]["1e-06"] < told["epsilon"]["1e-06"]


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


# One device a layer, which shuffling cannot hide.
WORDS = discovered((1, 30), (1, 30))


def discover(ctx: StageContext) -> Stated:
    return Stated(value=1, **{name: WORDS[name] for name in WORDS if name != "name"})


def plan(ctx: StageContext) -> Stated:
    files.save(Tree(6.0), ctx.public / "mechanism.json")
    return Stated(value=1)


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LaunchConfig:
    """A launch that has trained, with a mechanism file of its own."""
    monkeypatch.setenv("TACIT_HOME", str(tmp_path))
    installed(tmp_path, "people")
    config, here = launch_config(), settings.load(dict(os.environ))
    special = {"plan": plan, "discover": discover, "fine_tune": fine_tune}
    stages = stages_of(
        {name: special.get(name, lambda ctx: Stated(value=1)) for name in STAGES},
        Stage("fine_tune", "", needs=("ingest_private",), planned=lambda config, run: spend(0.2)),
    )
    for name in ("ingest_private", "plan", "discover", "fine_tune"):
        runner.run_stage(name, config, launch_id(config), here, stages)
    return config


@pytest.mark.slow
def test_a_run_is_accounted_from_what_happened_with_all_its_releases(trained: LaunchConfig) -> None:
    """It said the loss of noised releases alone: 4.89 of a launch of 12.89."""
    told = answer(launch_id(trained))
    delta = RAW["mechanism"]["delta"]
    reached = accounting.guarantee_of(Tree(6.0), 6, 3, 2, (delta,))
    assert told["training"]["rho"] == reached.rho
    assert told["rho"] is None, "words found locally have none"
    local = WORDS["epsilon0"] * WORDS["messages_per_device"]
    assert told["epsilon"] == {"1e-06": pytest.approx(local + reached.epsilon[delta])}
    shown = run(launch_id(trained)).stdout
    whole = f"epsilon {up(told['epsilon']['1e-06'])} (local words {local:.2f}) at delta 1e-06"
    assert whole in shown.split("Training alone")[0]
    # Below the words' part of delta their local bound holds.
    assert list(answer(launch_id(trained), "--delta", "1e-9")["epsilon"]) == ["1e-09"]
