"""A mechanism block in every form that people write it, its guarantee, and one clear line for every mistake."""

import re
from pathlib import Path

import numpy as np
import pytest

from federated.accounting import guarantees as accounting
from federated.accounting.guarantees import Guarantee
from federated.accounting.published_rows import ROWS, SETTINGS, agrees
from federated.mechanisms import Banded, Blt, Independent, Tree
from federated.mechanisms import mechanism_file as files
from federated.mechanisms.optimise_banded import optimise_banded
from pipeline.launch.config import load_launch
from pipeline.preflight.block import block, guarantee, of_file
from tests.helpers.launches.checkout import ROOT

SHAPE = "rounds: 1000, min_sep: 300, max_participations: 4"
TREE = f"kind: tree, noise_multiplier: 7, {SHAPE}"
DEMO = ROOT / "dags" / "launches" / "demo-en-US.yaml"


def told(
    mechanism: str | None = None, *changes: str, launch: Path | None = None, preset: str | None = None
) -> Guarantee:
    return guarantee(block(None if launch is None else str(launch), mechanism, preset, changes))


@pytest.mark.parametrize(
    "written",
    [
        f"{{kind: tree, noise_multiplier: 7, {SHAPE}}}",
        f"kind: tree\nnoise_multiplier: 7\n{SHAPE.replace(', ', chr(10))}",
        f"kind: tree,\n  noise_multiplier: 7, {SHAPE}",
    ],
)
def test_a_block_is_yaml_in_any_form_and_a_file_too(written: str, tmp_path: Path) -> None:
    (tmp_path / "block.yaml").write_text(
        written if written[0] == "{" else f"{{{written}}}" if "," in written else written
    )
    assert block(mechanism=written) == block(mechanism=str(tmp_path / "block.yaml")) == block(mechanism=TREE)


def test_a_single_field_is_changed_and_the_block_is_a_launch_file_s() -> None:
    shipped = load_launch(DEMO).mechanism
    assert block(str(DEMO)) == shipped
    reached = told(launch=DEMO)
    assert reached.rho == pytest.approx(accounting.account(shipped).rho)
    assert list(reached.epsilon) == [shipped.delta]
    louder = told(None, f"noise_multiplier={2 * shipped.noise_multiplier}", "delta=1e-9", launch=DEMO)
    assert louder.rho == pytest.approx(reached.rho / 4)
    assert list(louder.epsilon) == [1e-9]
    assert list(guarantee(shipped, (1e-7,)).epsilon) == [1e-7]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("written", "mechanism"),
    [
        ("kind: tree", lambda starts: Tree(7.0, starts)),
        ("kind: blt, theta: [0.9, 0.5], omega: [0.2, 0.3]", lambda starts: Blt(7.0, (0.9, 0.5), (0.2, 0.3), starts)),
    ],
)
def test_restarts(written: str, mechanism) -> None:
    asked = f"{written}, noise_multiplier: 7, {SHAPE}"
    reached = told(asked, "restarts=[128, 256]")
    assert reached.rho == accounting.guarantee_of(mechanism((128, 256)), 1000, 300, 4, (1e-10,)).rho
    assert reached.rho != told(asked).rho


def test_blt_of_the_paper() -> None:
    shape = "rounds: 1280, min_sep: 301, max_participations: 4"
    reached = told(f"noise_multiplier: 7.379, {shape}", preset="min-sep-400")
    assert reached.rho == pytest.approx(0.153371, abs=1e-6)
    assert reached.epsilon[1e-10] == pytest.approx(3.4565, abs=1e-4)
    assert told(preset="es-ES BLT-7.379") == reached


PRINTED = {row.row: row for row in ROWS if row.quantity == "rho" and row.row in SETTINGS and not row.departs}
# One of each strategy: what every row costs is held against the papers where the accountant is tested.
OF_EACH = {row.recipe: name for name, row in PRINTED.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_EACH.values(), ids=OF_EACH)
def test_a_published_launch_has_its_published_loss(name: str) -> None:
    assert agrees(PRINTED[name].printed, told(preset=name).rho)


def test_every_paper_s_launches_are_presets() -> None:
    assert {"NWP de-DE", "OTF ru-RU", "id-ID TreeAgg-7", "pt-PT BLT-3.12", "pt-BR BandMF-4.523"} <= set(SETTINGS)
    assert len(SETTINGS) == 33


def test_banded_needs_no_search_for_its_guarantee() -> None:
    limits = "rounds: 60, min_sep: 20, max_participations: 3, bands: 20"
    reached = told(f"kind: banded, noise_multiplier: 2, {limits}")
    assert reached.sensitivity_squared == 3.0
    searched = optimise_banded(60, 20, 3, 20).strategy
    assert searched.sensitivity_squared(60, 20, 3) == pytest.approx(reached.sensitivity_squared)


def test_rounding_before_secure_aggregation_is_said_to_be_left_out() -> None:
    reached = told(TREE, "secagg={bits: 32}")
    assert accounting.WITHOUT_ROUNDING in reached.methods
    assert reached.rho == told(TREE).rho


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
    mechanism, written = MECHANISMS[kind]
    path = tmp_path / "mechanism.json"
    files.save(mechanism, path)
    limits = (20, 1, 20) if kind == "independent" else (1000, 300, 4)
    reached = guarantee(block(mechanism=written), strategy=path)
    assert reached.rho == accounting.guarantee_of(mechanism, *limits, (1e-10,)).rho
    with pytest.raises(ValueError, match=r"mechanism\.json is not of this mechanism"):
        guarantee(block(mechanism=written, changes=("noise_multiplier=5",)), strategy=path)


def test_a_strategy_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"strategy: no\.json does not exist; give the mechanism\.json"):
        guarantee(block(mechanism=TREE), strategy=Path("no.json"))


BLT = f"kind: blt, noise_multiplier: 7, {SHAPE}"
BANDED = f"kind: banded, noise_multiplier: 7, {SHAPE}"
FIXED = "kind: independent, sampling: fixed, rounds: 9, noise_multiplier: 1"


@pytest.mark.parametrize(
    ("written", "changes", "named"),
    [
        (TREE, ("noise_multiplier=0",), "mechanism.noise_multiplier: got 0; give a number at least 1e-09"),
        (TREE, ("noise_multiplier=.nan",), "mechanism.noise_multiplier: got nan"),
        (TREE, ("noise_multiplier=seven",), "mechanism.noise_multiplier: got 'seven'; give a number"),
        (TREE, ("mins=299",), "mechanism.mins: no such field, got 299; did you mean 'min_sep'?"),
        (TREE, ("kind=bush",), "mechanism.kind: got 'bush'; choose one of 'tree', 'blt'"),
        (TREE, ("7",), "set: got '7'; write it as FIELD=VALUE"),
        (TREE, ("rounds=[1",), "set rounds: not valid YAML"),
        (
            TREE,
            ("max_participations=5",),
            "max_participations: 5 cannot happen, 1000 rounds at min_sep 300 allow at most 4",
        ),
        (TREE, ("restarts=[128, 1000]",), "restarts: [128, 1000] must rise and lie between 1 and 999"),
        (TREE, ("restarts=[256, 128]",), "restarts: [256, 128] must rise"),
        ("no.yaml", (), "mechanism: no.yaml does not exist; give a file with a mechanism block"),
        ("kind: tree: 7", (), "mechanism: not valid YAML"),
        ("\n- kind: tree", (), "a block is a mapping of fields"),
        ("mechanism: {kind: tree}", (), "holds more than the fields of a mechanism block"),
        (BLT, (), "mechanism: got 0 theta and 0 omega; give one of each a buffer"),
        (BLT, ("theta=[0.5]",), "mechanism: got 1 theta and 0 omega"),
        (BLT, ("theta=[0.5]", "omega=[1.5]"), "omega: the scales add up to 1.5"),
        (BANDED, (), "mechanism.bands: missing; add it"),
        (BANDED, ("bands=301",), "bands: 301 at min_sep 300 and 1000 rounds would let two participations"),
        (BANDED, ("bands=0",), "mechanism.bands: got 0"),
        (FIXED, ("population=10",), "mechanism.report_goal: missing; add it"),
        (FIXED, ("population=10", "report_goal=11"), "population: 10 devices cannot fill rounds of"),
        (None, (), "account: no mechanism; name a launch file, or give --mechanism, --preset or --paper"),
    ],
)
def test_a_mistake_is_one_line_with_the_fix(
    written: str | None, changes: tuple[str, ...], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=re.escape(named)) as error:
        told(written, *changes)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("preset", "named"),
    [
        ("min-sep-400", "mechanism.noise_multiplier: missing; add it"),
        ("min-sep-9", "'min-sep-9' does not exist; choose one of min-sep-100"),
    ],
)
def test_a_preset_that_is_none_or_not_whole(preset: str, named: str) -> None:
    with pytest.raises(ValueError, match=re.escape(named)):
        block(preset=preset)


def test_a_launch_without_training_costs_its_other_releases() -> None:
    counts = str(DEMO.with_name("demo-en-US-counts.yaml"))
    trained, losses = of_file(counts)
    assert (trained.rounds, trained.rho, trained.epsilon) == (0, 0, {1e-6: 0})
    (loss,) = losses.values()
    assert [part.releases for part in loss.parts] == [("local_words",), ("counts",)]
    assert loss.epsilon == pytest.approx(sum(part.epsilon for part in loss.parts)) == pytest.approx(12.8866, abs=1e-3)
    with pytest.raises(ValueError, match="trains nothing on devices, so a field"):
        of_file(counts, ["rounds=3"])
