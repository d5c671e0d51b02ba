"""The frontier: what each total leaves to learn with, and the way that wins by the number of devices."""

import itertools
from pathlib import Path

import pytest

from federated.planning.search import terms_of
from pipeline.launch.config import LaunchConfig, load_launch
from pipeline.preflight.frontier import EPSILONS, Frontier, frontier
from pipeline.releases.counts import COUNTS
from pipeline.releases.release import Outlook, gaussian
from pipeline.releases.total import total
from pipeline.releases.training import TRAINING
from pipeline.releases.uses import planned

LAUNCHES = Path(__file__).parents[3] / "dags" / "launches"


def found(config: LaunchConfig, devices: int) -> Frontier:
    planning = config.planning.model_copy(update={"population_estimate": devices})
    terms = terms_of(planning, config.private_text.splits, config.server)
    return frontier(config, terms, planned(config, Outlook(0.3, terms.training_devices)))


@pytest.fixture(scope="module")
def german() -> LaunchConfig:
    return load_launch(LAUNCHES / "de-DE.yaml")


@pytest.mark.slow
def test_more_people_gain_from_less_epsilon(german: LaunchConfig) -> None:
    few, some, many = (found(german, devices) for devices in (60, 1_000, 100_000))
    for one in (few, some, many):
        assert [point.epsilon for point in one.points] == list(EPSILONS)
        for earlier, later in itertools.pairwise(one.points):
            assert earlier.rho < later.rho
            assert earlier.best.points <= later.best.points
    assert few.beats_counts is None
    assert some.beats_counts is not None
    assert many.beats_counts == EPSILONS[0]
    assert many.knee < some.knee
    assert {point.wins for point in many.points} == {"both"}


@pytest.mark.slow
def test_a_point_costs_its_total(german: LaunchConfig) -> None:
    others = {name: spend for name, spend in planned(german, Outlook(0.3, 7_000)).items() if spend.split == "train"}
    without = {name: spend for name, spend in others.items() if name not in (TRAINING.stage, COUNTS.stage, "discover")}
    point = found(german, 60).points[0]
    assert point.words == ""  # Words of so few would take all of it.
    learned = gaussian(point.rho, german.mechanism.delta, "learning")
    assert total(german, without | {TRAINING.stage: learned}).epsilon == pytest.approx(point.epsilon, rel=1e-3)


@pytest.mark.slow
def test_words_take_at_most_half(german: LaunchConfig) -> None:
    # Local messages of 8,000 devices cost an epsilon of 30, words by a trusted aggregator a fraction of one.
    points = found(german, 10_000).points
    assert {point.words for point in points} == {"central"}
    # Among millions, shuffling hides them.
    assert found(german, 50_000_000).points[-1].words == "ldp-triehh"
