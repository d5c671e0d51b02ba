"""The audit's table: what it says, what the gate reads, what it refuses."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from evaluation.audit import canaries, exposure
from evaluation.audit.memorisation import AuditResult, Rounds, attacked, completed, own_mu, summed_up
from evaluation.config import ALPHA, RANDOM_CONTINUATIONS, AuditConfig
from pretrain.config import ModelConfig
from pretrain.model.keyboard_lm import KeyboardLM, build_model, placed, sentence_rows
from pretrain.text.vocabulary import EOS, SPECIALS, TokenStream, Vocabulary, join_owners
from tests.helpers.text.pretrain_streams import next_word_loss

WORDS = Vocabulary(SPECIALS + tuple(f"w{number}" for number in range(60)))
CONFIG = AuditConfig(users=(1, 4), examples=(1, 8), repeats=2)


def filler() -> TokenStream:
    rng = np.random.default_rng(0)
    return join_owners([np.concatenate([np.append(rng.integers(4, 64, size=5), EOS) for _ in range(100)])])


def rounds_of(planted: canaries.CanarySet, mu: float = 0.5) -> Rounds:
    """One round of each device, and the bound of ``n_u`` devices of a mu-GDP training."""
    users = np.array([canary.n_u for canary in planted.canaries])
    return Rounds(np.ones(len(planted.devices), dtype=np.int64), users * mu)


def audit(
    model: KeyboardLM, planted: canaries.CanarySet, config: AuditConfig, *given: object, **more: object
) -> AuditResult:
    return summed_up(attacked(model, planted, config, *given, **more), RANDOM_CONTINUATIONS)


@pytest.fixture(scope="module")
def planted() -> canaries.CanarySet:
    return canaries.make(CONFIG, WORDS, filler(), seed=3)


@pytest.fixture(scope="module")
def trained(planted: canaries.CanarySet) -> KeyboardLM:
    """Trained on the synthetic devices themselves without any protection."""
    model = build_model(ModelConfig(embedding_dim=16, hidden_dim=32, tied=True), len(WORDS), seed=0)
    inputs, targets = (torch.as_tensor(part.astype(np.int64)) for part in sentence_rows(planted.devices.tokens_N, 6))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, fused=True)
    for _ in range(250):
        loss = next_word_loss(model(inputs)[0], targets)
        model.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    return model


@pytest.fixture(scope="module")
def result(trained: KeyboardLM, planted: canaries.CanarySet) -> AuditResult:
    participations = np.arange(len(planted.devices))
    return audit(
        trained, planted, CONFIG, WORDS, seed=1, rounds=replace(rounds_of(planted), participations_D=participations)
    )


@pytest.mark.slow
def test_one_row_a_canary_with_its_own_numbers(result: AuditResult, planted: canaries.CanarySet) -> None:
    assert [(row.words, row.n_u, row.n_e) for row in result.canaries] == [
        (one.words, one.n_u, one.n_e) for one in planted.canaries
    ]
    assert sum(row.participations for row in result.canaries) == sum(range(len(planted.devices)))
    assert [row.participations for row in result.canaries[:2]] == [0, 1]
    for row in result.canaries:
        assert row.exposure_bits == pytest.approx(exposure.exposure_bits(row.rank, 2_000_000), abs=0.75 / row.rank)
        assert row.ceiling_bits == exposure.ceiling_bits(0.5, row.n_u, ALPHA / 4)
        assert row.within_ceiling == (row.exposure_bits <= row.ceiling_bits)
        assert (row.rank_standard_error == 0) == (row.method == "counted")
        assert row.exposure_low_bits <= row.exposure_bits <= row.exposure_high_bits


@pytest.mark.slow
def test_an_unprotected_model_is_caught(result: AuditResult) -> None:
    heavy = [row for row in result.canaries if row.n_e == 8]
    assert all(row.found_by_beam and row.rank == 1 for row in heavy)
    assert all(row.found_by_best_first for row in heavy)
    assert result.worst_rank_single_user == 1
    assert any(row.within_ceiling is False for row in heavy if row.n_u == 1)
    assert result.found_by_beam >= result.found_single_user >= 2
    assert max(row.exposure_bits for row in heavy if row.n_u == 1) == pytest.approx(np.log2(2e6))


@pytest.mark.slow
def test_a_model_that_never_saw_them_passes(planted: canaries.CanarySet) -> None:
    fresh = build_model(ModelConfig(embedding_dim=16, hidden_dim=32, tied=True), len(WORDS), seed=5)
    clean = audit(fresh, planted, CONFIG, WORDS, seed=1, rounds=rounds_of(planted))
    assert clean.found_by_beam == 0
    assert clean.worst_rank_single_user > 1000
    assert all(row.within_ceiling for row in clean.canaries)


@pytest.mark.slow
def test_populations_are_kept_apart_and_each_ceiling_follows_from_its_own_rounds() -> None:
    config = CONFIG.model_copy(update={"populations": ("compliant", "stress")})
    planted = canaries.make(config, WORDS, filler(), seed=3)
    joined_TD = np.zeros((8, len(planted.devices)), dtype=bool)
    joined_TD[[0, 4]] = True
    joined_TD[:, planted.stress_D] = True
    mine_N = own_mu(planted, joined_TD, np.eye(8), 4.0)
    compliant = [canary.population == "compliant" for canary in planted.canaries]
    users = np.array([canary.n_u for canary in planted.canaries])
    np.testing.assert_allclose(mine_N, users * np.where(compliant, np.sqrt(2), np.sqrt(8)) / 4)
    fresh = build_model(ModelConfig(embedding_dim=16, hidden_dim=32, tied=True), len(WORDS), seed=5)
    rows = audit(
        fresh, planted, config, WORDS, seed=1, rounds=replace(rounds_of(planted), mu_N=mine_N), nodes=100
    ).canaries
    assert [row.population for row in rows] == [canary.population for canary in planted.canaries]
    for row, own in zip(rows, mine_N, strict=True):
        assert row.ceiling_bits == exposure.ceiling_bits(own, 1, ALPHA / 4)
    with pytest.raises(ValueError, match="3 devices, but 40 are synthetic"):
        own_mu(planted, joined_TD[:, :3], np.eye(8), 4.0)
    with pytest.raises(ValueError, match="2 entries for 16 canaries"):
        audit(fresh, planted, config, WORDS, seed=1, rounds=replace(rounds_of(planted), mu_N=np.zeros(2)))


@pytest.mark.slow
def test_stress_canaries_count_in_no_number_of_the_guarantee(trained: KeyboardLM) -> None:
    config = CONFIG.model_copy(update={"populations": ("compliant", "stress")})
    both = canaries.make(config, WORDS, filler(), seed=3)
    # The trained model knows the compliant canaries; labels changed over, it knows the stress ones.
    swapped = tuple(
        replace(canary, population="stress" if canary.population == "compliant" else "compliant")
        for canary in both.canaries
    )
    spotted, quiet = (
        audit(trained, planted, config, WORDS, seed=1, rounds=rounds_of(planted), nodes=100)
        for planted in (both, replace(both, canaries=swapped))
    )
    assert (spotted.worst_rank_single_user, quiet.stress.worst_rank_single_user) == (1, 1)
    assert spotted.found_single_user == quiet.stress.found_single_user >= 2
    assert quiet.found_single_user == spotted.stress.found_single_user == 0
    assert quiet.worst_rank_single_user == spotted.stress.worst_rank_single_user > 1000
    assert quiet.max_exposure_bits == spotted.stress.max_exposure_bits < spotted.max_exposure_bits
    assert spotted.stress.canaries == len(both.canaries) // 2
    alone = canaries.make(CONFIG, WORDS, filler(), seed=3)
    assert audit(trained, alone, CONFIG, WORDS, seed=1, rounds=rounds_of(alone)).stress is None
    with pytest.raises(ValueError, match="leaves out compliant"):
        AuditConfig(users=(1,), examples=(1,), repeats=1, populations=("stress",))


def test_workers_change_nothing(
    trained: KeyboardLM, planted: canaries.CanarySet, result: AuditResult, caplog: pytest.LogCaptureFixture
) -> None:
    one, three = (
        audit(trained, planted, CONFIG, WORDS, seed=1, rounds=rounds_of(planted), workers=workers) for workers in (1, 3)
    )
    assert one == three
    assert caplog.messages[-1] == "attacking canaries of the launch: 100%"


@pytest.mark.slow
def test_canaries_remembered_too_well_on_average_are_seen(trained: KeyboardLM, planted: canaries.CanarySet) -> None:
    fresh = build_model(ModelConfig(embedding_dim=16, hidden_dim=32, tied=True), len(WORDS), seed=5)
    clean, leaky = (
        audit(model, planted, CONFIG, WORDS, seed=1, rounds=rounds_of(planted), nodes=200) for model in (fresh, trained)
    )
    assert clean.broken_ceilings == 0
    assert clean.pooled_p_value > 0.05
    assert leaky.broken_ceilings >= 2
    assert leaky.pooled_p_value < 1e-6
    # What a guarantee of so large a mu allows is no alarm.
    allowed = audit(trained, planted, CONFIG, WORDS, seed=1, rounds=rounds_of(planted, mu=20.0), nodes=200)
    assert allowed.pooled_p_value > 0.05


def test_the_gate_reads_only_single_device_canaries(trained: KeyboardLM) -> None:
    shared = AuditConfig(users=(4,), examples=(1,), repeats=1)
    planted = canaries.make(shared, WORDS, join_owners([]), seed=3)
    only_shared = audit(trained, planted, shared, WORDS, seed=1, rounds=rounds_of(planted))
    assert only_shared.worst_rank_single_user is None
    assert (only_shared.broken_ceilings, only_shared.pooled_p_value) == (None, None)


def test_other_vocabularies_are_refused(trained: KeyboardLM, planted: canaries.CanarySet) -> None:
    grown = Vocabulary((*WORDS.words, "new"))
    with pytest.raises(ValueError, match="make the canaries from the vocabulary"):
        audit(trained, planted, CONFIG, grown, seed=1, rounds=rounds_of(planted))
    larger = build_model(ModelConfig(embedding_dim=4, hidden_dim=4, tied=True), 65, seed=0)
    with pytest.raises(ValueError, match="65 output rows, but the vocabulary has 64"):
        audit(larger, planted, CONFIG, WORDS, seed=1, rounds=rounds_of(planted))
    with pytest.raises(ValueError, match="2 entries for 20 synthetic devices"):
        audit(trained, planted, CONFIG, WORDS, seed=1, rounds=replace(rounds_of(planted), participations_D=np.zeros(2)))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_ranks_as_a_cpu_does(trained: KeyboardLM, planted: canaries.CanarySet, result: AuditResult) -> None:
    participations = replace(rounds_of(planted), participations_D=np.arange(len(planted.devices)))
    there = audit(placed(trained, "cuda"), planted, CONFIG, WORDS, seed=1, rounds=participations, workers=2)
    for row, other in zip(there.canaries, result.canaries, strict=True):
        assert (row.words, row.method, row.found_by_beam) == (other.words, other.method, other.found_by_beam)
        assert row.rank == pytest.approx(other.rank, rel=1e-6, abs=1)


@pytest.mark.parametrize("trained_N", [[], [0], [1, 3], [0, 1, 2, 3, 4, 5, 6, 7]])
def test_canaries_that_never_trained_count_in_no_figure(
    planted: canaries.CanarySet, result: AuditResult, trained_N: list[int]
) -> None:
    rows = [replace(row, participations=int(place in trained_N)) for place, row in enumerate(result.canaries)]
    seen, alone = summed_up(rows, 2_000_000), [rows[place] for place in trained_N if rows[place].n_u == 1]
    assert seen.canaries == tuple(rows)
    assert seen.worst_rank_single_user == min((row.rank for row in alone), default=None)
    assert seen.found_single_user == sum(map(completed, alone))
    assert seen.broken_ceilings == (sum(not row.within_ceiling for row in alone) if alone else None)
    assert (seen.pooled_p_value is None) == (not alone)
    assert seen.max_exposure_bits == max((rows[place].exposure_bits for place in trained_N), default=0.0)
    stressed = [replace(row, population="stress") for row in rows]
    assert summed_up(stressed, 2_000_000).stress.canaries == len(trained_N)
    assert summed_up(stressed, 2_000_000).worst_rank_single_user is None
