"""Training on public text: Adam over sentence rows, resumed bitwise after a kill.

Shape legend: B rows of a batch, T steps, V vocabulary, E embedding, M targets and P positions that are not padding,
N tokens.
"""

import hashlib
import io
import logging
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from pretrain.config import Config, PretrainConfig
from pretrain.files import write_bytes
from pretrain.kernel import columns
from pretrain.kernel.gradient import loss_and_gradient
from pretrain.kernel.threads import one_torch_thread
from pretrain.kernel.weights import pack_alone, unpack
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.text.batches import Rows, batches, find_rows
from pretrain.text.vocabulary import PAD, SPECIALS, UNK, TokenStream

_log = logging.getLogger(__name__)

_MAGIC = b"tacit-pretraining-1\n"
_MAX_GRADIENT_NORM = 1.0
_WARM_UP_FRACTION = 0.05
_EVALUATION_LOGITS = 1 << 23
# Dropout (Srivastava et al. 2014) prevents memorisation of a small corpus: none up to this number of passes over it.
_PASSES = 6
_DROPPED = 0.3
# The last steps use the full softmax, which removes the error of sampling.
_EXACT_FRACTION = 0.15
_HALVES = 2

Gradient = Callable[[np.ndarray, int], tuple[float, int]]
Kernel = Literal["hand", "float32", "bfloat16"]


class CurvePoint(Config):
    """Losses at one step of training. Losses are nats per target, sentence ends included."""

    step: int
    train_loss: float
    validation_loss: float
    validation_top1: float
    seconds: float


class TrainingCurve(Config):
    """Points in order of steps; the first is before any training."""

    points: tuple[CurvePoint, ...]


def pretrain(
    config: PretrainConfig,
    model: KeyboardLM,
    train: TokenStream,
    validation: TokenStream,
    directory: Path,
    seed: int,
    on_progress: Callable[[dict], None] | None = None,
    kernel: Kernel | None = None,
) -> TrainingCurve:
    """Train ``model`` in place on public text, on its device; return the curve.

    A killed run, called again with the same arguments, resumes from ``directory/checkpoint``
    and ends in bitwise the same weights, on a machine of the same kind. Batches are a
    function of (seed, step). The learning rate warms up over 5% of the steps and falls to zero. On a CPU the softmax
    of all but the last 15% of the steps runs over a sample of the words, in large vocabularies. Text that is passed
    over many times is not learnt by heart (``kept_outputs``).

    Args:
      on_progress: gets each curve point as a dict, as soon as it is measured.
      kernel: what makes gradients; None: what is fastest where the model lies, ``hand`` on a CPU and ``bfloat16`` on
        a GPU.

    Raises:
      ValueError: no sentences to train or validate on; the checkpoint belongs to another run.
      ArithmeticError: the loss is no longer finite.
    """
    rows, held_out = (find_rows(stream.tokens_N, config.sequence_words) for stream in (train, validation))
    for name, stream_rows in (("train", rows), ("validation", held_out)):
        if not len(stream_rows):
            raise ValueError(f"{name}: no sentence in the stream; give more text")
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    run = _fingerprint(config, seed, model, rows, held_out)
    checkpoint = directory / "checkpoint" / "state.pt"
    began = time.monotonic()
    done = _load(checkpoint, run, model, optimizer)
    points: list[CurvePoint] = [CurvePoint.model_validate(point) for point in done["points"]]
    step, spent, loss_sum, loss_words = done["step"], done["seconds"], 0.0, 0

    def measure(train_loss: float) -> None:
        loss, top1 = _evaluate(model, held_out)
        if not math.isfinite(loss):
            raise ArithmeticError(f"validation loss is {loss} after step {step}; lower the learning rate")
        seconds = spent + time.monotonic() - began
        points.append(
            CurvePoint(step=step, train_loss=train_loss, validation_loss=loss, validation_top1=top1, seconds=seconds)
        )
        if on_progress is not None:
            on_progress(points[-1].model_dump())

    schedule = batches(rows, config.batch_sentences, seed, step)
    if not points:
        with torch.no_grad():
            first_loss, words = _loss_sum(model, *rows.batch(next(batches(rows, config.batch_sentences, seed, 0))))
        measure(first_loss.item() / words)
    # Loss per batch over the AVERAGE number of words: dividing by the batch's own would give words
    # of short sentences more weight, because rows of one length share a batch.
    usual_words = float(rows.length_R.mean()) * config.batch_sentences
    kernel = kernel or ("hand" if model.embedding.device.type == "cpu" else "bfloat16")
    sampled_steps = int(config.steps * (1 - _EXACT_FRACTION))
    dropped = dropped_share(config.steps, config.batch_sentences, len(rows))
    with (
        gradients_by_hand(model, rows, 1 / usual_words, sampled_steps, seed, dropped)
        if kernel == "hand"
        else gradients_by_autograd(model, rows, 1 / usual_words, seed, dropped, bfloat16=kernel == "bfloat16")
    ) as add_gradient:
        while step < config.steps:
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.grad.zero_()
            loss, words = add_gradient(next(schedule), step)
            if not math.isfinite(loss):
                raise ArithmeticError(f"train loss is {loss} at step {step}; lower the learning rate")
            torch.nn.utils.clip_grad_norm_(model.parameters(), _MAX_GRADIENT_NORM)
            for group in optimizer.param_groups:
                group["lr"] = config.learning_rate * _rate(step, config.steps)
            optimizer.step()
            step += 1
            loss_sum, loss_words = loss_sum + loss, loss_words + words
            if step == config.steps or step % config.evaluate_every_steps == 0:
                measure(loss_sum / loss_words)
                loss_sum, loss_words = 0.0, 0
                state = {"step": step, "points": [point.model_dump() for point in points]}
                state |= {"seconds": spent + time.monotonic() - began}
                _save(checkpoint, run, model, optimizer, state)
    return TrainingCurve(points=tuple(points))


def start_from_frequencies(model: KeyboardLM, tokens_N: np.ndarray) -> None:
    """Set the output bias to the log frequency of each word, so that training need not learn it."""
    count_V = np.bincount(tokens_N, minlength=model.vocabulary_size) + 0.5
    with torch.no_grad():
        model.output_bias.copy_(torch.from_numpy(np.log(count_V / count_V.sum())))


@contextmanager
def gradients_by_hand(
    model: KeyboardLM, rows: Rows, weight: float, sampled_steps: int, seed: int, dropped: float = 0.0
) -> Iterator[Gradient]:
    """Gradients on a CPU, half of the rows on each of two threads; the first half's sums come first, always.

    Where there is one thread it does one half after the other, so how many there are changes no bit.

    Yields:
      A function from a batch's rows and its step to loss and words, which adds ``weight`` times the gradient to
      ``.grad``. Before step ``sampled_steps`` the softmax runs over a sample of the words.
    """
    totals = _zeroed_gradients(model)
    chance_V = columns.chances(rows.tokens_N, model.vocabulary_size)
    sums = [pack_alone(model).zeros_like() for _ in range(_HALVES)]

    def add_gradient(rows_B: np.ndarray, step: int) -> tuple[float, int]:
        parts = [rows.packed(rows_B[first::_HALVES]) for first in range(min(_HALVES, len(rows_B)))]
        chosen: list[columns.Columns | None] = [None] * len(parts)
        if chance_V is not None and step < sampled_steps:
            chosen = [
                columns.draw(chance_V, part.targets_P, np.random.default_rng((seed, step, number)))
                for number, part in enumerate(parts)
            ]
        saved = [
            kept_outputs(len(part.targets_P), model.embedding_dim, dropped, _dropout_generator(seed, step, number))
            for number, part in enumerate(parts)
        ]
        weights = pack_alone(model)
        tasks = [
            pool.submit(loss_and_gradient, weights, part, chosen_columns, gradients, weight, kept_PE)
            for part, chosen_columns, gradients, kept_PE in zip(parts, chosen, sums, saved, strict=False)
        ]
        losses = [task.result() for task in tasks]
        for gradients in sums[: len(parts)]:
            for name, gradient in unpack(gradients).items():
                totals[name] += gradient[0]
                gradient.zero_()
        return math.fsum(losses), sum(len(part.targets_P) for part in parts)

    threads = min(_HALVES, torch.get_num_threads())
    with one_torch_thread(), ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield add_gradient


@contextmanager
def gradients_by_autograd(
    model: KeyboardLM, rows: Rows, weight: float, seed: int = 0, dropped: float = 0.0, *, bfloat16: bool = False
) -> Iterator[Gradient]:
    """Gradients on anything but a CPU: the same by torch's graph, over all words.

    Args:
      bfloat16: of products alone; weights, moments and the softmax stay as they are.
    """
    _zeroed_gradients(model)
    device = model.embedding.device.type

    def add_gradient(rows_B: np.ndarray, step: int) -> tuple[float, int]:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=bfloat16):
            inputs_BT, targets_BT = rows.batch(rows_B)
            words = int((targets_BT != PAD).sum())
            kept_ME = kept_outputs(words, model.embedding_dim, dropped, _dropout_generator(seed, step, 0))
            loss, words = _loss_sum(model, inputs_BT, targets_BT, kept_ME)
        (loss * weight).backward()
        return loss.item(), words

    yield add_gradient


def _dropout_generator(seed: int, step: int, part: int) -> np.random.Generator:
    return np.random.default_rng((seed, step, part, 1))


def _zeroed_gradients(model: KeyboardLM) -> dict[str, Tensor]:
    """The parameters' ``.grad`` by name, all zero."""
    totals = {name: torch.zeros_like(parameter) for name, parameter in model.named_parameters()}
    for name, parameter in model.named_parameters():
        parameter.grad = totals[name]
    return totals


def evaluate(model: KeyboardLM, stream: TokenStream, sequence_words: int) -> tuple[float, float]:
    """Nats per target and top-1 accuracy over known words, without gradient.

    Accuracy counts targets that are known words; predictions are words too, never a special token.
    """
    return _evaluate(model, find_rows(stream.tokens_N, sequence_words))


@torch.no_grad()
def _evaluate(model: KeyboardLM, rows: Rows) -> tuple[float, float]:
    order = np.argsort(rows.length_R, kind="stable")
    at_once = max(1, _EVALUATION_LOGITS // (model.vocabulary_size * int(rows.length_R.max(initial=1))))
    loss_sum, targets, hits, words = 0.0, 0, 0, 0
    for first in range(0, len(order), at_once):
        logits_MV, targets_M = _logits(model, *rows.batch(order[first : first + at_once]))
        loss_sum += functional.cross_entropy(logits_MV, targets_M, reduction="sum").item()
        targets += len(targets_M)
        is_word_M = targets_M > UNK
        best_M = logits_MV[:, len(SPECIALS) :].argmax(dim=1) + len(SPECIALS)
        hits += int((best_M == targets_M)[is_word_M].sum())
        words += int(is_word_M.sum())
    return loss_sum / max(targets, 1), hits / max(words, 1)


def _logits(
    model: KeyboardLM, inputs_BT: Tensor, targets_BT: Tensor, kept_ME: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Logits ``[M, V]`` and targets ``[M]`` of the M positions that are not padding.

    The output layer is most of the work, so padding is left out before it.
    """
    device = model.embedding.device
    inputs_BT, targets_BT = inputs_BT.to(device), targets_BT.to(device)
    features_BTE, _ = model.features(inputs_BT)
    real_BT = targets_BT != PAD
    features_ME = features_BTE[real_BT]
    if kept_ME is not None:
        features_ME = features_ME * kept_ME.to(device)
    return torch.addmm(model.output_bias, features_ME, model.output_VE.T), targets_BT[real_BT]


def _loss_sum(
    model: KeyboardLM, inputs_BT: Tensor, targets_BT: Tensor, kept_ME: Tensor | None = None
) -> tuple[Tensor, int]:
    logits_MV, targets_M = _logits(model, inputs_BT, targets_BT, kept_ME)
    return functional.cross_entropy(logits_MV, targets_M, reduction="sum"), len(targets_M)


def _rate(step: int, steps: int) -> float:
    """Linear warm-up, then linear decay to zero, as a share of the peak rate."""
    return min((step + 1) / max(1.0, _WARM_UP_FRACTION * steps), 1.0) * (1 - step / steps)


def _fingerprint(config: PretrainConfig, seed: int, model: KeyboardLM, *streams: Rows) -> str:
    """SHA-256 over everything that decides the result, the initial weights included."""
    total = hashlib.sha256(f"{config.model_dump_json()} {seed}".encode())
    for rows in streams:
        total.update(np.ascontiguousarray(rows.tokens_N).tobytes())
    for name, tensor in model.state_dict().items():
        total.update(name.encode())
        total.update(tensor.cpu().numpy().tobytes())
    return total.hexdigest()


def _save(path: Path, run: str, model: KeyboardLM, optimizer: torch.optim.Adam, progress: dict) -> None:
    """Replace the checkpoint: a kill leaves the old one or the new one."""
    state = {"run": run, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "progress": progress}
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getvalue()
    write_bytes(path, _MAGIC + hashlib.sha256(content).digest() + content)


def _load(path: Path, run: str, model: KeyboardLM, optimizer: torch.optim.Adam) -> dict:
    """Progress of an earlier call, its weights and moments put in place; of a fresh run if there is none."""
    fresh = {"step": 0, "loss_sum": 0.0, "loss_words": 0, "points": [], "seconds": 0.0}
    if not path.exists():
        return fresh
    whole, head = path.read_bytes(), len(_MAGIC) + hashlib.sha256().digest_size
    content = whole[head:]
    if whole[:head] != _MAGIC + hashlib.sha256(content).digest():
        # A flipped bit would be another model in silence; public training can begin anew.
        _log.warning("%s is damaged: training begins anew", path.name)
        return fresh
    state = torch.load(io.BytesIO(content), map_location=model.embedding.device, weights_only=True)
    if state["run"] != run:
        raise ValueError(
            f"directory: {path} is a checkpoint of other settings, text or initial weights; choose an empty directory"
        )
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    _log.info("resuming at step %d", state["progress"]["step"])
    return state["progress"]


def dropped_share(steps: int, batch_sentences: int, sentences: int) -> float:
    """Share of the outputs to leave out in a training of these steps over these sentences."""
    return _DROPPED if steps * batch_sentences > _PASSES * sentences else 0.0


def kept_outputs(positions: int, width: int, dropped: float, generator: np.random.Generator) -> Tensor | None:
    """Factors ``[P, E]`` float32 of the outputs: 0, or what keeps their mean; None: nothing is left out.

    Only between recurrence and output layer (Zaremba et al. 2014, section 3): what the network remembers stays whole.
    """
    if not dropped:
        return None
    kept_PE = generator.random((positions, width), dtype=np.float32) >= dropped
    return torch.from_numpy(kept_PE.astype(np.float32) / np.float32(1 - dropped))
