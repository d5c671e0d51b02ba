"""Stage ``fine_tune``: DP-FTRL training, with its guarantee from the participation records."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np

from evaluation.audit import canaries
from federated.accounting import amplification
from federated.accounting import guarantees as accounting
from federated.participation import observation
from federated.participation.observation import Observation
from federated.rounds import commitments
from federated.rounds.commitments import Commitment
from federated.rounds.server import flat_weights
from federated.secagg.bounds import plan_encoding
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.entries import Spend
from pipeline.ledger.log import merkle
from pipeline.releases import audit_trace
from pipeline.releases import spent as spends
from pipeline.releases.training import TRAINING
from pipeline.run import artifacts, gang
from pipeline.run.run_dir import RunDir, StageRecord
from pipeline.run.second_run import differences, outcome_differences
from pipeline.run.stage import StageContext, StageResult
from pipeline.stages.training import fine_tune_workers
from pipeline.stages.training.fine_tune_inputs import TrainingInputs, moved_start, open_inputs
from pipeline.telemetry.allowed import two_digits
from pretrain.model import export
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.text import vocabulary
from pretrain.training.train import evaluate
from reports.disclosure.releases import Amplification, ObservedParticipation, Timetable, TrainingLoss

# Distance of a second moved start from the first, relative to that from the public one: 4e-6 from AVX-512 to SSE.
_ALIKE = 1e-3
# Public commitments to the rounds, the leaves of ``rounds_root``.
ROUNDS = "rounds.json"
CANARIES = "canaries.json"


class FineTune(StageResult, TrainingLoss, ObservedParticipation):
    """Training and its guarantee, from the participation records of protected devices."""

    rounds: int
    precision: Literal["float32"] = "float32"
    report_goal: int
    accountants_agree: bool
    accounting_methods: tuple[str, ...]
    norm_inflation: float
    secagg: dict[str, int | float | None] | None
    synthetic_participations: tuple[int, ...]
    validation_recall_before: float | None
    validation_recall_after: float | None


def fine_tune(ctx: StageContext) -> FineTune:
    """Train by DP-FTRL on train devices and synthetic canary devices; account from the participation records.

    Guarantee: without training no device is read and nothing is spent; the network stays the public one.
    """
    planned = ctx.run.result("plan")
    if not TRAINING.asked(ctx.config):
        return _untrained(ctx)
    with ctx.before_devices():
        if not planned["feasible"]:
            raise ValueError(f"mechanism: this plan cannot be carried out: {'; '.join(planned['reasons'])}")
        gang.require(ctx.config.runtime.hosts, ctx.settings.gang)
    return _trained(ctx, open_inputs(ctx))


def _trained(ctx: StageContext, inputs: TrainingInputs) -> FineTune:
    """Train, save the model with its canaries and the inputs of the audits, and account for what happened."""
    config, trained = ctx.config, fine_tune_workers.train_together(ctx, inputs)
    done = trained.done
    canaries.save(inputs.planted, ctx.public / CANARIES)
    audit_trace.save(done, trained.probe, ctx.private / audit_trace.FILE)
    export.save_model(trained.model, ctx.public / "model.safetensors")
    commitments.write(done.commitments, ctx.public / ROUNDS)
    if config.counts_move_start:
        export.save_model(inputs.start, ctx.public / artifacts.START)
    guarantee = accounting.from_records(config.mechanism, done.observed, (), inputs.mechanism, done.encoding)
    return FineTune(
        **accounted(config, guarantee, done.rounds),
        rounds_root=root_of_rounds(done.commitments),
        secagg=None if done.encoding is None else asdict(done.encoding) | {"wrap_probability": 0.0},
        **dict(participation(done.observed)),
        synthetic_participations=tuple(done.synthetic_participations),
        validation_recall_before=done.curve[0].validation_recall,
        validation_recall_after=done.curve[-1].validation_recall,
        curve=tuple({"step": point.round, **point.model_dump(exclude={"round"})} for point in done.curve),
        spend=_spend(config, guarantee),
    )


def root_of_rounds(committed: Sequence[Commitment]) -> str:
    """Root of the Merkle tree (RFC 6962) over all rounds, in hexadecimal digits."""
    return merkle.root_of([merkle.leaf_hash(each.content(number)) for number, each in enumerate(committed)]).hex()


def _spend(config: LaunchConfig, guarantee: accounting.Guarantee) -> Spend:
    return spends.training(guarantee, config.mechanism.delta, f"{config.mechanism.kind}, from participation records")


def accounted(config: LaunchConfig, guarantee: accounting.Guarantee, rounds: int) -> dict[str, Any]:
    """The guarantee of a training, as its result states it; the accountants agree, else there were none."""
    delta = config.mechanism.delta
    return {
        "rounds": rounds,
        "report_goal": config.mechanism.report_goal,
        "sensitivity_squared": guarantee.sensitivity_squared,
        "rho": guarantee.rho,
        "mu": guarantee.mu,
        "delta": delta,
        "epsilon": guarantee.epsilon[delta],
        "epsilon_pld": guarantee.epsilon_pld[delta],
        "accountants_agree": True,
        "accounting_methods": tuple(guarantee.methods),
        "norm_inflation": guarantee.norm_inflation,
        "amplified": amplified(config, guarantee.amplified),
    }


def remade(ctx: StageContext, record: StageRecord, released: Path) -> dict[str, Any]:
    """The guarantee of the stated participation, the canaries of its vocabulary, and the root of its rounds."""
    config, stated = ctx.config, record.result
    if not TRAINING.asked(config):
        return _untrained_result(config).model_dump(mode="json")
    words = artifacts.vocabulary(ctx, "build_vocabulary")
    public, _ = artifacts.public_streams(ctx, words)
    planted = canaries.make(config.audit, words, public, config.seed).of(config.audit.launched)
    canaries.save(planted, ctx.public / CANARIES)
    guarantee = guarantee_again(config, ctx.run, stated)
    curve: list[dict[str, object]] = [{"step": step} for step in _measured_after(config)]
    if config.mechanism.adaptive_clipping is None:  # else each clip norm is a release of the bits
        curve = [point | dict.fromkeys(("clip_norm", "clip_estimate"), config.mechanism.clip_norm) for point in curve]
    root = root_of_rounds(commitments.read(released / ROUNDS))
    made = accounted(config, guarantee, config.mechanism.rounds)
    made |= {"precision": "float32", "curve": curve, "rounds_root": root}
    agreed = config.mechanism.secagg
    sums = None if agreed is None else {"bits": agreed.bits, "wrap_probability": 0.0}
    amplified = None if made["amplified"] is None else made["amplified"].model_dump(mode="json")
    return made | {"amplified": amplified, "secagg": sums, "spend": _spend(config, guarantee).model_dump(mode="json")}


def _measured_after(config: LaunchConfig) -> list[int]:
    """Rounds after which training is measured: the start, every few rounds, and the end."""
    every, rounds = config.runtime.evaluate_every_rounds, config.mechanism.rounds
    return [*range(0, rounds, every), rounds]


def guarantee_again(
    config: LaunchConfig, run: RunDir, stated: Mapping[str, Any], deltas: Iterable[float] = ()
) -> accounting.Guarantee:
    """Derive the guarantee of a trained launch again, from its stated participation and its mechanism file.

    Args:
      stated: result of the stage.

    Raises:
      StageInputMissing: the mechanism file is lost.
    """
    agreed, encoding = config.mechanism.secagg, None
    if agreed is not None:
        # Derived again from the launch file; only the sizes come from the stated result.
        encoding = plan_encoding(stated["secagg"]["num_parameters"], stated["secagg"]["devices"], agreed.bits)
    return accounting.from_records(config.mechanism, observed(stated), deltas, artifacts.mechanism(run), encoding)


def observed(result: Mapping[str, Any]) -> Observation:
    """Read the accountant's input from a result of the stage."""
    min_sep = result["observed_min_sep"]
    return Observation(
        rounds=result["rounds"],
        min_sep=min_sep,
        mins=None if min_sep is None else min_sep - 1,
        max_participations=result["observed_max_participations"],
        participation_histogram={int(key): value for key, value in result["participation_histogram"].items()},
        separation_histogram={int(key): value for key, value in result["separation_histogram"].items()},
        violations=result["violations"],
        synthetic_devices=result["synthetic_devices"],
    )


def _untrained(ctx: StageContext) -> FineTune:
    """Return the public network unchanged, and that no device took part."""
    export.save_model(artifacts.model(ctx, "adapt"), ctx.public / "model.safetensors")
    return _untrained_result(ctx.config)


def _untrained_result(config: LaunchConfig) -> FineTune:
    return FineTune(
        **accounted(config, accounting.untrained((config.mechanism.delta,)), 0),
        secagg=None,
        **dict(participation(Observation(0, None, None, 0, {}, {}, 0, 0))),
        synthetic_participations=(),
        validation_recall_before=None,
        validation_recall_after=None,
    )


def participation(observed: Observation) -> ObservedParticipation:
    """Public participation figures: exact bounds, counts of devices rounded down to tens."""
    turnout = observed.turnout
    return ObservedParticipation(
        observed_min_sep=observed.min_sep,
        observed_mins=observed.mins,
        observed_max_participations=observed.max_participations,
        violations=observed.violations,
        synthetic_devices=observed.synthetic_devices,
        participation_histogram=_tens(observed.participation_histogram),
        separation_histogram=_tens(observed.separation_histogram),
        rounds_below_goal=None if turnout is None else turnout.rounds_below_goal,
        mean_devices=None if turnout is None else _ten(turnout.mean_devices),
        check_ins=None if turnout is None else _ten(turnout.check_ins),
        fewest_check_ins=None if turnout is None else _ten(turnout.fewest_check_ins),
        timetable=None if turnout is None or turnout.timetable is None else timetable(turnout.timetable),
    )


def timetable(of_rounds: observation.Timetable) -> Timetable:
    """Public hours of the rounds, rounded to two digits."""
    return Timetable(
        run_days=two_digits(of_rounds.days),
        shortest_minutes=two_digits(of_rounds.shortest),
        median_minutes=two_digits(of_rounds.median),
        longest_minutes=two_digits(of_rounds.longest),
        median_minutes_by_part=tuple(map(two_digits, of_rounds.median_by_part)),
    )


def amplified(config: LaunchConfig, sampled: amplification.AmplifiedGuarantee | None) -> Amplification | None:
    """Return the amplified guarantee at the launch's own delta; None if a public seed draws the sample."""
    delta = config.mechanism.delta
    if sampled is None or config.mechanism.randomness == "seeded":
        return None
    second = None if sampled.epsilon_second is None else sampled.epsilon_second[delta]
    at_delta = vars(sampled) | {"epsilon": sampled.epsilon[delta], "epsilon_second": second}
    return Amplification.model_validate(at_delta, extra="ignore")


def _tens(histogram: Mapping[int, int]) -> dict[str, int]:
    return {str(key): _ten(count) for key, count in histogram.items()}


def _ten(count: float) -> int:
    return int(count // 10) * 10


def start_differences(ctx: StageContext, start: KeyboardLM) -> Iterator[str]:
    """Move the start by the counts again; another kind of processor rounds otherwise, and a step follows a sign.

    Args:
      start: the network that the launch's training began with.
    """
    if not ctx.config.counts_move_start:
        return
    text, _ = artifacts.public_streams(ctx, artifacts.vocabulary(ctx, "build_vocabulary"))
    public, kept, again = map(flat_weights, (artifacts.model(ctx, "adapt"), start, moved_start(ctx, text)))
    apart = np.linalg.norm(kept - again) / np.linalg.norm(again - public)
    if not apart < _ALIKE:
        yield f"{artifacts.START}: {apart:.2g} of the way that counts move the start lies between it and a second run"


def start_repeated(ctx: StageContext, record: StageRecord, run: RunDir) -> Iterator[str]:
    """Move the start by the released counts again."""
    if ctx.config.counts_move_start:
        start = run.public(record.stage) / artifacts.START
        yield from start_differences(ctx, export.load_model(start, ctx.config.model))


def trained_again(ctx: StageContext, record: StageRecord, run: RunDir) -> Iterator[str]:
    """Export the last checkpoint again, and evaluate it on held-out devices."""
    if not TRAINING.asked(ctx.config):
        yield from outcome_differences(fine_tune(ctx), ctx, record, run)
        return
    rounds = ctx.private / "rounds" / f"round-{ctx.config.mechanism.rounds:08d}.ckpt"
    if not rounds.is_file():
        yield f"{rounds.name} is lost"
        return
    inputs = open_inputs(ctx)
    yield from outcome_differences(_trained(ctx, inputs), ctx, record, run)
    yield from start_differences(ctx, inputs.start)
    held_out = inputs.data.validation
    words = int((held_out.tokens_N > vocabulary.UNK).sum())
    unknown = int((held_out.tokens_N == vocabulary.UNK).sum())
    made = StageContext(ctx.config, run, ctx.settings, record.stage, None)
    for weights, when in ((artifacts.training_start(made), "before"), (artifacts.model(made, record.stage), "after")):
        top1 = evaluate(weights, held_out, ctx.config.local_training.sequence_words)[1]
        recall = top1 * words / max(words + unknown, 1)
        yield from differences(record.result[f"validation_recall_{when}"], recall, f"validation_recall_{when}")
