"""Federated training under DP-FTRL: the release of the model after every round."""

import os

from evaluation.audit.verdict import Verdict
from federated.config.mechanism import secagg_neighbours, secagg_threshold
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.entries import Spend
from pipeline.releases.release import Outlook, Release, Results, Stated, gaussian
from pipeline.run.stage import StageContext
from reports.disclosure.releases import Mechanism, Participation, SecAgg, Training


def training_rho(config: LaunchConfig) -> float:
    """Worst-case rho of training for one device, within the enforced limits."""
    from federated import mechanisms  # scipy is slow to import

    mechanism = config.mechanism
    return mechanisms.sensitivity_squared(mechanism) / (2 * mechanism.noise_multiplier**2) if config.trains else 0.0


def _planned(config: LaunchConfig, seen: Outlook) -> Spend:
    return gaussian(seen.training_rho, config.mechanism.delta, f"{config.mechanism.kind}, planned")


def _paid(config: LaunchConfig, result: Stated) -> Spend:
    raise ValueError("fine_tune: states no spend, and its result is never reused from other launches; run it again")


def _disclosed(config: LaunchConfig, results: Results) -> Training:
    trained, enforced = results("fine_tune"), config.mechanism
    limits = {
        "enforced_min_sep": enforced.min_sep,
        "enforced_max_participations": enforced.max_participations,
    }
    return Training.model_validate(
        {
            **trained,
            "planned_rho": results("plan")["rho"],
            "mechanism": _mechanism(config),
            "participation": Participation.model_validate({**trained, **limits}, extra="ignore"),
            "secagg": None if trained["secagg"] is None else _secagg(trained["secagg"], enforced.report_goal),
        },
        extra="ignore",
    )


def _mechanism(config: LaunchConfig) -> Mechanism:
    mechanism = config.mechanism.model_dump()
    elsewhere = {*Mechanism.model_fields, "min_sep", "max_participations", "delta", "randomness"}
    return Mechanism(
        **{name: mechanism[name] for name in Mechanism.model_fields if name in mechanism},
        parameters={name: _shown(value) for name, value in mechanism.items() if name not in elsewhere and value},
        local_training=config.local_training.model_dump(),
        server=config.server.model_dump(),
    )


def _shown(value: object) -> str:
    if isinstance(value, dict):
        stated = {name: inner for name, inner in value.items() if inner is not None}
        return ", ".join(f"{name.replace('_', ' ')} {_shown(inner)}" for name, inner in stated.items())
    return ", ".join(map(_shown, value)) if isinstance(value, tuple | list) else str(value)


def _secagg(encoding: Stated, report_goal: int) -> SecAgg:
    neighbours = secagg_neighbours(report_goal)
    agreed = {"neighbours": neighbours, "threshold": secagg_threshold(neighbours)}
    return SecAgg.model_validate({**encoding, **agreed}, extra="ignore")


def _audited(ctx: StageContext) -> tuple[Verdict, ...]:
    """Verdicts on the training of a launch."""
    import numpy as np

    from evaluation.audit import canaries
    from federated.participation.records import load_records
    from federated.rounds import server
    from federated.rounds.rule import RoundRule
    from federated.rounds.state import RECORDS
    from pipeline.releases import audit_trace
    from pipeline.run import artifacts
    from pretrain.text.vocabulary import TokenStream, join_streams

    config, words, store = ctx.config, artifacts.vocabulary(ctx, "build_vocabulary"), artifacts.store(ctx)
    _, trace, directions = audit_trace.load(ctx.private / audit_trace.FILE)
    synthetic = canaries.load(ctx.run.input(ctx.stage, "canaries.json")).devices
    people = store.devices("train")

    def text(numbers: np.ndarray) -> TokenStream:
        own, made_up = people[numbers[numbers < len(people)]], numbers[numbers >= len(people)] - len(people)
        return join_streams([store.words.encode(words, own), synthetic.select(made_up)])

    folder = ctx.private / "rounds"
    finished = audit_trace.TrainingRun(
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
    return tuple(audit_trace.audited(finished, len(os.sched_getaffinity(0))))


TRAINING = Release(
    stage="fine_tune",
    name="training",
    block="mechanism",
    asked=lambda config: config.trains,
    says=lambda config: f"{config.mechanism.kind} noise, multiplier {config.mechanism.noise_multiplier:g}",
    planned=_planned,
    paid=_paid,
    neighbour="updates replaced by zeros in every round",
    output=lambda config, whole: "the final model and, by post-processing, every noisy intermediate model",
    disclosed=_disclosed,
    make="federated.local_training.clipping:release",
    keeps=("rounds", "audit.npz"),
    audit=_audited,
    proves=("cohorts", "rounds", "digits", "clipping_bits", "clip_norms"),
)
