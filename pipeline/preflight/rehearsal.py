"""``tacit rehearse``: simulate a launch at small scale on public text, and judge whether it is worthwhile."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from evaluation.config import NGRAM_ORDER
from federated.config.planning import PlanningConfig, SmallLaunch
from federated.planning import rehearsal
from federated.planning.rehearsal import pseudo_users
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
from pretrain.packaged import PackagedText, documents
from pretrain.text import sentences
from pretrain.vocabulary import EOS, TokenStream, Vocabulary, join_owners
from reports.figures import plan as figures_plan

_STAGES = ("ingest_public", "pretrain")
# Words to read for each median budget: a mean one of the heavy-tailed law is 1.65 medians.
_WORDS_A_MEDIAN = 2
# Of packaged text one document in ten evaluates.
_HELD_OUT_OF = 10


@dataclass(frozen=True)
class RehearsalResult:
    """Verdict of a rehearsal, and the folder of its files."""

    verdict: Verdict
    directory: Path


def run(
    config: LaunchConfig,
    planning: PlanningConfig,
    run_id: str,
    here: Settings,
    stages: runner.Stages,
    tracker: runner.Tracker | None,
    on_progress: Callable[[str], None],
    limits: SmallLaunch | None = None,
    notes: tuple[str, ...] = (),
) -> RehearsalResult:
    """Pretrain if necessary (as the launch will, under its id), rehearse, and write the result.

    Reads no private text. A second call resumes an interrupted rehearsal.

    Args:
      limits: settings of the simulated population and of the ways to spend its rho.
      notes: on the start and its text, for the verdict.

    Returns:
      The result, which is also in ``runs/ID/public/rehearsal`` as JSON and as a picture.

    Raises:
      The errors of the stages and of ``federated.planning.rehearsal.rehearse``.
    """
    limits = limits or SmallLaunch()
    for name in _STAGES:
        if runner.find_done(name, config, run_id, here, tracker) is None:
            on_progress(f"stage {name}")
            runner.run_stage(name, config, run_id, here, stages, tracker)
    opened = runner.open_run(config, run_id, here, tracker)
    with opened.lock(rehearsal_verdict.NAME):
        ctx = StageContext(config, opened, here, rehearsal_verdict.NAME, None)
        text = rehearsal_verdict.typed(config)
        play = f"type {text.name}" if text else "share out the launch's public text, which pretraining has read"
        notes = (f"Pseudo-users {play}.", *notes)
        setting = replace(_setting(ctx, planning, limits, text), notes=notes)
        on_progress(
            f"{len(setting.users):,} pseudo-users of public text simulate {setting.terms.training_devices:,} training "
            f"devices, {len(setting.people):,} others evaluate"
        )
        verdict = rehearsal.rehearse(setting, ctx.private / "trained", on_progress)
        write_text(ctx.public / rehearsal_verdict.FILE, json.dumps(verdict_json(verdict), indent=1) + "\n")
        draw_trade(verdict, ctx.public)
    return RehearsalResult(verdict, ctx.public)


def curves(outcomes: Sequence[Outcome]) -> dict[str, list[tuple[float, float, float]]]:
    """Curves of gain against rho, of training, of counts and of both: (rho, points, standard error)."""
    lines: dict[str, dict[float, Outcome]] = {"training": {}, "counts": {}, "both": {}}
    for outcome in outcomes:
        both = bool(outcome.gradient_rho and outcome.counts_rho)
        line = lines["both" if both else "training" if outcome.gradient_rho else "counts"]
        # Values that differ only by rounding are one rho.
        rho = float(f"{outcome.rho:.2g}")
        if rho not in line or outcome.gain > line[rho].gain:
            line[rho] = outcome
    return {
        label: [(rho, 100 * outcome.gain, 100 * outcome.error) for rho, outcome in sorted(line.items())]
        for label, line in lines.items()
    }


def draw_trade(verdict: Verdict, directory: Path) -> tuple[Path, ...]:
    """Draw ``gain.png`` and ``gain.svg``: rehearsed gain against rho, and the population's line."""
    figure = figures_plan.gain_figure(
        curves(verdict.outcomes),
        "rho (zCDP)",
        100 * max(verdict.min_gain, 0.0),
        (verdict.rho, f"{verdict.training_devices:,} devices train, rho {verdict.rho:.3g}"),
    )
    return figures_plan.write(figure, directory, "gain")


def _setting(
    ctx: StageContext, planning: PlanningConfig, limits: SmallLaunch, text: PackagedText | None
) -> rehearsal.Setting:
    """Build the rehearsal's setting: pseudo-users that train, and others to evaluate on.

    Args:
      text: what they type; None for the public text of pretraining, and its validation text to evaluate on.
    """
    config, most = ctx.config, ctx.config.private_text.max_words_per_device
    terms = terms_of(planning, config.private_text.splits, config.server)
    words = artifacts.vocabulary(ctx, "ingest_public")
    public, validation = artifacts.public_streams(ctx, words)
    number = min(terms.training_devices, limits.most_users)
    needed = (_WORDS_A_MEDIAN * number * limits.median_words, 2 * limits.held_out_words)
    played = (public, validation) if text is None else typed_streams(text, config.locale, words, needed)
    users, people = (
        pseudo_users(source, count, "heavy-tailed", limits.median_words, config.seed, most)
        for source, count in zip(played, (number, limits.held_out_words), strict=True)
    )
    # As many pseudo-users as have words to evaluate on.
    ends = np.cumsum(people.tokens_N != EOS)[people.offsets_D1[1:] - 1]
    people = people.select(np.arange(min(len(people), 1 + int(np.searchsorted(ends, limits.held_out_words)))))
    return rehearsal.Setting(
        model=artifacts.model(ctx, "pretrain"),
        users=users,
        people=people,
        local_training=config.local_training,
        server=config.server,
        runtime=config.runtime,
        seed=config.seed,
        mechanism=config.mechanism,
        counts=config.counts,
        terms=terms,
        rho=rehearsal_verdict.rho_to_spend(config, planning),
        min_gain=config.policy.min_top1_gain,
        vocabulary=words,
        public=public,
        ngram=NGram.fit(public, words, NGRAM_ORDER),
        limits=limits,
        inputs=rehearsal_verdict.inputs_digest(config, planning, limits),
    )


def typed_streams(
    text: PackagedText, locale: str, words: Vocabulary, needed: tuple[int, int]
) -> tuple[TokenStream, ...]:
    """Documents of a packaged text: the first for who trains, the last tenth for who evaluates.

    Args:
      needed: words for each of the two, after which no document is read.
    """
    written = [document for _, document in documents([text])]
    held_out = len(written) // _HELD_OUT_OF
    parts = (written[:-held_out], written[-held_out:])
    return tuple(_encoded(part, locale, words, most) for part, most in zip(parts, needed, strict=True))


def _encoded(documents: Sequence[str], locale: str, words: Vocabulary, most_words: int) -> TokenStream:
    """Encode documents, in their order, until they have so many words."""
    owners, read = list[np.ndarray](), 0
    for document in documents:
        said = sentences(document, locale)
        owners.append(np.concatenate([[*words.ids(sentence), EOS] for sentence in said] or [[]]))
        read += sum(map(len, said))
        if read >= most_words:
            break
    return join_owners(owners)
