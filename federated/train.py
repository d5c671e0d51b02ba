"""The round loop: cohort, local training, clipped sum, noise, server step.

Shape legend: D devices, P parameters.

DP-FTRL (Kairouz et al. 2021, algorithm 1) with momentum on the noisy mean, as in Xu et al. 2023; with
independent noise DP-FedAvg and DP-FedSGD (McMahan et al. 2018, algorithm 1).
"""

import copy
import hashlib
import logging
import os
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from federated import mechanisms
from federated.config.mechanism import LocalTrainingConfig, MechanismConfig, ServerConfig
from federated.local_training.autotune import chunk_of_run
from federated.local_training.clipping import Clip
from federated.local_training.rows import cohort_rows, round_offset, single_batch
from federated.local_training.sums import Aggregate
from federated.participation.build import cohorts_of
from federated.participation.cohorts import ParticipationState
from federated.participation.observed import Observed, observe
from federated.participation.records import no_records
from federated.rounds import direction_canaries as probing
from federated.rounds import server
from federated.rounds import state as run_state
from federated.rounds.aggregation import plan_encoding, round_sum
from federated.rounds.direction_canaries import Probe, ProbeState
from federated.rounds.prefetch import Upcoming, upcoming
from federated.rounds.privatize import PrivacyState, privatizer
from federated.rounds.state import RunState
from federated.rounds.validation import CurvePoint, measure
from federated.run_check import check_run
from federated.runtime_config import RuntimeConfig
from federated.secagg.bounds import Encoding
from federated.workers import ALONE, Worker
from pretrain.files import private_directory
from pretrain.model import KeyboardLM, parameter_count
from pretrain.threads import one_torch_thread
from pretrain.vocabulary import TokenStream

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
    encoding: Encoding | None
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
    process: Worker = ALONE,
) -> FineTuneResult:
    """Train ``model`` in place by federated learning with the noise of ``mechanism``.

    Guarantee: the sequence of all models is a post-processing of what ``federated.rounds.privatize`` releases
    from updates clipped to the clip norm in use. With correlated noise no device takes part twice
    within ``mechanism.min_sep`` rounds or more than ``mechanism.max_participations`` times. Zero-out
    adjacency, unit one device. What that is worth: ``accounting.from_records(mechanism, result.observed)``.
    Between reading a device's text and adding noise nothing depends on the text but the sum.

    A killed run that is called again goes on from its last whole checkpoint. Cohorts are a function of
    (seed, round) or, where they must be secret, of (key, round); noise of (key, round): what is done
    again is the same release, not a second one. On a CPU with the same ``runtime.chunk_devices`` the
    final model is bitwise that of a run without a kill, whatever ``threads`` and the number of workers
    are. A run that is complete returns its result at once.

    Several workers are given the same arguments but for ``process``. Each goes through every round and
    trains its share of the devices; one sum of integers a round is all that they tell each other. Worker 0
    alone measures the model, writes checkpoints and records, and tells of progress; its result counts.

    Args:
      devices: text of the devices to train on; ``synthetic_D`` (bool) marks those made for the audit.
      validation: text of held-out devices.
      key: secret of the noise.
      directory: private; checkpoints and the folder ``participation.parquet``. Empty for a new run.
      on_round: gets ``round``, ``rounds``, ``seconds``, and the curve point's numbers where there is one.
      threads: chunks of devices at work at the same time; None for this process's share of the cores it may use.
      noise_maker: the mechanism from a mechanism file; None to build it.
      probe: direction canaries for the audits of the noise, beside the cohort; None for none.
      stress_D: bool, which of the synthetic devices are outside timer and cap; ``stress_rate`` is their chance of a
        round. Only with correlated noise.
      process: which of the workers this is, see ``distributed.joined``.

    Raises:
      ValueError: arguments that do not fit together; a directory of another run.
      ArithmeticError: released weights are no longer finite.
      OSError: records lost, a GPU asked for where there is none, another worker gone or in another state.
    """
    check_run(model, devices, synthetic_D, mechanism, runtime)
    private_directory(directory)
    privatize = privatizer(mechanism, noise_maker or mechanisms.build(mechanism))
    cohorts = cohorts_of(mechanism, synthetic_D, seed, key, stress_D, stress_rate)
    digest = run_state.run_digest(model, devices, synthetic_D, (mechanism, local, server_config), seed, key)
    digest += "" if probe is None else probe.commitment
    encoding = plan_encoding(mechanism, parameter_count(model), len(devices))
    worker = copy.deepcopy(model).to(runtime.device)
    cores = len(os.sched_getaffinity(0)) if runtime.device == "cpu" else 1
    at_once, tells = threads or max(1, cores // process.size), process.rank == 0
    last = mechanism.rounds

    def prepare(round_number: int, privacy: PrivacyState, timer: ParticipationState) -> Upcoming:
        cohort, timer = cohorts.draw(timer, round_number)
        # Noise before text: if drawing it fails, that tells of no device.
        drawn = privatize.draw(privacy, key)
        offset = round_offset(seed, round_number)
        rows = cohort_rows(devices, cohort, local, offset)
        if local.algorithm == "fedsgd":
            rows = [single_batch(own, local.batch_sentences, offset) for own in rows]
        return Upcoming(round_number, drawn, cohort, timer, rows)

    # How BLAS splits a product changes low bits, and workers have fewer threads than one process.
    with one_torch_thread(), threadpool_limits(1, user_api="blas"):
        process.agree(_number(digest.encode()), "settings, data, key or starting weights")
        run = run_state.resume(directory, digest, privatize)
        process.agree(0 if run is None else run.rounds_done, "rounds done")
        if run is None:
            start = server.init(model, server_config)
            privacy = privatize.init(len(start.weights_P))
            curve = (measure(worker, validation, local.sequence_words, 0, privacy),) if tells else ()
            probed = None if probe is None else probing.init(probe, cohorts)
            run = RunState(0, start, privacy, cohorts.init(), no_records(), curve, probed)
        if run.rounds_done < last:
            chunk = chunk_of_run(worker, local, runtime, directory, process)
            if tells:
                run_state.forget_later(directory, run.rounds_done)
        began = time.monotonic()
        with closing(upcoming(prepare, range(run.rounds_done, last), run.privacy, run.timer)) as coming:
            for ready in coming:
                round_number, privacy = ready.round_number, privatize.begin(run.privacy)
                server.load_weights(worker, run.server.weights_P)
                clip = _clip(mechanism, privacy)
                cohort = (worker, ready.rows, local, clip, mechanism, encoding, chunk, at_once)
                unnoised = round_sum(*cohort, round_number, seed, key, process)
                unnoised_sum_P, probed = _weighted_sum(mechanism, unnoised), run.probe
                if probe is not None:
                    canaries_P, probed = probing.join(probe, cohorts, probed, round_number, clip, worker)
                    unnoised_sum_P += canaries_P
                released_sum_P, privacy = privatize.privatize(unnoised_sum_P, unnoised.below, ready.drawn, privacy)
                if probe is not None:
                    probed = probing.observe(probe, probed, released_sum_P, unnoised_sum_P - canaries_P, clip)
                del unnoised, unnoised_sum_P
                stepped = server.step(run.server, released_sum_P, _denominator(mechanism), server_config)
                records, done = run.records.add(round_number, ready.cohort), round_number + 1
                server.load_weights(worker, stepped.weights_P)
                if not all(torch.isfinite(parameter).all() for parameter in worker.parameters()):
                    raise ArithmeticError(f"weights are not finite after round {done}; lower server.learning_rate")
                curve = run.curve
                if tells and (done == last or done % runtime.evaluate_every_rounds == 0):
                    curve = (*curve, measure(worker, validation, local.sequence_words, done, privacy))
                run = RunState(done, stepped, privacy, ready.timer, records, curve, probed)
                if done == last or done % runtime.checkpoint_every_rounds == 0:
                    process.agree(_number(stepped.weights_P.data), "weights")
                    if tells:
                        run_state.save(run, directory, digest, privatize, runtime.keep_checkpoints)
                if tells:
                    _tell(on_round, run, last, time.monotonic() - began)
                began = time.monotonic()
    server.load_weights(model, run.server.weights_P)
    return FineTuneResult(
        rounds=run.rounds_done,
        curve=run.curve,
        observed=observe(run.records, run.rounds_done, cohorts, synthetic_D),
        synthetic_participations=tuple(run.records.participations(len(devices))[synthetic_D].tolist()),
        encoding=encoding,
        synthetic_joined_TD=run.records.joined(run.rounds_done, np.flatnonzero(synthetic_D)),
        probe=run.probe,
    )


def _number(content: bytes | memoryview) -> int:
    """Of 56 bits, for workers to compare."""
    return int.from_bytes(hashlib.sha256(content).digest()[:7], "big")


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
