"""Pretraining learns, counts what it says it counts, and ends the same after a kill."""

import math
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from pretrain.model.keyboard_lm import KeyboardLM, build_model, sentence_rows
from pretrain.text.batches import batches, find_rows
from pretrain.text.vocabulary import EOS, UNK, join_owners
from pretrain.training.train import Kernel, TrainingCurve, evaluate, gradients_by_autograd, gradients_by_hand, pretrain
from tests.helpers.audits.close import assert_close
from tests.helpers.text.pretrain_streams import PRETRAIN, TINY, WORDS, chain_stream, next_word_loss, pretrain_tiny


def same_weights(one: KeyboardLM, other: KeyboardLM) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(first, second) for first, second in pairs)


def without_seconds(curve: TrainingCurve) -> list[dict]:
    return [point.model_dump(exclude={"seconds"}) for point in curve.points]


@pytest.mark.slow
def test_training_learns_and_reports_its_curve(tmp_path: Path) -> None:
    seen: list[dict] = []
    config = PRETRAIN.model_copy(update={"steps": 250, "learning_rate": 0.05, "evaluate_every_steps": 100})
    _, curve = pretrain_tiny(tmp_path, config, seen.append)
    assert [point.step for point in curve.points] == [0, 100, 200, 250]
    assert [point.model_dump() for point in curve.points] == seen
    first, last = curve.points[0], curve.points[-1]
    assert first.validation_loss == pytest.approx(math.log(WORDS), rel=0.1)
    assert last.validation_loss < first.validation_loss - 0.8
    assert last.train_loss < first.train_loss - 0.5
    # The chain's rule predicts nine words in ten; chance is one in twenty.
    assert last.validation_top1 > 0.4
    assert all(earlier.seconds <= later.seconds for earlier, later in zip(curve.points, curve.points[1:], strict=False))


@pytest.mark.slow
def test_seed_decides(tmp_path: Path) -> None:
    one, again, other = (pretrain_tiny(tmp_path / name, seed=seed)[0] for name, seed in (("a", 1), ("b", 1), ("c", 2)))
    assert same_weights(one, again)
    assert not same_weights(one, other)


class Killed(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["hand", "bfloat16"])
def test_resumes_bitwise_after_an_exception(tmp_path: Path, kernel: Kernel) -> None:
    """By a CPU's step, and on a CPU by the one that a GPU takes."""
    config = PRETRAIN.model_copy(update={"steps": 24, "evaluate_every_steps": 8})
    train = partial(pretrain_tiny, config=config, kernel=kernel)
    whole, whole_curve = train(tmp_path / "whole")

    def killer(point: dict) -> None:
        if point["step"] == 16:
            raise Killed

    with pytest.raises(Killed):
        train(tmp_path / "killed", on_progress=killer)
    seen: list[dict] = []
    resumed, curve = train(tmp_path / "killed", on_progress=seen.append)
    # Step 8 was saved, so 16 is measured again and nothing before it.
    assert [point["step"] for point in seen] == [16, 24]
    assert same_weights(resumed, whole)
    assert without_seconds(curve) == without_seconds(whole_curve)


def test_bfloat16_is_of_products_alone(tmp_path: Path) -> None:
    """Weights, moments and loss stay float32, and it learns as much."""
    short = PRETRAIN.model_copy(update={"steps": 20})
    model, curve = pretrain_tiny(tmp_path / "bfloat16", short, kernel="bfloat16")
    _, exact = pretrain_tiny(tmp_path / "float32", short, kernel="float32")
    assert {weight.dtype for weight in model.state_dict().values()} == {torch.float32}
    losses = [
        (point.validation_loss, other.validation_loss) for point, other in zip(curve.points, exact.points, strict=True)
    ]
    assert losses[-1][0] != losses[-1][1]
    assert losses[-1] == pytest.approx((losses[-1][1],) * 2, abs=0.03)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_trains_as_a_cpu_does_and_resumes_bitwise(tmp_path: Path) -> None:
    whole, curve = pretrain_tiny(tmp_path / "whole", device="cuda")
    _, here = pretrain_tiny(tmp_path / "cpu")
    assert curve.points[-1].validation_loss == pytest.approx(here.points[-1].validation_loss, abs=0.05)

    def killer(point: dict) -> None:
        if point["step"] == 40:
            raise Killed

    with pytest.raises(Killed):
        pretrain_tiny(tmp_path / "killed", on_progress=killer, device="cuda")
    resumed, _ = pretrain_tiny(tmp_path / "killed", device="cuda")
    assert same_weights(resumed, whole)


CHILD = """
import os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from tests.helpers.text.pretrain_streams import pretrain_tiny
def killer(point):
    if point["step"] == 40:
        os.kill(os.getpid(), signal.SIGKILL)
pretrain_tiny(Path(sys.argv[1]), on_progress=killer)
"""


@pytest.mark.slow
def test_resumes_bitwise_after_sigkill_of_another_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CHILD, str(tmp_path / "killed")]
    root = Path(__file__).parents[3]
    assert subprocess.run(command, cwd=root, check=False, timeout=300).returncode == -signal.SIGKILL
    seen: list[dict] = []
    resumed, _ = pretrain_tiny(tmp_path / "killed", on_progress=seen.append)
    assert [point["step"] for point in seen] == [40, 60]
    assert same_weights(resumed, pretrain_tiny(tmp_path / "whole")[0])


def test_a_finished_run_only_loads(tmp_path: Path) -> None:
    first, curve = pretrain_tiny(tmp_path)
    seen: list[dict] = []
    again, same_curve = pretrain_tiny(tmp_path, on_progress=seen.append)
    assert seen == []
    assert same_weights(first, again)
    assert same_curve == curve


@pytest.mark.slow
def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    pretrain_tiny(tmp_path)
    for config, seed in ((PRETRAIN, 2), (PRETRAIN.model_copy(update={"learning_rate": 0.01}), 1)):
        with pytest.raises(ValueError, match="checkpoint of other settings"):
            pretrain_tiny(tmp_path, config, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["flip", "cut"])
def test_a_damaged_checkpoint_is_not_gone_on_from(tmp_path: Path, damage: str) -> None:
    whole, _ = pretrain_tiny(tmp_path)
    (path,) = tmp_path.glob("checkpoint/*")
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
    else:
        del content[-10:]
    path.write_bytes(content)
    seen: list[dict] = []
    again, _ = pretrain_tiny(tmp_path, on_progress=seen.append)
    assert seen[0]["step"] == 0, "it begins anew"
    assert same_weights(again, whole)


def test_loss_that_is_not_finite_ends_training(tmp_path: Path) -> None:
    model = build_model(TINY, WORDS, seed=3)
    model.projection.data[0, 0] = float("nan")
    with pytest.raises(ArithmeticError, match="loss is nan"):
        pretrain(PRETRAIN, model, chain_stream(20, 7), chain_stream(5, 8), tmp_path, 1)

    # A run that breaks on its way: the poison comes after the first measurement.
    healthy = build_model(TINY, WORDS, seed=3)

    def poison(_: dict) -> None:
        healthy.output_bias.data[5] = float("inf")

    with pytest.raises(ArithmeticError, match="train loss is nan at step 0"):
        pretrain(PRETRAIN, healthy, chain_stream(20, 7), chain_stream(5, 8), tmp_path, 1, poison)
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize("empty", ["train", "validation"])
def test_streams_without_a_sentence_are_refused(tmp_path: Path, tiny_model: KeyboardLM, empty: str) -> None:
    streams = {"train": chain_stream(3, 1), "validation": chain_stream(3, 2), empty: join_owners([])}
    with pytest.raises(ValueError, match=f"{empty}: no sentence"):
        pretrain(PRETRAIN, tiny_model, directory=tmp_path, seed=1, **streams)


def test_evaluation_equals_padded_logits(tiny_model: KeyboardLM) -> None:
    stream = chain_stream(25, 5)
    stream.tokens_N[::7] = np.where(stream.tokens_N[::7] == EOS, EOS, UNK)
    loss, top1 = evaluate(tiny_model, stream, 8)
    inputs, targets = (torch.from_numpy(rows.astype(np.int64)) for rows in sentence_rows(stream.tokens_N, 8))
    logits, _ = tiny_model(inputs)
    assert loss == pytest.approx(next_word_loss(logits, targets).item(), rel=1e-5)
    words = targets > UNK
    best = logits[..., UNK + 1 :].argmax(-1) + UNK + 1
    assert top1 == pytest.approx((best == targets)[words].double().mean().item())


def test_every_epoch_takes_each_row_once_in_an_order_of_its_own() -> None:
    rows = find_rows(chain_stream(100, 3).tokens_N, 8)
    an_epoch = -(-len(rows) // 16)
    stream = batches(rows, 16, seed=5, step=0)
    first, second = ([next(stream) for _ in range(an_epoch)] for _ in range(2))
    for epoch in (first, second):
        assert sorted(np.concatenate(epoch)) == list(range(len(rows)))
    assert any(not np.array_equal(one, two) for one, two in zip(first, second, strict=True))
    # Starting later gives the later batches.
    for step in (3, an_epoch, an_epoch + 2):
        assert np.array_equal(next(batches(rows, 16, seed=5, step=step)), [*first, *second][step])


def test_little_padding() -> None:
    rows = find_rows(chain_stream(400, 3).tokens_N, 12)
    stream = batches(rows, 16, seed=5, step=0)
    real = padded = 0
    for _ in range(len(rows) // 16):
        _, targets = rows.batch(next(stream))
        real, padded = real + int((targets != 0).sum()), padded + targets.numel()
    assert real / padded > 0.9
    in_order = [rows.batch(np.arange(first, first + 16))[1] for first in range(0, len(rows) - 16, 16)]
    assert sum(int((t != 0).sum()) for t in in_order) / sum(t.numel() for t in in_order) < 0.7


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.slow
def test_the_step_of_a_gpu_and_the_step_of_a_cpu_add_the_same_gradient(threads: int) -> None:
    rows, model = find_rows(chain_stream(30, seed=1).tokens_N, 8), build_model(TINY, WORDS, seed=3)
    rows_B, sums = np.arange(len(rows))[:21], []
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for gradients in (gradients_by_autograd(model, rows, 0.25), gradients_by_hand(model, rows, 0.25, 0, 0)):
            with gradients as add_gradient:
                answers = [add_gradient(rows_B, step) for step in (0, 1)]
            assert answers[0] == pytest.approx(answers[1])
            sums.append((answers[0], {name: part.grad.clone() for name, part in model.named_parameters()}))
    finally:
        torch.set_num_threads(before)
    (loss, words), wanted = sums[0]
    assert sums[1][0] == (pytest.approx(loss, rel=1e-5), words)
    for name, gradient in sums[1][1].items():
        assert_close(gradient, wanted[name], rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.slow
def test_the_number_of_threads_changes_no_bit(tmp_path: Path) -> None:
    alone, _ = pretrain_tiny(tmp_path / "alone")
    torch.set_num_threads(2)
    assert same_weights(alone, pretrain_tiny(tmp_path / "both")[0])
