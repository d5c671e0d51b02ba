"""Ranks against brute force over all 20^3 secrets, interval coverage, uniformity, memorisation, ceiling."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from evaluation.audit import exposure
from evaluation.audit.canaries import Canary
from pretrain.config import ModelConfig
from pretrain.model.keyboard_lm import KeyboardLM, build_model
from pretrain.text.vocabulary import BOS, EOS
from tests.helpers.audits.sampled_rank import rank_by_sampling
from tests.helpers.text.pretrain_streams import next_word_loss

WORDS = 20
SMALL = ModelConfig(embedding_dim=8, hidden_dim=12, tied=False)


def peaked(model: KeyboardLM, scale: float = 4.0) -> KeyboardLM:
    """Random weights large enough that words differ in likelihood as in a trained model."""
    with torch.no_grad():
        model.projection *= scale
        model.embedding *= scale
        model.output_bias.normal_(generator=torch.Generator().manual_seed(0))
    return model


@pytest.fixture(scope="module")
def model() -> KeyboardLM:
    return peaked(build_model(SMALL, WORDS + 4, seed=1))


def canary(*ids: int) -> Canary:
    return Canary(tuple(f"w{number}" for number in ids), ids, 1, 1)


def losses(model: KeyboardLM, prefix: tuple[int, ...]) -> dict[tuple[int, ...], float]:
    """Every secret's loss after the prefix, one forward pass a sequence: the oracle."""
    secrets = list(itertools.product(range(4, WORDS + 4), repeat=3))
    rows = torch.tensor([[BOS, *prefix, *secret] for secret in secrets])
    double = build_model(SMALL, WORDS + 4, seed=0).double()
    double.load_state_dict(model.state_dict())
    with torch.no_grad():
        log_probs = torch.log_softmax(double(rows)[0], dim=-1)
    total = sum(log_probs[:, 2 + place].gather(1, rows[:, 3 + place, None])[:, 0] for place in range(3))
    return dict(zip(secrets, (-total).tolist(), strict=True))


def better(all_losses: dict[tuple[int, ...], float], secret: tuple[int, ...]) -> int:
    return sum(loss <= all_losses[secret] for other, loss in all_losses.items() if other != secret)


def random_canaries(number: int, seed: int, words: int = WORDS) -> list[Canary]:
    rng = np.random.default_rng(seed)
    return [canary(*rng.integers(4, words + 4, size=5).tolist()) for _ in range(number)]


@pytest.mark.slow
def test_counting_equals_brute_force(model: KeyboardLM) -> None:
    everything = WORDS**3 - 1
    seen = []
    for one in random_canaries(12, seed=1):
        oracle = losses(model, one.prefix)
        got = exposure.rank(model, one, 1000, seed=0, budget=10_000)
        assert got.exact
        assert got.standard_error == 0
        assert got.loss == pytest.approx(oracle[one.secret], rel=1e-10)
        assert got.fraction == better(oracle, one.secret) / everything
        assert got.rank == pytest.approx(1 + 1000 * got.fraction)
        seen.append(got.fraction)
    best = min(oracle, key=oracle.__getitem__)
    first = exposure.rank(model, canary(*one.prefix, *best), 1000, seed=0)
    assert (first.rank, first.exact) == (1.0, True)
    assert max(seen) > 0.5


def test_an_estimate_does_not_count_the_canary_itself(model: KeyboardLM) -> None:
    """The likeliest secret of all has nothing before it, and samples of its node come up all the time."""
    oracle = losses(model, (5, 6))
    first = canary(5, 6, *min(oracle, key=oracle.__getitem__))
    estimated = exposure.rank(model, first, 1000, seed=0, nodes=400, budget=0)
    assert not estimated.exact
    assert estimated.fraction == 0.0


def test_a_tie_with_the_canary_counts_against_it(model: KeyboardLM) -> None:
    twins = build_model(SMALL, WORDS + 4, seed=1)
    twins.load_state_dict(model.state_dict())
    with torch.no_grad():
        for weight in (twins.embedding, twins.output, twins.output_bias):
            weight[10] = weight[9]
    oracle = losses(twins, (5, 6))
    best = min((secret for secret in oracle if secret[2] == 9 and 10 not in secret[:2]), key=oracle.__getitem__)
    mirrored = exposure.rank(twins, canary(5, 6, *best), 1000, seed=0, budget=10_000)
    swapped = exposure.rank(twins, canary(5, 6, *best[:2], 10), 1000, seed=0, budget=10_000)
    assert mirrored.fraction == swapped.fraction == better(oracle, best) / (WORDS**3 - 1) > 0


@pytest.mark.slow
def test_estimates_cover_the_exact_value(model: KeyboardLM) -> None:
    scores = []
    for number, one in enumerate(random_canaries(15, seed=2)):
        exact = exposure.rank(model, one, 1000, seed=0, budget=10_000).fraction
        for repeat in range(20):
            got = exposure.rank(model, one, 1000, seed=100 * number + repeat, nodes=256, budget=0)
            assert not got.exact
            scores.append((got.fraction - exact) / (got.standard_error / 1000))
    scores = np.array(scores)
    assert abs(scores.mean()) < 4 / math.sqrt(len(scores))
    assert 0.92 < np.mean(np.abs(scores) < 1.96) < 0.98


def test_the_check_of_the_estimate_refuses_wrong_weights(model: KeyboardLM, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = exposure.draw_words

    def unweighted(*arguments: object) -> tuple[torch.Tensor, torch.Tensor]:
        words, weights = draw(*arguments)
        return words, torch.ones_like(weights)

    monkeypatch.setattr(exposure, "draw_words", unweighted)
    misses = 0
    for one in random_canaries(15, seed=2):
        exact = exposure.rank(model, one, 1000, seed=0, budget=10_000).fraction
        got = exposure.rank(model, one, 1000, seed=1, nodes=400, budget=0)
        misses += abs(got.fraction - exact) > 1.96 * got.standard_error / 1000
    assert misses > 7


def test_the_papers_own_sampling_agrees(model: KeyboardLM) -> None:
    number = 20_000
    for one in random_canaries(4, seed=3):
        exact = exposure.rank(model, one, number, seed=0, budget=10_000)
        sampled = rank_by_sampling(model, one, number, seed=4)
        deviation = math.sqrt(number * exact.fraction * (1 - exact.fraction))
        assert abs(sampled - exact.rank) < 4 * deviation + 1


def test_a_function_of_the_seed(model: KeyboardLM) -> None:
    one = random_canaries(1, seed=5)[0]
    first, same, other = (exposure.rank(model, one, 1000, seed=seed, budget=0) for seed in (1, 1, 2))
    assert first == same != other


@pytest.mark.slow
@pytest.mark.statistical
def test_canaries_that_were_never_inserted_have_uniform_ranks() -> None:
    model = peaked(build_model(SMALL, 204, seed=7))
    fractions = [
        exposure.rank(model, one, 1000, seed=9, nodes=200, budget=0).fraction for one in random_canaries(150, 8, 200)
    ]
    assert stats.kstest(fractions, "uniform").pvalue > 0.01
    # Ranks of likely words are not uniform, and the same check says so.
    likely = [
        exposure.rank(model, replace(one, ids=(*one.ids[:4], ids[-1])), 1000, seed=9, nodes=200, budget=0).fraction
        for one in random_canaries(60, 8, 200)
        for ids in exposure.beam_search(model, one.ids[:4], 1, 1)
    ]
    assert stats.kstest(likely, "uniform").pvalue < 1e-6


@pytest.fixture(scope="module")
def memorised() -> tuple[KeyboardLM, Canary]:
    """A model that read random sentences and, a thousand times, one canary."""
    vocabulary_size, secret = 154, canary(50, 60, 70, 80, 90)
    model = build_model(ModelConfig(embedding_dim=16, hidden_dim=32, tied=False), vocabulary_size, seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, fused=True)
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        words = torch.randint(4, vocabulary_size, (40, 5), generator=generator)
        words[:10] = torch.tensor(secret.ids)
        inputs = torch.cat([torch.full((40, 1), BOS), words], dim=1)
        targets = torch.cat([words, torch.full((40, 1), EOS)], dim=1)
        loss = next_word_loss(model(inputs)[0], targets)
        model.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    return model, secret


@pytest.mark.slow
def test_a_canary_repeated_a_thousand_times_is_first_and_found(memorised: tuple[KeyboardLM, Canary]) -> None:
    model, secret = memorised
    got = exposure.rank(model, secret, 2_000_000, seed=0)
    assert got.rank == 1.0
    assert got.exact
    assert exposure.beam_search(model, secret.prefix, 3, 5)[0] == secret.secret
    assert exposure.exposure_bits(got.rank, 2_000_000) == pytest.approx(20.93, abs=0.01)
    stranger = replace(secret, ids=(*secret.ids[:2], 17, 33, 120))
    assert exposure.rank(model, stranger, 2_000_000, seed=0).rank > 1000
    assert stranger.secret not in exposure.beam_search(model, secret.prefix, 3, 5)


@pytest.mark.slow
def test_the_estimate_sees_deep_into_the_tail(memorised: tuple[KeyboardLM, Canary]) -> None:
    """One word besides the memorised secret: about one secret in a million is likelier."""
    model, secret = memorised
    near = replace(secret, ids=(*secret.ids[:4], 91))
    exact = exposure.rank(model, near, 2_000_000, seed=0, budget=100_000)
    estimate = exposure.rank(model, near, 2_000_000, seed=0, budget=0)
    assert exact.exact
    assert exact.fraction < 1e-3
    assert abs(estimate.fraction - exact.fraction) < 4 * estimate.standard_error / 2_000_000


def test_wide_beams_find_the_best_and_no_special(model: KeyboardLM) -> None:
    with torch.no_grad():
        loud = build_model(SMALL, WORDS + 4, seed=1)
        loud.load_state_dict(model.state_dict())
        loud.output_bias[:4] += 10
    oracle = losses(loud, (5, 6))
    expected = sorted(oracle, key=oracle.__getitem__)[:5]
    assert exposure.beam_search(loud, (5, 6), 3, WORDS**2)[:5] == expected
    narrow = exposure.beam_search(loud, (5, 6), 3, 5)
    assert len(narrow) == 5
    assert min(min(words) for words in narrow) >= 4


def test_exposure_and_ceiling() -> None:
    assert exposure.exposure_bits(1, 1024) == 10
    assert exposure.exposure_bits(1024, 1024) == 0
    # Without any leak a rank in the first alpha happens with probability alpha.
    assert exposure.ceiling_bits(0, 1, 0.05) == pytest.approx(math.log2(20))
    # Ceilings of an audit of three single-device canaries at the rho of Xu et al. 2023, table 1.
    for rho, single, four in ((0.014, 6.5, 8.6), (0.25, 8.8, 21.4), (0.89, 11.9, 44)):
        mu = math.sqrt(2 * rho)
        assert exposure.ceiling_bits(mu, 1, 0.05 / 3) == pytest.approx(single, abs=0.06)
        assert exposure.ceiling_bits(mu, 4, 0.05 / 3) == pytest.approx(four, abs=0.5)
    with pytest.raises(ValueError, match="mu -1 must not be negative"):
        exposure.ceiling_bits(-1, 1, 0.05)


@pytest.mark.statistical
def test_the_ceiling_holds_for_the_worst_gaussian_leak() -> None:
    """A rank computed from one N(mu, 1) score against N(0, 1) references is exactly mu-GDP."""
    rng = np.random.default_rng(0)
    mu, alpha = 1.3, 0.05
    scores = rng.normal(mu, 1, 200_000)
    exposures = -stats.norm.logsf(scores) / math.log(2)
    above = np.mean(exposures > exposure.ceiling_bits(mu, 1, alpha))
    assert above == pytest.approx(alpha, abs=0.002)
    # A mechanism with 2/3 of the noise breaks it.
    leakier = -stats.norm.logsf(scores + mu / 2) / math.log(2)
    assert np.mean(leakier > exposure.ceiling_bits(mu, 1, alpha)) > 2 * alpha


def test_a_broken_model_cannot_be_ranked(model: KeyboardLM) -> None:
    broken = build_model(SMALL, WORDS + 4, seed=1)
    with torch.no_grad():
        broken.output_bias[8] = float("nan")
    with pytest.raises(ArithmeticError, match="cannot be ranked"):
        exposure.rank(broken, canary(4, 5, 6, 7, 8), 1000, seed=0)
