"""The round loop: cohort, local training, clipped sum, noise, server step.

Shape legend: D devices, P parameters.

DP-FTRL (Kairouz et al. 2021, algorithm 1) with momentum on the noisy mean, as in Xu et al. 2023.
"""

import copy
import hashlib
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from federated import checkpoint, mechanisms, participation, server
from federated.client import clipped_sum, one_torch_thread
from federated.clipping import check_clip_norm, check_report_goal, release
from federated.config import LocalTrainingConfig, MechanismConfig, RuntimeConfig, ServerConfig
from federated.files import private_directory
from federated.participation import Cohorts, Observed, ParticipationState, Records
from federated.rows import cohort_rows, round_offset
from federated.server import ServerState
from pretrain.config import Config
from pretrain.model import KeyboardLM
from pretrain.train import evaluate
from pretrain.vocabulary import BOS, PAD, UNK, TokenStream

_RECORDS_FILE = "participation.parquet"
_NOISE_PREFIX = "mechanism."
_log = logging.getLogger(__name__)


class CurvePoint(Config):
    """The model on validation devices after ``round`` rounds; round 0 is the start.

    Sums over held-out devices whose data trains nothing. They carry no noise, so they are outside
    the guarantee of the training devices; reports say so.

    Attributes:
      validation_loss: nats per target, sentence ends and unknown words included.
      validation_top1: accuracy over words that the vocabulary holds.
      validation_recall: the same hits over all words; an unknown word is a miss.
    """

    round: int
    validation_loss: float
    validation_top1: float
    validation_recall: float


@dataclass(frozen=True)
class FineTuneResult:
    """What may be told of a finished run.

    Attributes:
      rounds: rounds done.
      curve: public.
      observed: from the participation records; the accountant's input.
      synthetic_participations: rounds that each synthetic device joined, in their order.
    """

    rounds: int
    curve: tuple[CurvePoint, ...]
    observed: Observed
    synthetic_participations: tuple[int, ...]


@dataclass(frozen=True)
class _Run:
    """State between two rounds. Private."""

    rounds_done: int
    server: ServerState
    noise: mechanisms.MechanismState
    timer: ParticipationState
    records: Records
    curve: tuple[CurvePoint, ...]


def fine_tune(
    model: KeyboardLM,
    devices: TokenStream,
    synthetic_D: np.ndarray,
    validation: TokenStream,
    mechanism: MechanismConfig,
    local: LocalTrainingConfig,
    server_config: ServerConfig,
    runtime: RuntimeConfig,
    seed: int,
    key: bytes,
    directory: Path,
    on_round: Callable[[dict[str, float]], None] | None = None,
    threads: int | None = None,
) -> FineTuneResult:
    """Train ``model`` in place by DP-FTRL.

    Guarantee: the sequence of all models is a post-processing of the mechanism's noisy prefix sums
    of updates clipped to ``mechanism.clip_norm``; no device takes part twice within
    ``mechanism.min_sep`` rounds or more than ``mechanism.max_participations`` times. Zero-out
    adjacency, unit one device. What that is worth: ``accounting.from_records(mechanism, result.observed)``.
    Between reading a device's text and adding noise nothing depends on the text but the sum.

    A killed run that is called again goes on from its last whole checkpoint. Cohorts are a function of
    (seed, round), noise of (key, round): what is done again is the same release, not a second one. On a
    CPU with the same ``runtime.chunk_devices`` the final model is bitwise that of a run without a
    kill, whatever ``threads`` is. A run that is complete returns its result at once.

    Args:
      devices: text of the devices to train on; ``synthetic_D`` (bool) marks those made for the audit.
      validation: text of held-out devices.
      key: secret of the noise.
      directory: private; checkpoints and ``participation.parquet``. Empty for a new run.
      on_round: gets ``round``, ``rounds``, ``seconds``, and the curve point's numbers where there is one.
      threads: chunks of devices at work at the same time; None for the cores this process may use.

    Raises:
      ValueError: arguments that do not fit together; a directory of another run.
      ArithmeticError: released weights are no longer finite.
      OSError: records lost, or a GPU asked for where there is none.
    """
    _check(model, devices, synthetic_D, mechanism, runtime)
    private_directory(directory)
    noise_maker = mechanisms.build(mechanism)
    cohorts = Cohorts(len(devices), mechanism.report_goal, mechanism.min_sep, mechanism.max_participations, seed)
    digest = _run_digest(model, devices, synthetic_D, (mechanism, local, server_config), seed, key)
    worker = copy.deepcopy(model).to(runtime.device)
    at_once = threads or (len(os.sched_getaffinity(0)) if runtime.device == "cpu" else 1)
    with one_torch_thread():
        run = _resume(directory, digest, noise_maker)
        if run is None:
            start = server.init(model)
            point = _measure(worker, validation, local.sequence_words, 0)
            timer, no_noise = cohorts.init(), noise_maker.init(len(start.weights_P))
            run = _Run(0, start, no_noise, timer, participation.no_records(), (point,))
        while run.rounds_done < mechanism.rounds:
            began = time.monotonic()
            round_number = run.rounds_done
            server.load_weights(worker, run.server.weights_P)
            cohort, timer = cohorts.draw(run.timer, round_number)
            # Drawn before any text is read: whatever could go wrong here says nothing about a device.
            noise_P, noise = noise_maker.noise(run.noise, round_number, key)
            rows = cohort_rows(devices, cohort, local, round_offset(seed, round_number))
            unnoised_sum_P = clipped_sum(worker, rows, local, mechanism.clip_norm, runtime.chunk_devices, at_once)
            released_sum_P = release(unnoised_sum_P.numpy(), noise_P, mechanism.clip_norm)
            del unnoised_sum_P, noise_P, rows
            stepped = server.step(run.server, released_sum_P, mechanism.report_goal, server_config)
            records, done = run.records.add(round_number, cohort), round_number + 1
            server.load_weights(worker, stepped.weights_P)
            if not all(torch.isfinite(parameter).all() for parameter in worker.parameters()):
                raise ArithmeticError(f"weights are not finite after round {done}; lower server.learning_rate")
            last, curve = done == mechanism.rounds, run.curve
            if last or done % runtime.evaluate_every_rounds == 0:
                curve = (*curve, _measure(worker, validation, local.sequence_words, done))
            run = _Run(done, stepped, noise, timer, records, curve)
            if last or done % runtime.checkpoint_every_rounds == 0:
                _save(run, directory, digest, noise_maker, runtime.keep_checkpoints)
            _tell(on_round, run, mechanism.rounds, time.monotonic() - began)
    server.load_weights(model, run.server.weights_P)
    return FineTuneResult(
        rounds=run.rounds_done,
        curve=run.curve,
        observed=participation.observe(run.records, run.rounds_done, cohorts, synthetic_D),
        synthetic_participations=tuple(run.records.participations(len(devices))[synthetic_D].tolist()),
    )


def _tell(on_round: Callable[[dict[str, float]], None] | None, run: _Run, rounds: int, seconds: float) -> None:
    message: dict[str, float] = {"round": run.rounds_done, "rounds": rounds, "seconds": seconds}
    if run.curve[-1].round == run.rounds_done:
        message |= run.curve[-1].model_dump()
    _log.debug("round %d of %d in %.1f s", run.rounds_done, rounds, seconds)
    if on_round is not None:
        on_round(message)


def _measure(model: KeyboardLM, validation: TokenStream, sequence_words: int, done: int) -> CurvePoint:
    loss, top1 = evaluate(model, validation, sequence_words)
    known = int(np.sum(validation.tokens_N > UNK))
    unknown = int(np.sum(validation.tokens_N == UNK))
    recall = top1 * known / max(known + unknown, 1)
    return CurvePoint(round=done, validation_loss=loss, validation_top1=top1, validation_recall=recall)


def _check(
    model: KeyboardLM,
    devices: TokenStream,
    synthetic_D: np.ndarray,
    mechanism: MechanismConfig,
    runtime: RuntimeConfig,
) -> None:
    """Everything that could raise on data later is looked at now, before the first round."""
    check_report_goal(mechanism.report_goal)
    check_clip_norm(mechanism.clip_norm)
    if not len(devices):
        raise ValueError("devices: none to train on; check the private store's train split")
    if synthetic_D.shape != (len(devices),) or synthetic_D.dtype != bool:
        raise ValueError(
            f"synthetic_D: {synthetic_D.shape} {synthetic_D.dtype}; give one bool for each of {len(devices)}"
        )
    tokens_N = devices.tokens_N
    if len(tokens_N) and not (tokens_N.min() > BOS > PAD and tokens_N.max() < model.vocabulary_size):
        raise ValueError(
            f"devices: token ids must lie in {BOS + 1} to {model.vocabulary_size - 1}; "
            "encode them with the vocabulary that the model was built for"
        )
    if runtime.workers != 1:
        raise ValueError(f"runtime.workers: {runtime.workers}, but training runs in one process; set it to 1")
    if runtime.device == "cuda" and not torch.cuda.is_available():
        raise OSError("runtime.device: 'cuda', but no GPU is visible here; run on a GPU worker or set 'cpu'")


def _run_digest(
    model: KeyboardLM,
    devices: TokenStream,
    synthetic_D: np.ndarray,
    configs: tuple[Config, ...],
    seed: int,
    key: bytes,
) -> str:
    total = hashlib.sha256(b"tacit fine-tune run")
    for config in configs:
        total.update(config.model_dump_json().encode())
    total.update(str(seed).encode())
    # Only a digest of the key: a checkpoint alone must not undo the noise.
    total.update(hashlib.sha256(b"tacit key check" + key).digest())
    for array in (devices.tokens_N, devices.offsets_D1, synthetic_D, server.flat_weights(model)):
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


def _save(run: _Run, directory: Path, digest: str, noise_maker: mechanisms.Mechanism, keep: int) -> None:
    # Records first: they may be ahead of the checkpoint after a crash, never behind it.
    participation.save_records(run.records, directory / _RECORDS_FILE)
    arrays = {
        "weights": run.server.weights_P,
        "momentum": run.server.momentum_P,
        "last_round": run.timer.last_round_D,
        "count": run.timer.count_D,
        **{_NOISE_PREFIX + name: array for name, array in noise_maker.save(run.noise).items()},
    }
    metrics = [point.model_dump() for point in run.curve]
    checkpoint.save(checkpoint.Checkpoint(run.rounds_done, digest, arrays, metrics), directory, keep)


def _resume(directory: Path, digest: str, noise_maker: mechanisms.Mechanism) -> _Run | None:
    found = checkpoint.load_latest(directory, digest)
    if found is None:
        return None
    arrays = found.arrays
    records = participation.load_records(directory / _RECORDS_FILE).before(found.rounds_done)
    if len(records.rounds_N) != int(arrays["count"].sum()):
        raise OSError(
            f"{_RECORDS_FILE}: {len(records.rounds_N)} records of {int(arrays['count'].sum())} participations; "
            "the file is damaged, and without it nothing can be accounted: restore it"
        )
    _log.info("goes on after round %d", found.rounds_done)
    noise = {name.removeprefix(_NOISE_PREFIX): arrays[name] for name in arrays if name.startswith(_NOISE_PREFIX)}
    return _Run(
        found.rounds_done,
        ServerState(arrays["weights"], arrays["momentum"]),
        noise_maker.load(noise),
        ParticipationState(arrays["last_round"], arrays["count"]),
        records,
        tuple(CurvePoint.model_validate(point) for point in found.metrics),
    )
