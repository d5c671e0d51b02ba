"""``tacit rehearse``: simulate a launch at small scale on its public text, and judge whether it is worthwhile."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from evaluation.config import NGRAM_ORDER
from federated.config.planning import PlanningConfig, SmallLaunch, SmallTrade
from federated.planning import trade
from federated.planning.rehearsal import Rehearsal, Setting, pseudo_users, rehearse
from federated.planning.search import terms_of
from federated.planning.verdict import Outcome, Verdict
from federated.planning.verdict import as_json as verdict_json
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig
from pipeline.preflight import rehearsal_verdict
from pipeline.run import artifacts, runner
from pipeline.run.stage import StageContext
from pretrain.files import write_text
from pretrain.ngrams.ngram import NGram
from pretrain.vocabulary import EOS, TokenStream, Vocabulary
from reports.figures import plan as figures_plan

_STAGES = ("ingest_public", "pretrain")


@dataclass(frozen=True)
class RehearsalResult:
    """Best run of a rehearsal, its verdict, and the folder of its files."""

    best: Rehearsal
    verdict: Verdict
    remarks: tuple[str, ...]
    paste: str
    directory: Path


def run(
    config: LaunchConfig,
    planning: PlanningConfig,
    run_id: str,
    here: Settings,
    stages: runner.Stages,
    tracker: runner.Tracker | None,
    on_progress: Callable[[str], None],
    small: SmallLaunch | None = None,
    limits: SmallTrade | None = None,
) -> RehearsalResult:
    """Pretrain if necessary (as the launch will, under its id), rehearse, and write the result.

    Reads no private text. A second call resumes an interrupted rehearsal.

    Args:
      small: settings of the search for clip norm, server rate and tolerable noise; by default those that transfer to a
        usual launch.
      limits: settings of the simulated population and of the splits of its rho.

    Returns:
      The result, which is also in ``runs/ID/public/rehearsal`` as JSON and as pictures.

    Raises:
      The errors of the stages and of ``federated.planning.rehearsal.rehearse``.
    """
    small, limits = small or SmallLaunch(), limits or SmallTrade()
    for name in _STAGES:
        if runner.find_done(name, config, run_id, here, tracker) is None:
            on_progress(f"stage {name}")
            runner.run_stage(name, config, run_id, here, stages, tracker)
    opened = runner.open_run(config, run_id, here, tracker)
    with opened.lock(rehearsal_verdict.NAME):
        ctx = StageContext(config, opened, here, rehearsal_verdict.NAME, None)
        words = artifacts.vocabulary(ctx, "ingest_public")
        text, held_out = artifacts.public_streams(ctx, words)
        users = pseudo_users(text, small.pseudo_users, small.words_per_user, small.median_words, config.seed)
        on_progress(f"{len(users):,} pseudo-users of public text")
        setting = Setting(
            model=artifacts.model(ctx, "pretrain"),
            users=users,
            held_out=held_out,
            config=small,
            local_training=config.local_training,
            server=config.server,
            runtime=config.runtime,
            seed=config.seed,
        )
        best = rehearse(setting, ctx.public, ctx.private / "trials", on_progress)
        stage = _stage(ctx, planning, setting, (text, held_out), words, limits)
        on_progress(
            f"{len(stage.setting.users):,} pseudo-users simulate {stage.terms.training_devices:,} training devices, "
            f"{len(stage.people):,} others evaluate"
        )
        verdict = trade.rehearse(stage, best, ctx.private / "trained", on_progress)
        result = RehearsalResult(best, verdict, remarks(best, small), paste(best), ctx.public)
        write_text(ctx.public / "rehearsal.json", json.dumps(as_json(result), indent=1) + "\n")
        write_text(ctx.public / rehearsal_verdict.FILE, json.dumps(verdict_json(verdict), indent=1) + "\n")
        _draw(best, small, ctx.public)
        draw_trade(verdict, ctx.public)
    return result


def as_json(done: RehearsalResult) -> dict:
    """Convert the result of a rehearsal to JSON values."""
    content = {**asdict(done.best), "remarks": list(done.remarks), "yaml": done.paste}
    return content | {"verdict": verdict_json(done.verdict)}


def paste(best: Rehearsal) -> str:
    """Lines for the launch file: the best clip norm and server rate."""
    return f"mechanism:\n  clip_norm: {best.clip_norm!r}\nserver:\n  learning_rate: {best.server_learning_rate!r}"


def remarks(best: Rehearsal, small: SmallLaunch) -> tuple[str, ...]:
    """Caveats to know before using the numbers."""
    notes = []
    largest, smallest = max(small.noise_to_signal), min(small.noise_to_signal)
    if best.noise_to_signal is None:
        notes.append(
            f"even noise-to-signal {smallest:g} costs more than {small.max_accuracy_loss:g} accuracy; "
            "'tacit plan --noise-to-signal' shows the cost of smaller ratios"
        )
    elif best.noise_to_signal == largest:
        notes.append(f"noise-to-signal {largest:g} is the largest that was tried; more may be tolerable")
    rates = small.server_learning_rates
    if len(rates) > 1 and best.server_learning_rate in (min(rates), max(rates)):
        notes.append(
            f"server learning rate {best.server_learning_rate:g} is at the end of the searched range; a better one may "
            "lie beyond it, or another local_training.learning_rate may be better"
        )
    if best.noiseless_accuracy <= best.start_accuracy:
        notes.append(
            f"without noise accuracy went from {best.start_accuracy:.4f} to {best.noiseless_accuracy:.4f}: the "
            "pretrained model learns nothing more from this text, so the ratio only shows which noise is harmless; "
            "rehearse a file whose public_text resembles typing"
        )
    return tuple(notes)


def curves(outcomes: Sequence[Outcome]) -> dict[str, list[tuple[float, float, float]]]:
    """Curves of gain against rho, of training, of counts and of their best mixture: (rho, gain, error)."""
    lines: dict[str, dict[float, Outcome]] = {"gradients": {}, "counts": {}, "gradients and counts, mixed": {}}
    for outcome in outcomes:
        both = bool(outcome.gradient_rho and outcome.counts_rho)
        line = lines["gradients and counts, mixed" if both else "gradients" if outcome.gradient_rho else "counts"]
        # Values that differ only by rounding are one rho.
        rho = float(f"{outcome.rho:.2g}")
        if rho not in line or outcome.gain > line[rho].gain:
            line[rho] = outcome
    return {
        label: [(rho, outcome.gain, outcome.error) for rho, outcome in sorted(line.items())]
        for label, line in lines.items()
    }


def draw_trade(verdict: Verdict, directory: Path) -> None:
    """Draw ``gain.png`` and ``gain.svg``: gain against rho, and the population's line."""
    figure = figures_plan.trade_figure(
        curves(verdict.outcomes), verdict.rho, max(verdict.min_gain, 0.0), verdict.training_devices
    )
    figures_plan.write(figure, directory, "gain")


def _stage(
    ctx: StageContext,
    planning: PlanningConfig,
    setting: Setting,
    text: tuple[TokenStream, TokenStream],
    words: Vocabulary,
    limits: SmallTrade,
) -> trade.TradeSetting:
    """Build the rehearsal's setting: pseudo-users that train, and others to evaluate on."""
    config, most = ctx.config, ctx.config.private_text.max_words_per_device
    terms = terms_of(config.mechanism, planning, config.private_text.splits)
    number = min(terms.training_devices, limits.most_users)
    users, people = (
        pseudo_users(source, count, "heavy-tailed", limits.median_words, config.seed, most)
        for source, count in zip(text, (number, limits.held_out_words), strict=True)
    )
    # As many pseudo-users as have words to evaluate on.
    ends = np.cumsum(people.tokens_N != EOS)[people.offsets_D1[1:] - 1]
    people = people.select(np.arange(min(len(people), 1 + int(np.searchsorted(ends, limits.held_out_words)))))
    public, _ = artifacts.public_streams(ctx, words)
    return trade.TradeSetting(
        setting=replace(setting, users=users, held_out=people.select(np.arange(1))),
        mechanism=config.mechanism,
        counts=config.counts,
        terms=terms,
        rho=rehearsal_verdict.rho_to_spend(config, planning),
        min_gain=config.policy.min_top1_gain,
        vocabulary=words,
        public=public,
        ngram=NGram.fit(public, words, NGRAM_ORDER),
        people=people,
        limits=limits,
        inputs=rehearsal_verdict.inputs_digest(config, planning, limits),
    )


def _draw(best: Rehearsal, small: SmallLaunch, directory: Path) -> None:
    figure = figures_plan.rehearsal_figure(
        [(trial.noise_to_signal, trial.accuracy) for trial in best.noise_trials],
        noiseless=best.noiseless_accuracy,
        start=best.start_accuracy,
        max_loss=small.max_accuracy_loss,
        chosen=best.noise_to_signal,
    )
    figures_plan.write(figure, directory, "utility")
