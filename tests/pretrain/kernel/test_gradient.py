"""The step by hand against autograd, packed rows against padded ones, sampled columns against the whole sum."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from pretrain.kernel import columns
from pretrain.kernel.gradient import loss_and_gradient
from pretrain.kernel.weights import Weights, pack_alone, unpack
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.text.batches import Rows, find_rows
from pretrain.text.vocabulary import EOS, PAD
from pretrain.training.train import dropped_share, kept_outputs
from tests.helpers.audits.close import assert_close

V = 60


def some_rows(seed: int = 0, sentences: int = 40) -> Rows:
    rng = np.random.default_rng(seed)
    tokens = [np.append(rng.integers(4, V, size=rng.integers(1, 12)), EOS) for _ in range(sentences)]
    return find_rows(np.concatenate(tokens).astype(np.int32), 9)


def a_model(*, tied: bool, seed: int = 0) -> KeyboardLM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = KeyboardLM(V, 7, 11, tied=tied)
        with torch.no_grad():
            model.output_bias.normal_()
        return model


def by_autograd(
    model: KeyboardLM,
    rows: Rows,
    rows_B: np.ndarray,
    chosen: columns.Columns | None = None,
    kept_BTE: torch.Tensor | None = None,
) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradients from padded rows and torch's own graph; a sample's correction is added to the logits."""
    inputs_BT, targets_BT = rows.batch(rows_B)
    features_BTE, _ = model.features(inputs_BT)
    if kept_BTE is not None:
        features_BTE = features_BTE * kept_BTE
    logits_BTV = features_BTE @ model.output_VE.T + model.output_bias
    logits_MV, targets_M = logits_BTV[targets_BT != PAD], targets_BT[targets_BT != PAD]
    if chosen is not None:
        correction_V = torch.full((V,), -60.0)
        correction_V[chosen.words_K] = torch.from_numpy(chosen.correction_K)
        corrected_MV = logits_MV + correction_V
        own = torch.arange(len(targets_M)), targets_M
        corrected_MV[own] = logits_MV[own]
        logits_MV = corrected_MV
    loss = functional.cross_entropy(logits_MV, targets_M, reduction="sum")
    model.zero_grad()
    loss.backward()
    return loss.item(), {name: part.grad.clone() for name, part in model.named_parameters()}


def by_hand(
    model: KeyboardLM, rows: Rows, rows_B: np.ndarray, chosen: columns.Columns | None = None, weight: float = 1.0
) -> tuple[float, dict[str, torch.Tensor]]:
    gradients = pack_alone(model).zeros_like()
    loss = loss_and_gradient(pack_alone(model), rows.packed(rows_B), chosen, gradients, weight)
    return loss, by_name(gradients)


def by_name(gradients: Weights) -> dict[str, torch.Tensor]:
    return {name: part[0] for name, part in unpack(gradients).items()}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("sampled", [False, True])
def test_loss_and_gradients_are_those_of_autograd(tied: bool, sampled: bool) -> None:
    rows, model = some_rows(), a_model(tied=tied)
    rows_B = np.random.default_rng(1).permutation(len(rows))[:25]
    chosen = None
    if sampled:
        chance_V = np.where(np.arange(V) < 20, 1.0, 0.3)
        chosen = columns.draw(chance_V, rows.packed(rows_B).targets_P, np.random.default_rng(2))
        assert len(chosen.words_K) < V
    loss, gradients = by_hand(model, rows, rows_B, chosen)
    expected, wanted = by_autograd(model, rows, rows_B, chosen)
    assert loss == pytest.approx(expected, rel=1e-5)
    for name, gradient in wanted.items():
        assert_close(gradients[name], gradient, rtol=1e-4, atol=1e-4, msg=name)


def test_gradients_add_up_with_their_weights() -> None:
    rows, model = some_rows(), a_model(tied=True)
    first, second = np.arange(10), np.arange(10, 25)
    total = pack_alone(model).zeros_like()
    for rows_B, weight in ((first, 0.5), (second, 2.0)):
        loss_and_gradient(pack_alone(model), rows.packed(rows_B), None, total, weight)
    one, other = by_hand(model, rows, first)[1], by_hand(model, rows, second)[1]
    for name, summed in by_name(total).items():
        assert_close(summed, 0.5 * one[name] + 2 * other[name], rtol=1e-4, atol=1e-5)


def test_packed_rows_are_the_padded_ones() -> None:
    rows = some_rows(3)
    rows_B = np.array([5, 0, 7, 7, 2])
    packed = rows.packed(rows_B)
    assert packed.alive_T.sum() == len(packed.inputs_P) == rows.length_R[rows_B].sum()
    assert np.all(np.diff(packed.alive_T) <= 0)
    order_B = rows_B[np.argsort(-rows.length_R[rows_B], kind="stable")]
    inputs_BT, targets_BT = rows.cut(order_B, int(rows.length_R[order_B].max()))
    starts = np.cumsum(packed.alive_T) - packed.alive_T
    for row in range(len(order_B)):
        places = [starts[step] + row for step in range(int(rows.length_R[order_B[row]]))]
        assert packed.inputs_P[places].tolist() == inputs_BT[row, : len(places)].tolist()
        assert packed.targets_P[places].tolist() == targets_BT[row, : len(places)].tolist()


def test_far_away_words_stay_exact_numbers_and_nothing_else_changes() -> None:
    # A word a hundred nats behind has no chance; were its share a denormal number, products would crawl.
    rows, model = some_rows(), a_model(tied=True)
    with torch.no_grad():
        model.output_bias[30:] = -100.0
    rows_B = np.flatnonzero(np.isin(rows.tokens_N[rows.start_R], np.arange(4, 30)))[:6]
    loss, gradients = by_hand(model, rows, rows_B)
    expected, wanted = by_autograd(model, rows, rows_B)
    assert loss == pytest.approx(expected, rel=1e-5)
    assert_close(gradients["projection"], wanted["projection"], rtol=1e-3, atol=1e-4)
    small = gradients["output_bias"].abs()
    assert float(small[small > 0].min()) > 1e-30


def test_a_number_that_is_not_finite_is_seen_in_the_loss() -> None:
    rows, model = some_rows(), a_model(tied=True)
    with torch.no_grad():
        model.projection[0, 0] = float("nan")
    assert not np.isfinite(by_hand(model, rows, np.arange(5))[0])


def test_gradients_where_outputs_are_left_out_are_those_of_autograd() -> None:
    rows, model = some_rows(), a_model(tied=True)
    # Longest first, so that the packed positions are those of the padded rows, step by step.
    rows_B = np.argsort(-rows.length_R, kind="stable")[:25]
    packed = rows.packed(rows_B)
    kept_PE = kept_outputs(len(packed.targets_P), 7, 0.3, np.random.default_rng(4))
    assert kept_PE is not None
    inside_TB = np.arange(len(packed.alive_T))[:, None] < rows.length_R[rows_B]
    kept_TBE = torch.zeros(*inside_TB.shape, 7)
    kept_TBE[torch.from_numpy(inside_TB)] = kept_PE
    total = pack_alone(model).zeros_like()
    loss = loss_and_gradient(pack_alone(model), packed, None, total, 1.0, kept_PE)
    gradients = by_name(total)
    expected, wanted = by_autograd(model, rows, rows_B, kept_BTE=kept_TBE.transpose(0, 1))
    assert loss == pytest.approx(expected, rel=1e-5)
    for name, gradient in wanted.items():
        assert_close(gradients[name], gradient, rtol=1e-4, atol=1e-4, msg=name)


def test_outputs_left_out_keep_their_mean() -> None:
    kept_PE = kept_outputs(2_000, 50, 0.3, np.random.default_rng(0))
    assert kept_PE is not None
    assert sorted(kept_PE.unique().tolist()) == [0.0, pytest.approx(1 / 0.7)]
    assert kept_PE.mean().item() == pytest.approx(1.0, abs=4 * (0.3 / 0.7 / 100_000) ** 0.5)
    assert kept_outputs(5, 5, 0.0, np.random.default_rng(0)) is None


def test_only_text_that_is_passed_over_often_is_kept_from_being_learnt_by_heart() -> None:
    assert dropped_share(steps=600, batch_sentences=10, sentences=1000) == 0
    assert 0 < dropped_share(steps=601, batch_sentences=10, sentences=1000) < 1
