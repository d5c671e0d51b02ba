"""The frontier: what each total leaves to learn with, and the way that wins by the number of devices."""

import itertools
from pathlib import Path

import pytest

from federated.counts.bounded_sum import MOST_DEVICES
from federated.planning import gain, law
from federated.planning.search import terms_of
from pipeline.launch.config import LaunchConfig, load_launch
from pipeline.preflight.frontier import EPSILONS, Frontier, around, frontier
from pipeline.releases.counts import COUNTS
from pipeline.releases.release import Outlook, gaussian
from pipeline.releases.total import total
from pipeline.releases.training import TRAINING, training_rho
from pipeline.releases.uses import planned

LAUNCHES = Path(__file__).parents[3] / "dags" / "launches"


def found(config: LaunchConfig, devices: int) -> Frontier:
    planning = config.planning.model_copy(update={"population_estimate": devices})
    terms = terms_of(planning, config.private_text.splits, config.server)
    return frontier(config, terms, planned(config, Outlook(0.3, terms.training_devices)))


@pytest.fixture(scope="module")
def brazilian() -> LaunchConfig:
    """A file whose words are found locally."""
    return load_launch(LAUNCHES / "pt-BR.yaml")


@pytest.mark.slow
def test_more_people_gain_from_less_epsilon(brazilian: LaunchConfig) -> None:
    few, some, many = (found(brazilian, devices) for devices in (100, 1_000, 100_000))
    for one in (few, some, many):
        assert [point.epsilon for point in one.points] == list(EPSILONS)
        for earlier, later in itertools.pairwise(one.points):
            assert earlier.rho < later.rho
            assert earlier.best.points <= later.best.points
    assert few.beats_counts is not None
    assert few.beats_counts > 5
    assert some.beats_counts is not None
    assert many.beats_counts == EPSILONS[0]
    assert many.knee < some.knee
    assert {point.wins for point in many.points} == {"both"}


@pytest.mark.slow
def test_a_point_costs_its_total(brazilian: LaunchConfig) -> None:
    others = {name: spend for name, spend in planned(brazilian, Outlook(0.3, 7_000)).items() if spend.split == "train"}
    without = {name: spend for name, spend in others.items() if name not in (TRAINING.stage, COUNTS.stage, "discover")}
    point = found(brazilian, 60).points[0]
    assert point.words == ""  # Words of so few would take all of it.
    learned = gaussian(point.rho, brazilian.mechanism.delta, "learning")
    assert total(brazilian, without | {TRAINING.stage: learned}).epsilon == pytest.approx(point.epsilon, rel=1e-3)


@pytest.mark.slow
def test_words_take_at_most_half(brazilian: LaunchConfig) -> None:
    # A local message of 8,000 devices costs an epsilon of 5, words by a trusted aggregator a fraction of one.
    words = [point.words for point in found(brazilian, 10_000).points]
    assert words == sorted(words), "none where the total is small"
    assert set(words) == {"", "central"}
    # Among millions, shuffling hides them.
    assert found(brazilian, 50_000_000).points[-1].words == "ldp-triehh"


@pytest.mark.slow
def test_more_devices_than_one_sum_holds_are_not_counted(brazilian: LaunchConfig) -> None:
    """``COUNTS.needs`` refuses them, so no way with counts may win."""
    for devices, counted in ((int(MOST_DEVICES / 0.9), True), (2 * MOST_DEVICES, False)):
        for point in found(brazilian, devices).points:
            assert all((way is not None) == counted for way in (point.counts, point.both, point.lead))
            assert point.wins == ("both" if counted else "training")


@pytest.mark.parametrize("name", ["demo-en-US", "demo-en-US-central", "demo-en-US-counts", "de-DE"])
def test_one_epsilon_more_or_less(name: str) -> None:
    """The launch's own rho comes back at its own total, and each way is forecast by its own curve."""
    config, devices = load_launch(LAUNCHES / f"{name}.yaml"), 920
    mechanism, one = config.mechanism, config.server
    rho = training_rho(config) if config.trains else 0.0
    spends = planned(config, Outlook(rho, devices))
    own = total(config, spends).epsilon
    forecast = around(config, devices, spends, own)
    if name == "demo-en-US-central":  # counts are mixed with the trained network: nothing is known of that way
        assert forecast == {}
        return
    assert list(forecast) == [epsilon for epsilon in (own - 1, own, own + 1) if epsilon > 0]
    points = [each.points for each in forecast.values()]
    assert points == sorted(points)
    # As far as its own rate goes, which in production is half of what noise allows.
    way = law.way(mechanism, one)
    expected = {
        "demo-en-US": lambda: gain.both(way),
        "demo-en-US-counts": lambda: gain.counts(gain.heard(devices, config.counts.rho)),
        "de-DE": lambda: gain.training(way),
    }[name]()
    assert (forecast[own].points, forecast[own].error) == pytest.approx((expected.points, expected.error), rel=1e-12)


def test_adam_has_no_forecast() -> None:
    config = load_launch(LAUNCHES / "en-US.yaml")
    adam = config.model_copy(update={"server": config.server.model_copy(update={"optimizer": "adam"})})
    assert around(adam, 920, planned(adam, Outlook(0.003, 920)), 0.5) == {}


def test_training_has_no_more_with_less() -> None:
    """The epsilon of a held-out device is the launch's if it loses more than one that trains."""
    demo, evaluation = load_launch(LAUNCHES / "demo-en-US.yaml"), load_launch(LAUNCHES / "de-DE.yaml").evaluation
    loud = demo.model_copy(update={"evaluation": evaluation.model_copy(update={"noise_multiplier": 0.25})})
    spends = planned(loud, Outlook(training_rho(loud), 920))
    points = [each.points for each in around(loud, 920, spends, total(loud, spends).epsilon).values()]
    assert points == sorted(points)
