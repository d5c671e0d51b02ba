"""The round loop: cohort, local training, clipped sum, noise, server step.

Shape legend: D devices, P parameters.

DP-FTRL (Kairouz et al. 2021, algorithm 1) with momentum on the noisy mean, as in Xu et al. 2023; with
independent noise DP-FedAvg and DP-FedSGD (McMahan et al. 2018, algorithm 1).
"""

import copy
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from federated import mechanisms, participation, run_state, secagg, server
from federated import probe as probing
from federated.aggregation import largest_cohort, plan_encoding, round_sum
from federated.client import Aggregate, one_torch_thread, single_batch
from federated.clipping import Clip, check_clip_norm, check_report_goal
from federated.cohorts import cohorts_of
from federated.config import LocalTrainingConfig, MechanismConfig, ServerConfig
from federated.files import private_directory
from federated.participation import Observed
from federated.privatize import PrivacyState, privatizer
from federated.probe import Probe, ProbeState
from federated.records import no_records
from federated.rows import cohort_rows, round_offset
from federated.run_state import CurvePoint, RunState
from federated.runtime_config import RuntimeConfig
from pretrain.model import KeyboardLM, parameter_count
from pretrain.train import evaluate
from pretrain.vocabulary import BOS, PAD, UNK, TokenStream

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FineTuneResult:
    """What may be told of a finished run.

    Attributes:
      rounds: rounds done.
      curve: public.
      observed: from the participation records; the accountant's input.
      synthetic_participations: rounds that each synthetic device joined, in their order.
      encoding: how secure aggregation wrote updates as integers; None without it.
      synthetic_joined_TD: bool, rounds by synthetic devices.
      probe: what the audits of the noise need; the one secret here, for ``private/`` alone.
    """

    rounds: int
    curve: tuple[CurvePoint, ...]
    observed: Observed
    synthetic_participations: tuple[int, ...]
    encoding: secagg.Encoding | None
    synthetic_joined_TD: np.ndarray = field(repr=False, compare=False)
    probe: ProbeState | None = field(default=None, repr=False, compare=False)


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
    noise_maker: mechanisms.Mechanism | None = None,
    probe: Probe | None = None,
    stress_D: np.ndarray | None = None,
    stress_rate: float = 0.0,
) -> FineTuneResult:
    """Train ``model`` in place by federated learning with the noise of ``mechanism``.

    Guarantee: the sequence of all models is a post-processing of what ``federated.privatize`` releases
    from updates clipped to the clip norm in use. With correlated noise no device takes part twice
    within ``mechanism.min_sep`` rounds or more than ``mechanism.max_participations`` times. Zero-out
    adjacency, unit one device. What that is worth: ``accounting.from_records(mechanism, result.observed)``.
    Between reading a device's text and adding noise nothing depends on the text but the sum.

    A killed run that is called again goes on from its last whole checkpoint. Cohorts are a function of
    (seed, round) or, where they must be secret, of (key, round); noise of (key, round): what is done
    again is the same release, not a second one. On a CPU with the same ``runtime.chunk_devices`` the
    final model is bitwise that of a run without a kill, whatever ``threads`` is. A run that is complete
    returns its result at once.

    Args:
      devices: text of the devices to train on; ``synthetic_D`` (bool) marks those made for the audit.
      validation: text of held-out devices.
      key: secret of the noise.
      directory: private; checkpoints and ``participation.parquet``. Empty for a new run.
      on_round: gets ``round``, ``rounds``, ``seconds``, and the curve point's numbers where there is one.
      threads: chunks of devices at work at the same time; None for the cores this process may use.
      noise_maker: the mechanism from a mechanism file; None to build it.
      probe: direction canaries for the audits of the noise, beside the cohort; None for none.
      stress_D: bool, which of the synthetic devices are outside timer and cap; ``stress_rate`` is their chance of a
        round. Only with correlated noise.

    Raises:
      ValueError: arguments that do not fit together; a directory of another run.
      ArithmeticError: released weights are no longer finite.
      OSError: records lost, or a GPU asked for where there is none.
    """
    _check(model, devices, synthetic_D, mechanism, runtime)
    private_directory(directory)
    privatize = privatizer(mechanism, noise_maker or mechanisms.build(mechanism))
    cohorts = cohorts_of(mechanism, synthetic_D, seed, key, stress_D, stress_rate)
    digest = run_state.run_digest(model, devices, synthetic_D, (mechanism, local, server_config), seed, key)
    digest += "" if probe is None else probe.commitment
    digest += "" if runtime.precision == "float32" else f" {runtime.precision}"
    encoding = plan_encoding(mechanism, parameter_count(model), len(devices))
    worker = copy.deepcopy(model).to(runtime.device)
    at_once = threads or (len(os.sched_getaffinity(0)) if runtime.device == "cpu" else 1)
    with one_torch_thread():
        run = run_state.resume(directory, digest, privatize)
        if run is None:
            start = server.init(model, server_config)
            privacy = privatize.init(len(start.weights_P))
            point = _measure(worker, validation, local.sequence_words, 0, privacy)
            probed = None if probe is None else probing.init(probe, cohorts)
            run = RunState(0, start, privacy, cohorts.init(), no_records(), (point,), probed)
        run_state.forget_later(directory, run.rounds_done)
        while run.rounds_done < mechanism.rounds:
            began = time.monotonic()
            round_number, privacy = run.rounds_done, privatize.begin(run.privacy)
            server.load_weights(worker, run.server.weights_P)
            cohort, timer = cohorts.draw(run.timer, round_number)
            drawn = privatize.draw(privacy, key)
            offset = round_offset(seed, round_number)
            rows = cohort_rows(devices, cohort, local, offset)
            if local.algorithm == "fedsgd":
                rows = [single_batch(own, local.batch_sentences, offset) for own in rows]
            clip = _clip(mechanism, privacy)
            unnoised = round_sum(
                worker, rows, local, clip, mechanism, encoding, runtime, at_once, round_number, seed, key
            )
            del rows
            unnoised_sum_P, probed = _weighted_sum(mechanism, unnoised), run.probe
            if probe is not None:
                canaries_P, probed = probing.join(probe, cohorts, probed, round_number, clip)
                unnoised_sum_P += canaries_P
            released_sum_P, privacy = privatize.privatize(unnoised_sum_P, unnoised.below, drawn, privacy)
            if probe is not None:
                probed = probing.observe(probe, probed, released_sum_P, unnoised_sum_P - canaries_P, clip)
            del unnoised, unnoised_sum_P, drawn
            stepped = server.step(run.server, released_sum_P, _denominator(mechanism), server_config)
            records, done = run.records.add(round_number, cohort), round_number + 1
            server.load_weights(worker, stepped.weights_P)
            if not all(torch.isfinite(parameter).all() for parameter in worker.parameters()):
                raise ArithmeticError(f"weights are not finite after round {done}; lower server.learning_rate")
            last, curve = done == mechanism.rounds, run.curve
            if last or done % runtime.evaluate_every_rounds == 0:
                curve = (*curve, _measure(worker, validation, local.sequence_words, done, privacy))
            run = RunState(done, stepped, privacy, timer, records, curve, probed)
            if last or done % runtime.checkpoint_every_rounds == 0:
                run_state.save(run, directory, digest, privatize, runtime.keep_checkpoints)
            _tell(on_round, run, mechanism.rounds, time.monotonic() - began)
    server.load_weights(model, run.server.weights_P)
    return FineTuneResult(
        rounds=run.rounds_done,
        curve=run.curve,
        observed=participation.observe(run.records, run.rounds_done, cohorts, synthetic_D),
        synthetic_participations=tuple(run.records.participations(len(devices))[synthetic_D].tolist()),
        encoding=encoding,
        synthetic_joined_TD=run.records.joined(run.rounds_done, np.flatnonzero(synthetic_D)),
        probe=run.probe,
    )


def _clip(mechanism: MechanismConfig, privacy: PrivacyState) -> Clip:
    return Clip(
        norm=privacy.clip_norm,
        per_layer=mechanism.clipping == "per-layer",
        below=privacy.estimate if mechanism.adaptive_clipping else None,
        weight_words=mechanism.weight_words if mechanism.kind == "independent" else None,
    )


def _denominator(mechanism: MechanismConfig) -> float:
    """What every round's sum is divided by."""
    return mechanism.denominator if mechanism.kind == "independent" else float(mechanism.report_goal)


def _weighted_sum(mechanism: MechanismConfig, unnoised: Aggregate) -> np.ndarray:
    """The sum to be released, int64 ``[P]``.

    With the clipped estimator of McMahan et al. 2018 (equation 3) it is scaled down where more weight
    arrived than the fixed denominator, which makes it 2 clip norms sensitive (their lemma 1).
    """
    unnoised_sum_P = unnoised.sum_P.numpy()
    if mechanism.kind != "independent" or mechanism.estimator == "fixed":
        return unnoised_sum_P
    factor = mechanism.denominator / max(mechanism.denominator, unnoised.weight)
    return np.trunc(unnoised_sum_P * factor).astype(np.int64)


def _tell(on_round: Callable[[dict[str, float]], None] | None, run: RunState, rounds: int, seconds: float) -> None:
    message: dict[str, float] = {"round": run.rounds_done, "rounds": rounds, "seconds": seconds}
    if run.curve[-1].round == run.rounds_done:
        message |= run.curve[-1].model_dump()
    _log.debug("round %d of %d in %.1f s", run.rounds_done, rounds, seconds)
    if on_round is not None:
        on_round(message)


def _measure(
    model: KeyboardLM, validation: TokenStream, sequence_words: int, done: int, privacy: PrivacyState
) -> CurvePoint:
    loss, top1 = evaluate(model, validation, sequence_words)
    known = int(np.sum(validation.tokens_N > UNK))
    unknown = int(np.sum(validation.tokens_N == UNK))
    return CurvePoint(
        round=done,
        validation_loss=loss,
        validation_top1=top1,
        validation_recall=top1 * known / max(known + unknown, 1),
        clip_norm=privacy.clip_norm,
        clip_estimate=privacy.estimate,
    )


def _check(
    model: KeyboardLM,
    devices: TokenStream,
    synthetic_D: np.ndarray,
    mechanism: MechanismConfig,
    runtime: RuntimeConfig,
) -> None:
    """Everything that could raise on data later is looked at now, before the first round."""
    check_report_goal(largest_cohort(mechanism, len(devices)))
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
