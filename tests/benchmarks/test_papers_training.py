"""The pure parts of the figures with training: what noise stands for, what was printed, how words are counted."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks.papers import lab, runs
from benchmarks.papers.mcmahan import setting, top_ten
from benchmarks.papers.xu import report_goal
from pretrain.text.vocabulary import BOS, EOS, SPECIALS, UNK
from tests.helpers.launches import small_run


def test_noise_scales_with_the_round() -> None:
    assert setting.multiplier(100, 1.0) / 100 == pytest.approx(setting.MULTIPLIER / setting.COHORT)
    assert setting.multiplier(100, 0.0) > 0  # a mechanism has to have some noise
    assert pytest.approx(0.54, abs=0.002) == report_goal.RATIO * 500


def histogram(*counts: int) -> runs.Run:
    """A run with so many places by count, the same for every number of frequent words."""
    places = (*counts, *[0] * (11 - len(counts)))
    return runs.Run((), 0.0, 0.0, 0, dict.fromkeys(runs.FREQUENT, places))


def test_histograms_are_of_places() -> None:
    run = histogram(1, 0, 3)
    assert top_ten.shares(run, 10) == [25.0, 0.0, 75.0, *[0.0] * 8]
    assert top_ten.mean(run, 10) == pytest.approx(1.5)
    assert top_ten.apart(run, run) == 0
    assert top_ten.apart(run, histogram(0, 1, 3)) == pytest.approx(25.0)


def test_the_ten_likeliest_are_words_and_counted_place_by_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "FREQUENT", (3, 12))
    model, text = small_run.model_at_start(), small_run.stream(3, 1)
    expected = {most: np.zeros(11, dtype=int) for most in runs.FREQUENT}
    for number in range(len(text)):
        sentence = [BOS]
        for token in text.owner(number).tolist():
            if token > UNK:
                with torch.no_grad():
                    logits_V = model(torch.tensor([sentence]))[0][0, -1].numpy()
                best = sorted(range(len(SPECIALS), len(logits_V)), key=lambda word: -logits_V[word])[:10]
                for most, bins in expected.items():
                    bins[sum(word - len(SPECIALS) < most for word in best)] += 1
            sentence = [BOS] if token == EOS else [*sentence, token]
    assert runs.top_ten(model, text) == {most: bins.tolist() for most, bins in expected.items()}


@pytest.mark.parametrize("goal", [25, 100, 400, 1061])
def test_a_timer_fits_the_population_and_a_sample_knows_its_size(goal: int) -> None:
    place = SimpleNamespace(size=lab.SMALL, devices=range(1061))
    tree, _, _ = runs.configs(place, runs.Arm("", {"kind": "tree", "noise_multiplier": 1.0, "report_goal": goal}))
    assert tree.report_goal * tree.min_sep <= 1061
    assert tree.max_participations * tree.min_sep >= tree.rounds == lab.SMALL.rounds
    sampled, _, server = runs.configs(place, setting.arm(place, "", 1.0, report_goal=goal))
    assert (sampled.population, sampled.sampling) == (1061, "poisson")
    assert sampled.noise_multiplier / goal == pytest.approx(setting.MULTIPLIER / setting.COHORT)
    assert server.learning_rate == lab.SMALL.server_rate
