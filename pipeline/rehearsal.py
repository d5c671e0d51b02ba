"""``tacit rehearse``: a launch in small on its public text, and what it teaches the planner."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from federated.config.planning import PlanningConfig, SmallLaunch
from federated.planning.pseudo_users import pseudo_users
from federated.planning.rehearsal import Rehearsal, Setting, rehearse
from pipeline import runner
from pipeline.config import LaunchConfig
from pipeline.run_dir import RunDir
from pipeline.settings import Settings
from pipeline.stage import StageContext
from pipeline.stages import artifacts
from pretrain import corpus
from pretrain.files import write_text
from pretrain.vocabulary import TokenStream, Vocabulary, join_streams
from reports.figures import plan as figures_plan

NAME = "rehearsal"
_STAGES = ("ingest_public", "pretrain")


@dataclass(frozen=True)
class Rehearsed:
    """What was best, what it means, and where it is written."""

    best: Rehearsal
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
) -> Rehearsed:
    """Pretrain if need be (as the launch will, under its id), rehearse, and write the result.

    Reads no private text. Interrupted, it goes on where it was.

    Args:
      small: what to simulate; by default what carries over to a launch of usual size.

    Returns:
      The result; ``runs/ID/public/rehearsal`` has it as JSON and as a picture.

    Raises:
      As the stages and ``federated.planning.rehearsal.rehearse``.
    """
    small = small or SmallLaunch()
    for name in _STAGES:
        if runner.find_done(name, config, run_id, here, tracker) is None:
            on_progress(f"stage {name}")
            runner.run_stage(name, config, run_id, here, stages, tracker)
    opened = runner.open_run(config, run_id, here, tracker)
    with opened.lock(NAME):
        ctx = StageContext(config, opened, here, NAME, None)
        words = artifacts.vocabulary(ctx, "ingest_public")
        text, held_out = _public_text(ctx, planning, words, opened)
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
        result = Rehearsed(best, remarks(best, small), paste(best), ctx.public)
        write_text(ctx.public / "rehearsal.json", json.dumps(as_json(result), indent=1) + "\n")
        _draw(best, small, ctx.public)
    return result


def as_json(rehearsed: Rehearsed) -> dict:
    """The result of a rehearsal as JSON values."""
    return {**asdict(rehearsed.best), "remarks": list(rehearsed.remarks), "yaml": rehearsed.paste}


def paste(best: Rehearsal) -> str:
    """Lines for the launch file: the best clip norm and server rate."""
    return f"mechanism:\n  clip_norm: {best.clip_norm!r}\nserver:\n  learning_rate: {best.server_learning_rate!r}"


def remarks(best: Rehearsal, small: SmallLaunch) -> tuple[str, ...]:
    """What a person must know before using the numbers."""
    notes = []
    largest, smallest = max(small.noise_to_signal), min(small.noise_to_signal)
    if best.noise_to_signal is None:
        notes.append(
            f"even noise-to-signal {smallest:g} costs more than {small.max_accuracy_loss:g} accuracy; "
            "'tacit plan --noise-to-signal' tells what smaller ratios take"
        )
    elif best.noise_to_signal == largest:
        notes.append(f"noise-to-signal {largest:g} is the largest that was tried; more may be bearable")
    rates = small.server_learning_rates
    if len(rates) > 1 and best.server_learning_rate in (min(rates), max(rates)):
        notes.append(
            f"server learning rate {best.server_learning_rate:g} lies at the end of those tried; a better one may lie "
            "beyond it, or another local_training.learning_rate may suit"
        )
    if best.noiseless_accuracy <= best.start_accuracy:
        notes.append(
            f"without noise accuracy went from {best.start_accuracy:.4f} to {best.noiseless_accuracy:.4f}: this text "
            "has nothing left to teach the pretrained model, so the ratio only says what noise does no harm; name text "
            "that reads like typing in planning.public_text"
        )
    return tuple(notes)


def _public_text(
    ctx: StageContext, planning: PlanningConfig, words: Vocabulary, opened: RunDir
) -> tuple[TokenStream, TokenStream]:
    chosen = planning.public_text
    if chosen is None:
        return artifacts.public_streams(ctx, words)
    directory = opened.private(NAME) / "corpus"
    corpus.build_corpus(chosen, ctx.config.locale, directory)
    built = corpus.open_corpus(directory)
    train, held_out = ([shard.encode(words) for shard in shards] for shards in (built.train, built.validation))
    return join_streams(train), join_streams(held_out)


def _draw(best: Rehearsal, small: SmallLaunch, directory: Path) -> None:
    figure = figures_plan.rehearsal_figure(
        [(trial.noise_to_signal, trial.accuracy) for trial in best.noise_trials],
        noiseless=best.noiseless_accuracy,
        start=best.start_accuracy,
        max_loss=small.max_accuracy_loss,
        chosen=best.noise_to_signal,
    )
    figures_plan.write(figure, directory, "utility")
