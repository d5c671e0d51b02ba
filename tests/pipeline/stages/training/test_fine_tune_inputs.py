"""Inputs of training: a worker opens those of its stage without public train text, and training changes none."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from evaluation.audit import canaries
from federated.rounds.server import flat_weights
from pipeline.run import artifacts
from pipeline.run.bookkeeping import PLANTED
from pipeline.stages.training import fine_tune_inputs, fine_tune_workers
from pipeline.stages.training.fine_tune_inputs import open_in_worker, open_inputs
from pretrain.model.keyboard_lm import KeyboardLM
from tests.helpers.launches.training_context import network


def test_a_worker_opens_the_inputs_of_its_stage_without_public_train_text(
    ctx: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = open_inputs(ctx)
    canaries.save(ours.planted, ctx.private / PLANTED)
    monkeypatch.setattr(artifacts, "public_streams", lambda *given: pytest.fail("a worker read public train text"))
    theirs = open_in_worker(ctx)
    np.testing.assert_array_equal(flat_weights(theirs.start), flat_weights(ours.start))
    np.testing.assert_array_equal(flat_weights(theirs.start), flat_weights(network(2)))
    assert theirs.planted.canaries == ours.planted.canaries
    for name in ("synthetic_D", "stress_D"):
        np.testing.assert_array_equal(getattr(theirs.data, name), getattr(ours.data, name))
    np.testing.assert_array_equal(theirs.data.devices.tokens_N, ours.data.devices.tokens_N)


def test_a_start_that_counts_moved_is_made_once_and_kept_private(
    ctx: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_inputs(ctx).start
    monkeypatch.setattr(fine_tune_inputs, "distil", lambda *given: network(3))
    np.testing.assert_array_equal(flat_weights(open_inputs(ctx).start), flat_weights(first))
    assert (ctx.private / artifacts.START).stat().st_mode & 0o777 == 0o600


def test_training_leaves_the_start_as_it_was_opened(ctx: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is published after training, and the audit holds the change of weights against it."""

    def train_rounds(model: KeyboardLM, *rest: object) -> None:
        with torch.no_grad():
            model.embedding += 1.0

    monkeypatch.setattr(fine_tune_workers, "train_rounds", train_rounds)
    inputs = open_inputs(ctx)
    trained = fine_tune_workers.train(ctx, inputs)
    np.testing.assert_array_equal(flat_weights(inputs.start), flat_weights(network(2)))
    assert not np.array_equal(flat_weights(trained.model), flat_weights(inputs.start))
