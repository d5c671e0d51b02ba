"""Inputs of the audit of training: chosen rounds, their devices' text, and the noise of the key."""

import copy
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evaluation.audit import canaries, strategies
from evaluation.audit.directions import Directions
from evaluation.audit.keyed_noise import subkey
from evaluation.audit.noise import Trace
from evaluation.audit.released.splits import cohorts_audit, sampled
from evaluation.audit.released.training import (
    AdaptiveRule,
    KeptRound,
    Rule,
    TrainingRecord,
    chosen,
    combined,
    training_audit,
)
from evaluation.audit.verdict import Verdict
from federated.config.mechanism import IndependentMechanism, MechanismConfig
from federated.config.training import LocalTrainingConfig
from federated.local_training.autotune import FILE as CHUNK
from federated.local_training.rows import DeviceRows, cohort_rows, round_offset
from federated.local_training.updates import updates
from federated.participation.records import load_records
from federated.rounds import kept_rounds, server
from federated.rounds.rule import RoundRule
from federated.rounds.state import RECORDS
from pipeline.run import artifacts
from pipeline.run.stage import StageContext
from pipeline.stages.training import audit_trace
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.text.vocabulary import TokenStream, join_streams


@dataclass(frozen=True)
class TrainingRun:
    """A finished training run, from its files. Private.

    Attributes:
      folder: folder of its rounds.
      rule: the round's rule, with the key of the noise.
      start: the initial model, on the device that trains.
      final_P: weights of the published model.
      recorded: devices of each round, by their index among the training devices.
      people, synthetic: number of training devices of people, and of those made for the audit, which follow them.
      text: token ids of some of them, by index; read independently of training's own text.
    """

    folder: Path
    local: LocalTrainingConfig
    rule: RoundRule
    trace: Trace
    directions: Directions
    start: KeyboardLM
    final_P: np.ndarray
    recorded: Mapping[int, np.ndarray]
    people: int
    synthetic: int
    text: Callable[[np.ndarray], TokenStream]

    @property
    def devices(self) -> int:
        """Number of training devices, synthetic ones included."""
        return self.people + self.synthetic

    @property
    def rounds(self) -> int:
        """Number of finished rounds."""
        return len(self.trace.joined_TN)


def audited(ctx: StageContext) -> tuple[Verdict, ...]:
    """Verdicts on the training of a launch, in the context of its stage ``fine_tune``."""
    config, words, store = ctx.config, artifacts.vocabulary(ctx, "build_vocabulary"), artifacts.store(ctx)
    _, trace, directions = audit_trace.load(ctx.private / audit_trace.FILE)
    synthetic = canaries.load(ctx.run.input(ctx.stage, "canaries.json")).devices
    people = store.devices("train")

    def text(numbers: np.ndarray) -> TokenStream:
        own, made_up = people[numbers[numbers < len(people)]], numbers[numbers >= len(people)] - len(people)
        return join_streams([store.words.encode(words, own), synthetic.select(made_up)])

    folder = ctx.private / "rounds"
    finished = TrainingRun(
        folder=folder,
        local=config.local_training,
        rule=RoundRule(config.mechanism, config.seed, ctx.noise_key, artifacts.mechanism(ctx.run)),
        trace=trace,
        directions=directions,
        start=artifacts.on_device(ctx, artifacts.training_start(ctx)),
        final_P=server.flat_weights(artifacts.model(ctx, ctx.stage)),
        recorded=dict(load_records(folder / RECORDS, len(trace.joined_TN)).cohorts),
        people=len(people),
        synthetic=len(synthetic),
        text=text,
    )
    who = cohorts_audit(finished.devices, list(finished.recorded.values()), _samples(finished))
    # Rounds of devices that do not exist cannot be made again.
    return who, *(verdicts(finished, len(os.sched_getaffinity(0))) if who.passed else ())


def _samples(run: TrainingRun) -> Iterator[np.ndarray]:
    """Yield the secret sample of each recorded round; nothing where the launch's public seed picks the devices."""
    config = run.rule.config
    if isinstance(config, IndependentMechanism):
        size, rate = config.report_goal, config.report_goal / config.population
        for number in run.recorded:
            yield sampled(run.rule.key, number, run.devices, rate, None if config.sampling == "poisson" else size)


def verdicts(run: TrainingRun, threads: int = 1) -> tuple[Verdict, ...]:
    """Verdicts on the released sums and bits of a run.

    Args:
      threads: chunks of devices processed in parallel.
    """
    config, size = run.rule.config, run.directions.num_parameters
    strategy = audit_trace.strategy_of(run.rule, run.rounds)
    adaptive, bit_noise_T = config.adaptive_clipping, np.zeros(run.rounds)
    if adaptive is not None:
        key = subkey(run.rule.key, "clip bits")
        bit_noise_T = strategies.drawn_numbers(strategy, adaptive.bit_noise_std, key)
    start_P = server.flat_weights(run.start)
    encoding = run.rule.encoding(size, run.people, run.synthetic)
    rule = Rule(
        noise_multiplier=run.rule.privatizer.noise_multiplier,
        layers=run.directions.layers if config.clipping == "per-layer" else None,
        most_weight=run.rule.denominator if run.rule.sensitivity > 1 else None,
        rounding=0.0 if encoding is None else encoding.rounding_std,
        clipping=_adaptive(config, run.rounds),
    )
    numbers = chosen(run.final_P, kept_rounds.numbers(run.rounds))
    drawn = strategies.drawn(strategy, rule.noise_multiplier, run.rule.key, run.directions, numbers)
    recorded = TrainingRecord(run.trace.seen, audit_trace.models(run.directions, start_P, run.final_P), run.directions)
    made = (_round(run, number, drawn.whole[number], rule, threads) for number in numbers)
    return training_audit(made, recorded, rule, bit_noise_T)


def _adaptive(config: MechanismConfig, rounds: int) -> AdaptiveRule | None:
    adaptive = config.adaptive_clipping
    if adaptive is None:
        return None
    # Independent noise starts afresh in each round.
    restarts = range(rounds) if isinstance(config, IndependentMechanism) else (0, *getattr(config, "restarts", ()))
    return AdaptiveRule(
        start=config.clip_norm,
        quantile=adaptive.target_quantile,
        learning_rate=adaptive.learning_rate,
        bit_noise_std=adaptive.bit_noise_std,
        report_goal=config.report_goal,
        anew_T=np.isin(np.arange(rounds), list(restarts)),
    )


def _round(run: TrainingRun, number: int, noise_P: np.ndarray, rule: Rule, threads: int) -> KeptRound:
    kept = kept_rounds.load(run.folder, number)
    return KeptRound(
        number=number,
        model_P=kept.model_P,
        released_P=kept.released_P,
        updates=_updates(run, number, kept.model_P, threads),
        planted_P=combined(run.directions, run.trace.joined_TN[number] & run.directions.included_N, rule),
        noise_P=noise_P,
    )


def _updates(run: TrainingRun, number: int, model_P: np.ndarray, threads: int) -> Iterator[tuple[np.ndarray, float]]:
    """Yield update and weight of each device of a round, from the saved model and the device's own text."""
    config, cohort = run.rule.config, run.recorded.get(number, np.empty(0, dtype=np.int32))
    model = copy.deepcopy(run.start)
    server.load_weights(model, model_P.astype(np.float64))
    rows = cohort_rows(run.text(cohort), np.arange(len(cohort)), run.local, round_offset(run.rule.seed, number))
    for device, update_P in updates(model, rows, run.local, int((run.folder / CHUNK).read_text("ascii")), threads):
        yield update_P, _weight(device, config)


def _weight(rows: DeviceRows, config: MechanismConfig) -> float:
    words = config.weight_words if isinstance(config, IndependentMechanism) else None
    return 1.0 if words is None else min(rows.words / words, 1.0)
