"""The round loop: cohort, local training, clipped sum, noise, server step.

Shape legend: D devices, T rounds, P parameters.

DP-FTRL (Kairouz et al. 2021, algorithm 1) with momentum on the noisy mean, as in Xu et al. 2023; with
independent noise DP-FedAvg and DP-FedSGD (McMahan et al. 2018, algorithm 1).

Guarantee: the sequence of all models is a post-processing of what ``federated.rounds.privatize`` releases from updates
clipped to the clip norm in use. With correlated noise no device takes part twice within ``min_sep`` rounds or more than
``max_participations`` times, whatever a clock says. Zero-out adjacency, unit one device. What that is worth:
``accounting.guarantees.from_records(rule.config, result.observed)``. Between reading a device's text and adding noise
nothing depends on the text but the sum.

A killed run that is called again resumes from its last whole checkpoint. Cohorts are a function of
(seed, round) or, where they must be secret, of (key, round); noise of (key, round): what is done
again is the same release, not a second one. On a CPU with the same ``runtime.chunk_devices`` the
final model is bitwise that of a run without a kill, whatever the threads and the number of workers are.

Several workers are given the same arguments but for their place. Each goes through every round and
trains its share of the devices; one sum of integers a round is all that they tell each other.
"""

import copy
import hashlib
import logging
import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from federated.config.training import LocalTrainingConfig, RuntimeConfig, ServerConfig
from federated.local_training import low_bits
from federated.local_training.autotune import chunk_of_run
from federated.local_training.rows import round_rows
from federated.participation.cohorts import Cohorts
from federated.participation.observation import Observation, observe
from federated.participation.records import no_records
from federated.participation.secret_sample import SampledCohorts
from federated.rounds import direction_canaries, kept_rounds, server, state
from federated.rounds.aggregation import Trainer, round_sum
from federated.rounds.commitments import Commitment, commit
from federated.rounds.direction_canaries import Probe, ProbeState
from federated.rounds.kept_rounds import KeptRound
from federated.rounds.privatize import NoiseAhead, Privatizer
from federated.rounds.rule import RoundRule
from federated.rounds.state import RunState
from federated.rounds.validation import CurvePoint, measure
from federated.rounds.witness import RoundSums, Watch
from federated.secagg.bounds import Encoding
from federated.workers.worker import ALONE, Worker
from pretrain.files import private_directory
from pretrain.kernel.threads import one_torch_thread
from pretrain.model.keyboard_lm import KeyboardLM, parameter_count, require_device
from pretrain.text.vocabulary import BOS, PAD, TokenStream

_log = logging.getLogger(__name__)
Progress = Callable[[dict[str, float]], None]


@dataclass(frozen=True)
class TrainingData:
    """Text of the devices to train on, and which of them are not people.

    Attributes:
      devices: text of the devices to train on.
      synthetic_D: bool, those made for the audit.
      validation: text of held-out devices.
      stress_D: bool, which of the synthetic devices are outside timer and cap; None: none. Only with
        correlated noise.
      stress_rate: their chance of a round.
    """

    devices: TokenStream
    synthetic_D: np.ndarray
    validation: TokenStream
    stress_D: np.ndarray | None = None
    stress_rate: float = 0.0

    @property
    def people(self) -> int:
        """Number of devices that are not synthetic."""
        return int(np.sum(~self.synthetic_D))


@dataclass(frozen=True)
class Workplace:
    """Place and machine settings of a run; no guarantee depends on them.

    Attributes:
      directory: private; checkpoints and the folder ``participation.parquet``. Empty for a new run.
      threads: chunks of devices at work at the same time; None for this process's share of the cores it may use.
      process: which of the workers this is, see ``workers.joined``.
      on_round: gets ``round``, ``rounds``, ``seconds``, and the curve point's numbers where there is one.
      writing: around every write of a checkpoint; raises where another run has taken this one's place.
    """

    directory: Path
    runtime: RuntimeConfig
    threads: int | None = None
    process: Worker = ALONE
    on_round: Progress | None = None
    writing: Callable[[], AbstractContextManager[None]] = nullcontext

    @property
    def leads(self) -> bool:
        """Return whether this process measures the model, writes checkpoints and records, and reports progress."""
        return self.process.rank == 0

    @property
    def chunks_at_once(self) -> int:
        """Number of chunks of devices that this process trains at the same time."""
        cores = len(os.sched_getaffinity(0)) if self.runtime.device == "cpu" else 1
        return self.threads or max(1, cores // self.process.size)


@dataclass(frozen=True)
class FineTuneResult:
    """Publishable result of a finished run.

    Attributes:
      rounds: rounds done.
      curve: public.
      observed: from the participation records; the accountant's input.
      synthetic_participations: rounds that each synthetic device joined, in their order.
      encoding: how secure aggregation wrote updates as integers; None without it.
      synthetic_joined_TD: bool, rounds by synthetic devices.
      probe: what the audits of the noise need; the one secret here, for ``private/`` alone.
      commitments: to every round.
    """

    rounds: int
    curve: tuple[CurvePoint, ...]
    observed: Observation
    synthetic_participations: tuple[int, ...]
    encoding: Encoding | None
    synthetic_joined_TD: np.ndarray = field(repr=False, compare=False)
    probe: ProbeState | None = field(default=None, repr=False, compare=False)
    commitments: tuple[Commitment, ...] = ()


def fine_tune(
    model: KeyboardLM,
    data: TrainingData,
    rule: RoundRule,
    local: LocalTrainingConfig,
    server_config: ServerConfig,
    place: Workplace,
    probe: Probe | None = None,
    watch: Watch | None = None,
) -> FineTuneResult:
    """Train ``model`` in place by federated learning; a run that is complete returns its result at once.

    Args:
      probe: direction canaries for the audits of the noise, beside the cohort; None for none.
      watch: tests each round along the canaries' directions, and ends the run by raising; None for none.

    Raises:
      ValueError: arguments that do not fit together; a directory of another run; workers of several kinds of
        processors.
      ArithmeticError: released weights are no longer finite.
      OSError: records lost, a GPU asked for where there is none, another worker gone or in another state, a run
        begun on another kind of processor.
    """
    _check(model, data, rule, place.runtime)
    privatizer, cohorts = rule.privatizer, rule.cohorts(data.synthetic_D, data.stress_D, data.stress_rate)
    encoding = rule.encoding(parameter_count(model), data.people, int(np.sum(data.synthetic_D)))
    configs = (rule.config, local, server_config)
    digest = state.run_digest(model, data.devices, data.synthetic_D, configs, rule.seed, rule.key)
    digest += "" if probe is None else probe.commitment
    worker, last = copy.deepcopy(model).to(place.runtime.device), rule.config.rounds
    # How BLAS splits a product changes low bits, and workers have fewer threads than one process.
    noise = NoiseAhead(privatizer, rule.key, last)
    with one_torch_thread(), threadpool_limits(1, user_api="blas"), noise:
        run = _resume(place, digest, privatizer, cohorts)
        if run is None:
            run = _first(model, rule, cohorts, server_config, probe)
            run = _measured(run, worker, data, local, place, last)
        if run.rounds_done < last:
            evidence = watch.begin(run.probe.witness, run.records.cohorts) if watch and run.probe else None
            trainer = _trainer(worker, local, place)
            if place.leads:
                with place.writing():
                    state.forget_later(place.directory, run.rounds_done)
            server.load_weights(worker, run.server.weights_P)
            rounds = _Rounds(trainer, data, rule, cohorts, server_config, encoding, noise, probe)
        while run.rounds_done < last:
            began, before = time.monotonic(), run
            run, done = rounds.after(before)
            if watch and run.probe:
                sums, joined_N = (done.unnoised_sum_P, done.released_sum_P), run.probe.joined_TN[-1]
                evidence = watch.after(evidence, run.records.cohorts[-1][1], *sums, joined_N, run.probe.witness)
            if probe is not None:
                _keep(place, before, done.released_sum_P, last)
            del done
            _check_finite(worker, run.rounds_done)
            run = _measured(run, worker, data, local, place, last)
            _save(run, place, digest, privatizer, last)
            _tell(run, place, last, time.monotonic() - began)
    if place.leads:
        with place.writing():
            state.settle(place.directory)
    server.load_weights(model, run.server.weights_P)
    return _result(run, data, cohorts, encoding)


def rerun(
    model: KeyboardLM,
    data: TrainingData,
    rule: RoundRule,
    local: LocalTrainingConfig,
    server_config: ServerConfig,
    place: Workplace,
    probe: Probe,
    wanted: Collection[int],
) -> Iterator[tuple[int, Commitment]]:
    """Run rounds of a finished run again, and yield each round's number and what it would be committed to.

    Each part of the run that holds a wanted round is run from its kept start to that round; of other rounds only
    noise, cohorts and canaries' timers are drawn.

    Guarantee: the same releases under the same noise, so nothing is spent; nothing is written but what a run on this
    kind of processor has written already.

    Args:
      model: of the first round; not modified.
      place: of the finished run.

    Raises:
      OSError: the run's rounds are of another kind of processor, or a start is lost.
      ValueError: see ``fine_tune``.
    """
    _check(model, data, rule, place.runtime)
    privatizer, cohorts = rule.privatizer, rule.cohorts(data.synthetic_D, data.stress_D, data.stress_rate)
    encoding = rule.encoding(parameter_count(model), data.people, int(np.sum(data.synthetic_D)))
    worker = copy.deepcopy(model)
    begins = (0, *kept_rounds.starts(rule.config.rounds))
    # Start of a part -> the last wanted round in it.
    parts = {max(begin for begin in begins if begin <= number): number for number in sorted(wanted)}
    noise = NoiseAhead(privatizer, rule.key, max(wanted) + 1)
    with one_torch_thread(), threadpool_limits(1, user_api="blas"), noise:
        trainer = _trainer(worker.to(place.runtime.device), local, place)
        rounds = _Rounds(trainer, data, rule, cohorts, server_config, encoding, noise, probe)
        run, until = _first(model, rule, cohorts, server_config, probe), -1
        while run.rounds_done <= max(wanted):
            number = run.rounds_done
            if number in parts:
                run, until = _from_start(run, place), parts[number]
                server.load_weights(worker, run.server.weights_P)
            if number <= until:
                run, _ = rounds.after(run)
                yield number, run.commitments[-1]
            else:
                run = rounds.passed(run)


def _from_start(run: RunState, place: Workplace) -> RunState:
    """The state before a part, with the kept state of the server; a run's first part begins with its model."""
    if not run.rounds_done:
        return run
    kept = kept_rounds.load_start(place.directory, run.rounds_done)
    clip_norm, estimate, shares, bits = kept.clips
    clips = replace(run.privacy, clip_norm=clip_norm, estimate=estimate, shares=shares, released_bits=bits)
    return replace(run, server=kept.server, privacy=clips)


def _first(
    model: KeyboardLM,
    rule: RoundRule,
    cohorts: Cohorts | SampledCohorts,
    server_config: ServerConfig,
    probe: Probe | None,
) -> RunState:
    """State before the first round."""
    start = server.init(model, server_config)
    privacy = rule.privatizer.init(len(start.weights_P))
    probed = direction_canaries.init(probe, cohorts, len(start.weights_P))
    return RunState(0, start, privacy, cohorts.init(), no_records(), (), probed)


@dataclass(frozen=True)
class _Rounds:
    """Inputs that all rounds of a run share."""

    trainer: Trainer
    data: TrainingData
    rule: RoundRule
    cohorts: Cohorts | SampledCohorts
    server_config: ServerConfig
    encoding: Encoding | None
    noise: NoiseAhead
    probe: Probe | None

    def after(self, run: RunState) -> tuple[RunState, RoundSums]:
        """The state after one more round, with that round's model in the trainer, and the round's sums."""
        rule, number, model = self.rule, run.rounds_done, self.trainer.model
        cohort, timer = self.cohorts.draw(run.timer, number)
        privacy = rule.privatizer.begin(run.privacy)
        # Noise before text: if drawing it fails, that tells of no device.
        drawn = self.noise.draw(privacy)
        rows = round_rows(self.data.devices, cohort, self.trainer.local, rule.seed, number)
        clip = rule.clip(privacy)
        planted, probed = direction_canaries.join(self.probe, self.cohorts, run.probe)
        unnoised = round_sum(self.trainer, rows, clip, rule, self.encoding, number, planted, timer.dropped)
        unnoised_sum_P = rule.to_release(unnoised.sum_P.numpy(), unnoised.weight)
        if unnoised.planted_P is not None:
            unnoised_sum_P = unnoised_sum_P + unnoised.planted_P.numpy()
        released_sum_P, privacy = rule.privatizer.privatize(unnoised_sum_P, unnoised.below, drawn, privacy)
        stepped = server.step(run.server, released_sum_P, rule.denominator, self.server_config)
        server.load_weights(model, stepped.weights_P)
        # What is released is the sequence of models: the audit is told of the very one that devices train next.
        bits = privacy.released_bits
        done = RoundSums.of(unnoised, unnoised_sum_P, released_sum_P, bits, rule.sensitivity == 1)
        probed = direction_canaries.observe(self.probe, probed, done, clip, model)
        made = commit(rule.key, number, cohort, released_sum_P, bits, stepped.weights_P)
        records = run.records.add(number, cohort, timer.lasted)
        committed = (*run.commitments, made)
        return RunState(number + 1, stepped, privacy, timer, records, run.curve, probed, committed), done

    def passed(self, run: RunState) -> RunState:
        """The state after a round as far as seed and key give it: without its model, sums and commitment."""
        _, timer = self.cohorts.draw(run.timer, run.rounds_done)
        privacy = self.rule.privatizer.begin(run.privacy)
        privacy = self.rule.privatizer.after(privacy, self.noise.draw(privacy))
        _, probed = direction_canaries.join(self.probe, self.cohorts, run.probe)
        return replace(run, rounds_done=run.rounds_done + 1, privacy=privacy, timer=timer, probe=probed)


def _check(model: KeyboardLM, data: TrainingData, rule: RoundRule, runtime: RuntimeConfig) -> None:
    """See that all fits together before the first round: nothing may raise on data later.

    Raises:
      ValueError: it does not.
      OSError: a GPU is asked for where there is none.
    """
    devices, synthetic_D = data.devices, data.synthetic_D
    rule.require_sums(len(devices))
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
    require_device(runtime.device)


def _resume(
    place: Workplace, digest: str, privatizer: Privatizer, cohorts: Cohorts | SampledCohorts
) -> RunState | None:
    """The state that all workers go on from; None for a new run."""
    private_directory(place.directory)
    place.process.agree(_number(digest.encode()), "settings, data, key or starting weights")
    run = state.resume(place.directory, digest, privatizer, cohorts)
    place.process.agree(0 if run is None else run.rounds_done, "rounds done")
    return run


def _number(content: bytes | memoryview) -> int:
    """56 bits of a digest, for workers to compare."""
    return int.from_bytes(hashlib.sha256(content).digest()[:7], "big")


def _trainer(model: KeyboardLM, local: LocalTrainingConfig, place: Workplace) -> Trainer:
    """Make the trainer of a run's rounds, on the kind of processor that they began on."""
    bits = low_bits.low_bits_of(model, local)
    low_bits.require_one_kind(bits, place.process)
    if place.leads:
        low_bits.require_kind_of_run(bits, place.directory)
    chunk = chunk_of_run(model, local, place.runtime, place.directory, place.process)
    return Trainer(model, local, chunk, place.chunks_at_once, place.process)


def _check_finite(model: KeyboardLM, done: int) -> None:
    if not all(torch.isfinite(parameter).all() for parameter in model.parameters()):
        raise ArithmeticError(f"weights are not finite after round {done}; lower server.learning_rate")


def _measured(
    run: RunState, model: KeyboardLM, data: TrainingData, local: LocalTrainingConfig, place: Workplace, last: int
) -> RunState:
    """Measure the model on validation devices if this round is due, and append the point."""
    done = run.rounds_done
    if not place.leads or (done != last and done % place.runtime.evaluate_every_rounds):
        return run
    point = measure(model, data.validation, local.sequence_words, done, run.privacy)
    return replace(run, curve=(*run.curve, point))


def _save(run: RunState, place: Workplace, digest: str, privatizer: Privatizer, last: int) -> None:
    """Write a checkpoint where one is due, once all workers agree."""
    if run.rounds_done != last and run.rounds_done % place.runtime.checkpoint_every_rounds:
        return
    place.process.agree(_number(run.server.weights_P.data), "weights")
    if place.leads:
        with place.writing():
            state.save(run, place.directory, digest, privatizer)


def _keep(place: Workplace, before: RunState, released_sum_P: np.ndarray, rounds: int) -> None:
    """Keep what an audit and a second run need of a round, where the round is one of those kept."""
    number = before.rounds_done
    if not place.leads:
        return
    if number in kept_rounds.numbers(rounds):
        with place.writing():
            kept_rounds.save(place.directory, number, KeptRound(before.server.weights_P, released_sum_P))
    if number in kept_rounds.starts(rounds):
        with place.writing():
            kept_rounds.save_start(place.directory, number, before.server, before.privacy)


def _tell(run: RunState, place: Workplace, rounds: int, seconds: float) -> None:
    if not place.leads:
        return
    message: dict[str, float] = {"round": run.rounds_done, "rounds": rounds, "seconds": seconds}
    if run.curve[-1].round == run.rounds_done:
        message |= run.curve[-1].model_dump()
    _log.debug("round %d of %d in %.2g s", run.rounds_done, rounds, seconds)
    if place.on_round is not None:
        place.on_round(message)


def _result(
    run: RunState, data: TrainingData, cohorts: Cohorts | SampledCohorts, encoding: Encoding | None
) -> FineTuneResult:
    synthetic_D = data.synthetic_D
    return FineTuneResult(
        rounds=run.rounds_done,
        curve=run.curve,
        observed=observe(run.records, run.rounds_done, cohorts, synthetic_D),
        synthetic_participations=tuple(run.records.participations(len(data.devices))[synthetic_D].tolist()),
        encoding=encoding,
        synthetic_joined_TD=run.records.joined(run.rounds_done, np.flatnonzero(synthetic_D)),
        probe=run.probe,
        commitments=run.commitments,
    )
