"""Stage ``audit``: attack the model's memory of its canaries, and test that the noise was as claimed.

Canaries that are not planted in the launched model are planted in a twin, which is trained here on public text under
the same noise. A control model without noise shows that the attack finds canaries that were learnt.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.audit import canaries, memorisation
from evaluation.audit.canaries import CanarySet
from evaluation.audit.memorisation import CanaryRow
from evaluation.audit.noise import LEAST_CLIP, Recomputation, least_canary_clip, noise_audit
from evaluation.audit.released.replay import Optimiser, least_noise
from evaluation.audit.released.rows import TRAINED, AuditRow, verdicts
from evaluation.config import ALPHA, RANDOM_CONTINUATIONS
from federated.config.training import ADAPTIVITY, MOMENTUM, SECOND_MOMENTUM
from federated.rounds.rule import RoundRule
from federated.rounds.server import flat_weights
from pipeline.launch.config import LaunchConfig
from pipeline.releases import audit_trace
from pipeline.releases.training import TRAINING
from pipeline.run import artifacts
from pipeline.run.run_dir import RunDir, StageRecord
from pipeline.run.second_run import differences
from pipeline.run.stage import StageContext, StageResult, stage_key
from pipeline.stages.training.audit_inputs import AuditInputs, TwinInputs, open_inputs
from pipeline.stages.training.control import control
from pipeline.stages.training.twin import TwinModel, pseudo_people, train_twin
from pretrain.files import PRIVATE, write_text
from pretrain.kernel.threads import one_torch_thread
from pretrain.model.keyboard_lm import KeyboardLM, placed
from pretrain.randomness.noise import subkey
from pretrain.text.vocabulary import EOS, Vocabulary
from reports.disclosure.findings import AuditBlock, AuditVerdict, CanaryResult, TwinBlock


class Canary(CanaryResult):
    """One canary, with the inputs of its rank and its ceiling."""

    method: str
    mu: float | None
    within_ceiling: bool | None
    vacuous: bool | None


# Reasons of failures are private, like the keys: their figures depend on the noise and on unnoised sums.
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

    def attack(model: KeyboardLM, holds: CanarySet, joined_TD: np.ndarray, whose: str) -> list[CanaryRow]:
        mu_N = memorisation.own_mu(holds, joined_TD, whitener_TT, noise_multiplier)
        return _attack(config, inputs.words, model, holds, memorisation.Rounds(joined_TD.sum(axis=0), mu_N), whose)

    # The launch file's own canaries: whether these were planted is a verdict, and no reason to attack others.
    launched, joined_TD = inputs.canaries.of(config.audit.launched), inputs.joined_TD
    if len(launched.devices) != joined_TD.shape[1]:
        joined_TD = np.zeros((inputs.rounds, len(launched.devices)), dtype=bool)
    rows = attack(inputs.network, launched, joined_TD, "the launch")
    twin = None
    if inputs.twin is not None:
        apart = inputs.canaries.of(config.audit.on_twin)
        canaries.save(apart, ctx.public / "canaries.json")
        made, twin = trained_twin(ctx, inputs.twin, apart)
        rows += attack(made.model, apart, made.done.synthetic_joined_TD, "the twin")
    memorised = memorisation.summed_up(rows, RANDOM_CONTINUATIONS)
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
    memorised = asdict(memorisation.summed_up(rows, RANDOM_CONTINUATIONS))
    return (
        memorised
        | _asked(config)
        | {
            "canaries": asked,
            "twin": {"populations": list(config.audit.on_twin)} if config.audit.on_twin else None,
            "audits": [
                {"type": row["type"], "tested": TRAINED[row["type"]]} | _power(ctx, row) for row in stated["audits"]
            ],
            "headline": {"exposure_bits": memorised["max_exposure_bits"]},
        }
    )


def _power(ctx: StageContext, row: Mapping[str, Any]) -> dict[str, float | None]:
    """Power of an audit of the noise, which launch file and encoding decide; none if it was not run."""
    rule = RoundRule(ctx.config.mechanism, ctx.config.seed, stored=artifacts.mechanism(ctx.run))
    encoded = ctx.run.result("fine_tune")["secagg"]
    noise = {"noise_added": least_noise(rule.privatizer.noise_multiplier)}
    clips = {
        "update_lengths": LEAST_CLIP,
        "canary_lengths": least_canary_clip((encoded or {}).get("rounding_std", 0.0)),
    }
    ran = row["verdict"] != "not run"
    return {
        "least_noise": noise.get(row["type"]) if ran else None,
        "least_clip": clips.get(row["type"]) if ran else None,
    }


def attacks_repeated(ctx: StageContext, record: StageRecord, run: RunDir) -> Iterator[str]:
    """Attack the released model again, under the stated participation, and the control; the twin is not trained again.

    Guarantee: it reads public files alone, so that no figure of the noise stands among the attacks' figures.
    """
    config, stated = ctx.config, record.result
    if not TRAINING.asked(config):
        return
    words = artifacts.vocabulary(ctx, "build_vocabulary")
    everything = canaries.make(config.audit, words, artifacts.public_streams(ctx, words)[0], config.seed)
    launched = everything.of(config.audit.launched)
    rows = stated["canaries"][: len(launched.canaries)]
    # Devices of a canary join alike, and a row states their sum.
    joined_D = np.zeros(len(launched.devices), dtype=int)
    for number, row in enumerate(rows):
        joined_D[np.flatnonzero(launched.canary_of_device_D == number)[0]] = row["participations"]
    mu_N = np.array([row["mu"] for row in rows])
    made = _attack(
        config, words, artifacts.model(ctx, "fine_tune"), launched, memorisation.Rounds(joined_D, mu_N), "the launch"
    )
    shown = [{name: getattr(row, name) for name in said} for row, said in zip(made, rows, strict=True)]
    yield from differences(rows, shown, "canaries")
    start, unbounded = artifacts.training_start(ctx), partial(_unbounded, config, words)
    learnt = control(start, everything, config, unbounded, ctx.private / "control")
    yield from differences(stated["control"], learnt.model_dump(mode="json"), "control")


def _asked(config: LaunchConfig) -> dict[str, Any]:
    """Settings of the attacks that the result states."""
    return {
        "in_launch": config.audit.launched,
        "random_continuations": RANDOM_CONTINUATIONS,
        "alpha": ALPHA,
    }


def _attack(
    config: LaunchConfig,
    words: Vocabulary,
    model: KeyboardLM,
    holds: CanarySet,
    rounds: memorisation.Rounds,
    whose: str,
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
            whose=whose,
            workers=len(os.sched_getaffinity(0)),
        )


def _unbounded(
    config: LaunchConfig, words: Vocabulary, model: KeyboardLM, holds: CanarySet, whose: str
) -> list[CanaryRow]:
    """Attack a model without noise, which has no ceiling."""
    nobody = memorisation.Rounds(np.zeros(len(holds.devices), dtype=int), np.zeros(len(holds.canaries)))
    return _attack(config, words, model, holds, nobody, whose)


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
    progress = artifacts.progress(ctx, "training the twin")
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
        random_continuations=RANDOM_CONTINUATIONS,
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
