"""The start of private training taught what released counts say.

Shape legend: S steps, B rows, T words of a row, M places to predict, K tokens before, V vocabulary.
"""

import copy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from pretrain import progress
from pretrain.kernel.threads import one_torch_thread
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.ngrams.counted import CountedNGram, mixed
from pretrain.text.batches import Rows, find_rows, preceding
from pretrain.text.vocabulary import PAD, TokenStream

# Not tuned: a moved start is within 0.15 points of top-1 of the mixture that teaches it (of chat and of public talk).
STEPS, ROWS, RATE = 250, 128, 2e-3
_PLACES = 32


def distil(start: KeyboardLM, counts: CountedNGram, public: TokenStream, sequence_words: int, seed: int) -> KeyboardLM:
    """A network that predicts as ``start`` mixed half and half with ``counts`` does (Hinton et al. 2015).

    Guarantee: post-processing of the counts' release; start and text are public, and no device is read.

    Args:
      public: text of the start, in ids of its vocabulary.

    Raises:
      ValueError: text without a sentence.
    """
    rows = find_rows(public.tokens_N, sequence_words)
    if not len(rows):
        raise ValueError("public_text: no sentence to distil counts on; give more text")
    model, rng = copy.deepcopy(start), np.random.default_rng(seed)
    with one_torch_thread():
        _teach(model, start, counts, rows, rng)
    return model


def _teach(model: KeyboardLM, start: KeyboardLM, counts: CountedNGram, rows: Rows, rng: np.random.Generator) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    advance = progress.along("moving the start by counts", STEPS)
    for step, (teacher_MV, inputs_BT, targets_BT) in enumerate(_lessons(start, counts, rows, rng)):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, 10 * (step + 1) / STEPS, (STEPS - step) / STEPS * 2)
        inside_BT = targets_BT != PAD
        student_MV = torch.log_softmax(_logits(model, inputs_BT, inside_BT), dim=1)
        loss = -(teacher_MV * student_MV).sum(dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        advance(1.0)


def _lessons(
    start: KeyboardLM, counts: CountedNGram, rows: Rows, rng: np.random.Generator
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Teacher's probabilities ``[M, V]`` of each step, with its rows; a thread makes the next while this one learns."""

    def lesson(batch_B: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        inputs_BT, targets_BT = rows.batch(batch_B)
        return _teacher(start, counts, rows, batch_B, inputs_BT, targets_BT != PAD), inputs_BT, targets_BT

    batches_SB = [rng.integers(len(rows), size=ROWS) for _ in range(STEPS)]
    with ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        following = pool.submit(lesson, batches_SB[0])
        for batch_B in (*batches_SB[1:], None):
            current = following.result()
            if batch_B is not None:
                following = pool.submit(lesson, batch_B)
            yield current


@torch.no_grad()
def _teacher(
    start: KeyboardLM,
    counts: CountedNGram,
    rows: Rows,
    batch_B: np.ndarray,
    inputs_BT: torch.Tensor,
    inside_BT: torch.Tensor,
) -> torch.Tensor:
    place_M = (rows.start_R[batch_B][:, None] + np.arange(inside_BT.shape[1]))[inside_BT.numpy()]
    last_MK = preceding(rows.tokens_N, place_M, counts.order - 1)
    teacher_MV = torch.softmax(_logits(start, inputs_BT, inside_BT), dim=1)
    # A few places at a time, so that the counts' float64 stay in a processor's cache.
    places = torch.from_numpy(last_MK).split(_PLACES)
    for some_MV, some_MK in zip(teacher_MV.split(_PLACES), places, strict=True):
        some_MV.copy_(torch.from_numpy(mixed(some_MV.numpy(), counts.dense(some_MK.numpy()))))
    return teacher_MV


def _logits(model: KeyboardLM, inputs_BT: torch.Tensor, inside_BT: torch.Tensor) -> torch.Tensor:
    features_BTE, _ = model.features(inputs_BT)
    return torch.addmm(model.output_bias, features_BTE[inside_BT], model.output_VE.T)
