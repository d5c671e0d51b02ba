"""Stage ``audit``: attack the model's memory of its canaries, and test that the noise was as claimed.

Canaries that are not planted in the launched model are planted in a twin, which is trained here on public text under
the same noise. A control model without noise shows that the attack finds canaries that were learnt.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.audit import canaries, memorisation
from evaluation.audit.canaries import CanarySet
from evaluation.audit.memorisation import CanaryRow
from evaluation.audit.noise import Recomputation, noise_audit
from evaluation.audit.released.replay import Optimiser
from evaluation.audit.released.rows import TRAINED, AuditRow, verdicts
from evaluation.config import ALPHA
from federated.config.training import ADAPTIVITY, MOMENTUM, SECOND_MOMENTUM
from federated.rounds.rule import RoundRule
from federated.rounds.server import flat_weights
from pipeline.launch.config import LaunchConfig
from pipeline.releases.training import TRAINING
from pipeline.run import artifacts
from pipeline.run.run_dir import StageRecord
from pipeline.run.stage import StageContext, StageResult, stage_key
from pipeline.stages.training import audit_trace
from pipeline.stages.training.audit_inputs import AuditInputs, TwinInputs, open_inputs
from pipeline.stages.training.control import control
from pipeline.stages.training.pseudo_people import pseudo_people
from pipeline.stages.training.twin import TwinModel, train_twin
from pretrain.files import PRIVATE, write_text
from pretrain.kernel.threads import one_torch_thread
from pretrain.model import KeyboardLM, placed
from pretrain.randomness.noise import subkey
from pretrain.vocabulary import EOS, Vocabulary
from reports.disclosure.findings import AuditBlock, AuditVerdict, CanaryResult, TwinBlock


class Canary(CanaryResult):
    """One canary, with the inputs of its rank and its ceiling."""

    method: str
    mu: float | None
    within_ceiling: bool | None
    vacuous: bool | None


# The audits' figures are private, like the keys: they depend on the noise and on unnoised sums.
FIGURES = "figures.json"


class Audit(StageResult, AuditBlock):
    """Audit result: memorisation of compliant canaries and, apart, of ``stress``; verdicts of the noise audits.

    Guarantee: statements about canaries depend only on models that are released, or were trained on public text;
    statements about the noise and unnoised sums are verdicts only.
    """

    found_by_beam: int
    noise_audit_passed: bool | None
    canaries: tuple[Canary, ...]


def audit(ctx: StageContext) -> Audit:
    """Audit the private model's memory of the canaries, and check that the noise was as claimed."""
    config = ctx.config
    if not TRAINING.asked(config):
        return _untrained(config)
    inputs = open_inputs(ctx)
    whitener_TT = audit_trace.whitener(inputs.mechanism, inputs.rounds)
    noise_multiplier = RoundRule(config.mechanism, config.seed, stored=inputs.mechanism).privatizer.noise_multiplier

    def attack(model: KeyboardLM, holds: CanarySet, joined_TD: np.ndarray) -> list[CanaryRow]:
        mu_N = memorisation.own_mu(holds, joined_TD, whitener_TT, noise_multiplier)
        return _attack(config, inputs.words, model, holds, memorisation.Rounds(joined_TD.sum(axis=0), mu_N))

    # The launch file's own canaries: whether these were planted is a verdict, and no reason to attack others.
    launched, joined_TD = inputs.canaries.of(config.audit.launched), inputs.joined_TD
    if len(launched.devices) != joined_TD.shape[1]:
        joined_TD = np.zeros((inputs.rounds, len(launched.devices)), dtype=bool)
    rows = attack(inputs.network, launched, joined_TD)
    twin = None
    if inputs.twin is not None:
        apart = inputs.canaries.of(config.audit.on_twin)
        canaries.save(apart, ctx.public / "canaries.json")
        made, twin = trained_twin(ctx, inputs.twin, apart)
        rows += attack(made.model, apart, made.done.synthetic_joined_TD)
    memorised = memorisation.summed_up(rows, config.audit.random_continuations)
    unbounded = partial(_unbounded, config, inputs.words)
    learnt = control(inputs.start, inputs.canaries, config, unbounded, ctx.private / "control")
    claim = audit_trace.claim(config.mechanism, inputs.mechanism, inputs.rounds, inputs.trace.joined_TN)
    tested = noise_audit(inputs.trace, inputs.directions, claim, recomputation(config, inputs))
    content = asdict(memorised) | {
        # Canaries may contain discovered words that were not reviewed, so the rows leave out their text.
        "canaries": [{name: value for name, value in vars(row).items() if name != "words"} for row in rows],
        **_asked(config),
        "twin": twin,
        "control": learnt,
        "noise_audit_passed": tested.passed,
        "seed_commitment": tested.seed_commitment,
        "audits": _verdicts(ctx, tested.rows),
        "headline": {"exposure_bits": memorised.max_exposure_bits},
    }
    return Audit.model_validate(content, extra="ignore")


def remade(ctx: StageContext, record: StageRecord, released: Path) -> dict[str, Any]:
    """The summary of the stated ranks, and the canaries of the twin; attacks are not repeated."""
    config, stated = ctx.config, record.result
    if not TRAINING.asked(config):
        return _untrained(config).model_dump(mode="json")
    rows = [CanaryRow(words=(), **row) for row in stated["canaries"]]
    words = artifacts.vocabulary(ctx, "build_vocabulary")
    everything = canaries.make(config.audit, words, artifacts.public_streams(ctx, words)[0], config.seed)
    if config.audit.on_twin:
        canaries.save(everything.of(config.audit.on_twin), ctx.public / "canaries.json")
    holds = [*everything.of(config.audit.launched).canaries]
    holds += [*everything.of(config.audit.on_twin).canaries] if config.audit.on_twin else []
    asked = [{"population": each.population, "n_u": each.n_u, "n_e": each.n_e} for each in holds]
    memorised = asdict(memorisation.summed_up(rows, config.audit.random_continuations))
    return (
        memorised
        | _asked(config)
        | {
            "canaries": asked,
            "twin": {"populations": list(config.audit.on_twin)} if config.audit.on_twin else None,
            "audits": [{"type": kind, "tested": tested} for kind, tested in TRAINED.items()],
            "headline": {"exposure_bits": memorised["max_exposure_bits"]},
        }
    )


def _asked(config: LaunchConfig) -> dict[str, Any]:
    """Settings of the attacks that the result states."""
    return {
        "in_launch": config.audit.launched,
        "random_continuations": config.audit.random_continuations,
        "alpha": ALPHA,
    }


def _attack(
    config: LaunchConfig, words: Vocabulary, model: KeyboardLM, holds: CanarySet, rounds: memorisation.Rounds
) -> list[CanaryRow]:
    """Attack a model; launched model, twin and control get the same attack."""
    with one_torch_thread():
        return memorisation.attacked(
            placed(model, config.runtime.device),
            holds,
            config.audit,
            words,
            config.seed,
            rounds,
            workers=len(os.sched_getaffinity(0)),
        )


def _unbounded(config: LaunchConfig, words: Vocabulary, model: KeyboardLM, holds: CanarySet) -> list[CanaryRow]:
    """Attack a model without noise, which has no ceiling."""
    nobody = memorisation.Rounds(np.zeros(len(holds.devices), dtype=int), np.zeros(len(holds.canaries)))
    return _attack(config, words, model, holds, nobody)


def trained_twin(ctx: StageContext, inputs: TwinInputs, holds: CanarySet) -> tuple[TwinModel, TwinBlock]:
    """Train the twin, and return it with its block of the report.

    Guarantee: from the launch's private half it reads only a key of its own; the number of training devices is rounded
    down, as everywhere.
    """
    config, sample = ctx.config, ctx.config.mechanism.secret_sample
    # Rounded down, the number may be below the size of a round or sample.
    count = max(inputs.devices, config.mechanism.report_goal, sample.population if sample else 0)
    people = pseudo_people(inputs.text, count, config.seed)
    key = subkey(stage_key(config, ctx.run, ctx.stage), "twin")
    rule = RoundRule(config.mechanism, config.seed, key, inputs.mechanism)
    progress = artifacts.progress(ctx)
    made = train_twin(inputs.start, people, holds, rule, config, ctx.private / "twin", progress)
    return made, TwinBlock(
        populations=config.audit.on_twin,
        pseudo_users=len(people),
        words_per_user=round(float(np.mean(people.tokens_N != EOS)) * len(people.tokens_N) / len(people), 1),
        weights_sha256=made.weights_sha256,
    )


def _untrained(config: LaunchConfig) -> Audit:
    """Result for a launch without training on devices, and so without canaries; releases have audits of their own."""
    return Audit(
        random_continuations=config.audit.random_continuations,
        alpha=ALPHA,
        worst_rank_single_user=None,
        max_exposure_bits=0.0,
        found_single_user=0,
        found_by_beam=0,
        stress=None,
        broken_ceilings=None,
        pooled_p_value=None,
        seed_commitment=None,
        noise_audit_passed=None,
        canaries=(),
        audits=(),
    )


def _verdicts(ctx: StageContext, rows: Iterable[AuditRow]) -> tuple[AuditVerdict, ...]:
    """Return the public verdicts; their figures stay in the private half."""
    rows = tuple(rows)
    write_text(ctx.private / FIGURES, json.dumps([vars(row) for row in rows], indent=1) + "\n", PRIVATE)
    return tuple(AuditVerdict.model_validate(vars(row)) for row in verdicts(rows, TRAINED))


def recomputation(config: LaunchConfig, inputs: AuditInputs) -> Recomputation:
    """Reference values for the trace: models and records from their files, and noise of the audit's own generator."""
    step, directions, data = config.server, inputs.directions, inputs.data
    optimiser = Optimiser(
        kind=step.optimizer,
        learning_rate=step.learning_rate,
        momentum=MOMENTUM,
        second_momentum=SECOND_MOMENTUM,
        adaptivity=ADAPTIVITY,
        denominator=float(config.mechanism.report_goal),
    )
    rule = RoundRule(config.mechanism, config.seed, inputs.key, inputs.mechanism)
    encoding = rule.encoding(directions.num_parameters, data.people, len(data.devices) - data.people)
    seen, cohorts_T = inputs.trace.seen, inputs.cohorts_T
    made = inputs.canaries.of(config.audit.launched)
    rows = (
        audit_trace.canaries_row(made, inputs.planted, data, inputs.joined_TD, cohorts_T),
        audit_trace.cohorts_row(rule, data, cohorts_T, len(seen.rows_T)),
        audit_trace.trained_row(rule, config.local_training, data, cohorts_T, seen),
    )
    return Recomputation(
        audit_trace.models(directions, flat_weights(inputs.start), flat_weights(inputs.network)),
        optimiser,
        audit_trace.noise_along(rule, directions, len(seen.rows_T)),
        # Each device rounds independently; along a direction the errors add up like standard deviations.
        0.0 if encoding is None else encoding.rounding_std,
        config.mechanism.clipping == "per-layer",
        rows,
    )
