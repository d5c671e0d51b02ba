"""``import tacit``: functions that take one line or a frame, and values that print and plot."""

import math
from pathlib import Path

import pytest

import tacit
from federated.accounting.gaussian import epsilon_of_rho
from pipeline.run.named import to_run
from tests.helpers.launches.checkout import ROOT

DEMO = ROOT / "dags" / "launches" / "demo-en-US.yaml"
TREE = "kind: tree, noise_multiplier: 7, rounds: 1280, min_sep: 181, max_participations: 5"


def test_every_public_name_is_there_and_says_what_it_does() -> None:
    assert dir(tacit) == tacit.__all__ == sorted(tacit.__all__)
    for name in tacit.__all__:
        assert getattr(tacit, name).__doc__
    functions = [getattr(tacit, name) for name in tacit.__all__ if name.islower() and not name.startswith("_")]
    assert len(functions) == 11
    assert [each.__name__ for each in functions if "Raises:" not in (each.__doc__ or "")] == []
    with pytest.raises(AttributeError, match="no attribute 'accountant'"):
        _ = tacit.accountant


def test_one_line_gives_the_guarantee_of_a_mechanism() -> None:
    done = tacit.account(TREE, [1e-6, 1e-10])
    assert done.rho == done.mu**2 / 2 == 87 / (2 * 7**2)
    assert done.epsilon == {delta: pytest.approx(epsilon_of_rho(done.rho, delta)) for delta in (1e-6, 1e-10)}
    assert "epsilon at delta 1e-06  6.80" in str(done) == repr(done)
    assert tacit.account(
        {"kind": "tree", "noise_multiplier": 7} | {"rounds": 1280, "min_sep": 181, "max_participations": 5}
    ) == tacit.account(TREE)
    assert tacit.account(TREE, noise_multiplier=14).rho == done.rho / 4


def test_a_launch_file_and_a_published_setting_are_mechanisms_too() -> None:
    at_file = tacit.account(DEMO)
    config = to_run(str(DEMO)).config.mechanism
    assert (at_file.value.rounds, at_file.value.min_sep) == (config.rounds, config.min_sep)
    assert tacit.account("NWP de-DE").value.rounds == 930


@pytest.mark.parametrize(
    ("named", "deltas", "error"),
    [
        ("kind: tree, noise_multiplier: -7", (), "noise_multiplier"),
        (TREE, (2.0,), "delta: got 2"),
        ("no-such-launch", (), "no launch file"),
        (TREE.replace("min_sep", "minsep"), (), "minsep"),
    ],
)
def test_errors_name_the_field(named: str, deltas: tuple[float, ...], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        tacit.account(named, deltas)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["blt", "banded"])
def test_a_strategy_becomes_a_line_and_its_noise_is_its_loss(kind: str) -> None:
    found = tacit.optimize(kind, 200, 50, 4, size=2 if kind == "blt" else None)
    losses = found.value if kind == "blt" else found.value.losses
    own, tree, independent = found.prefix_noise().values()
    assert own[-1][0] == tree[-1][0] == 200
    if kind == "blt":  # BandMF's largest prefix is no multiple of the points that are drawn
        assert max(deviation for _, deviation in own) == pytest.approx(losses.max_loss)
    assert own[-1][1] < tree[-1][1] < independent[-1][1] == pytest.approx(math.sqrt(4 * 200))
    # mu 1 is a multiplier equal to the sensitivity.
    line = found.line(math.sqrt(found.value.sensitivity_squared))
    assert tacit.account(line).mu == pytest.approx(1)
    assert f"RmsLoss {losses.rms_loss:.4f}" in str(found)
    assert found.plot()._repr_png_().startswith(b"\x89PNG")


def test_a_strategy_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="kind: got 'tree'; give blt or banded"):
        tacit.optimize("tree", 200, 50, 4)


def test_a_picture_is_saved_by_its_suffix(tmp_path: Path) -> None:
    plot = tacit.account(TREE).plot()
    assert b"<svg" in plot.save(tmp_path / "curve.svg").read_bytes()
    assert plot.save(tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_plan_prints_and_plots_its_forecast() -> None:
    planned = tacit.plan(ROOT / "dags" / "launches" / "en-US.yaml", devices=2_000_000)
    assert "training leads counts" in str(planned)
    assert planned.plot().figure.axes
    forecast = planned.to_pandas().set_index("epsilon")
    assert {at: tuple(row) for at, row in forecast.iterrows()} == {
        at: (each.points, each.error) for at, each in planned.value.forecast.items()
    }
    assert len(forecast) > 1


def test_results_become_data_frames() -> None:
    account = tacit.account(TREE, deltas=[1e-10, 1e-6])
    assert account.to_pandas().to_dict("list") == {"delta": [1e-10, 1e-6], "epsilon": list(account.epsilon.values())}
    arms = [
        {"arm": "start", "metric": "top1_recall", "value": 0.1},
        {"arm": "private", "metric": "top1_recall", "value": 0.2},
    ]
    assert tacit.Comparison({"arms": arms}, "").to_pandas().to_dict("records") == arms
    assert list(tacit.Discovery({}, "", (("yeet", 0.01, 0.02, 0.03),)).to_pandas()) == ["word", "low", "value", "high"]
    assert tacit.Training({}, "", ((0, 0.1), (8, 0.15))).to_pandas()["validation_recall"].max() == 0.15
    assert tacit.Training({}, "").to_pandas().empty
