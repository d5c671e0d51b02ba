"""``tacit rehearse``: a launch in small on its public text, and what it teaches the planner."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from federated.config.planning import PlanningConfig
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
    """What was found, what it means, and where it is written."""

    found: Rehearsal
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
) -> Rehearsed:
    """Pretrain if need be (as the launch will, under its id), rehearse, and write the result.

    Reads no private text. Interrupted, it goes on where it was.

    Returns:
      The result; ``runs/ID/public/rehearsal`` has it as JSON and as a picture.

    Raises:
      As the stages and ``federated.planning.rehearsal.rehearse``.
    """
    for name in _STAGES:
        if runner.find_done(name, config, run_id, here, tracker) is None:
            on_progress(f"stage {name}")
            runner.run_stage(name, config, run_id, here, stages, tracker)
    opened = runner.open_run(config, run_id, here, tracker)
    with opened.lock(NAME):
        ctx = StageContext(config, opened, here, NAME, None)
        words = artifacts.vocabulary(ctx, "ingest_public")
        text, held_out = _public_text(ctx, planning, words, opened)
        small = planning.rehearsal
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
        found = rehearse(setting, ctx.public, ctx.private / "trials", on_progress)
        result = Rehearsed(found, remarks(found, planning), paste(found), ctx.public)
        write_text(ctx.public / "rehearsal.json", json.dumps(as_json(result), indent=1) + "\n")
        _draw(found, planning, ctx.public)
    return result


def as_json(rehearsed: Rehearsed) -> dict:
    """Everything as plain values."""
    return {**asdict(rehearsed.found), "remarks": list(rehearsed.remarks), "yaml": rehearsed.paste}


def paste(found: Rehearsal) -> str:
    """What to change in the launch file."""
    lines = [
        "mechanism:",
        f"  clip_norm: {found.clip_norm!r}",
        "server:",
        f"  learning_rate: {found.server_learning_rate!r}",
    ]
    if found.noise_to_signal is not None:
        lines += ["planning:", f"  noise_to_signal: {found.noise_to_signal!r}"]
    return "\n".join(lines)


def remarks(found: Rehearsal, planning: PlanningConfig) -> tuple[str, ...]:
    """What a person must know before using the numbers."""
    config, said = planning.rehearsal, []
    largest, smallest = max(config.noise_to_signal), min(config.noise_to_signal)
    if found.noise_to_signal is None:
        said.append(
            f"even noise-to-signal {smallest:g} costs more than {config.max_accuracy_loss:g} accuracy: try smaller "
            "ratios in planning.rehearsal.noise_to_signal, or allow a larger planning.rehearsal.max_accuracy_loss"
        )
    elif found.noise_to_signal == largest:
        said.append(
            f"noise-to-signal {largest:g} is the largest that was tried; add larger ratios to "
            "planning.rehearsal.noise_to_signal to see how far it goes"
        )
    rates = config.server_learning_rates
    if len(rates) > 1 and found.server_learning_rate in (min(rates), max(rates)):
        said.append(
            f"server learning rate {found.server_learning_rate:g} lies at the end of those tried; add others beyond it "
            "to planning.rehearsal.server_learning_rates"
        )
    if found.noiseless_accuracy <= found.start_accuracy:
        said.append(
            f"without noise accuracy went from {found.start_accuracy:.4f} to {found.noiseless_accuracy:.4f}: this text "
            "has nothing left to teach the pretrained model, so the ratio only says what noise does no harm; name text "
            "that reads like typing in planning.rehearsal.public_text"
        )
    return tuple(said)


def _public_text(
    ctx: StageContext, planning: PlanningConfig, words: Vocabulary, opened: RunDir
) -> tuple[TokenStream, TokenStream]:
    chosen = planning.rehearsal.public_text
    if chosen is None:
        return artifacts.public_streams(ctx, words)
    directory = opened.private(NAME) / "corpus"
    corpus.build_corpus(chosen, ctx.config.locale, directory)
    built = corpus.open_corpus(directory)
    train, held_out = ([shard.encode(words) for shard in shards] for shards in (built.train, built.validation))
    return join_streams(train), join_streams(held_out)


def _draw(found: Rehearsal, planning: PlanningConfig, directory: Path) -> None:
    figure = figures_plan.rehearsal_figure(
        [figures_plan.Trial(trial.noise_to_signal, trial.accuracy) for trial in found.noise_trials],
        noiseless=found.noiseless_accuracy,
        start=found.start_accuracy,
        max_loss=planning.rehearsal.max_accuracy_loss,
        chosen=found.noise_to_signal,
    )
    figures_plan.write(figure, directory, "utility")
