"""A launch that has come as far as its publication, without training."""

import gzip
import json
from collections.abc import Collection
from pathlib import Path

import numpy as np

from evaluation.comparison.results import ComposeSetting
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.registry import published_before
from pipeline.releases.counts import counts
from pipeline.releases.release import gaussian
from pipeline.releases.spent import is_sum
from pipeline.run import artifacts, runner
from pipeline.run.population import register_simulation
from pipeline.run.stage import StageContext, Stages
from pipeline.stages.ab_inputs import Baseline
from pipeline.stages.comparison import described
from pipeline.stages.graph import STAGES
from pipeline.stages.publish import publish
from pipeline.tracking import mlflow_tracker
from pretrain.files import sha256, write_text
from pretrain.model import export
from pretrain.model.keyboard_lm import build_model
from pretrain.ngrams import counted
from pretrain.ngrams.counted import CountedNGram
from pretrain.ngrams.ngram import NGram
from pretrain.text import corpus, vocabulary
from pretrain.text.vocabulary import SPECIALS, Vocabulary
from reports.disclosure.utility import Champion, OtherFeature
from tests.helpers.launches.pipeline_launch import Counted, launch_config, stand_in
from tests.helpers.launches.stages import stages_of
from tests.helpers.reports.reports_example import example

NAME, POPULATION = "simulated-keyboard-en-US-NWP", launch_config().population
WORDS = Vocabulary((*SPECIALS, "see", "you", "soon", "later", "we", "talk", "tomorrow"))
COMPOSE = ComposeSetting("private", -3.1, 0.1, 0.06, "rate")
TEXT = "See you soon. We Talk later. See you tomorrow. We Talk soon, to Nobody."


@stand_in
class StatedTrained(Counted):
    rho: float = 0.25
    mu: float = 0.5**0.5
    epsilon: float = 3.5
    epsilon_pld: float = 3.5
    delta: float = 1e-6


@stand_in
class StatedCompared(Counted):
    champion: Champion | None
    others: dict[str, OtherFeature]


@stand_in
class StatedDecided(Counted):
    decision: str
    reasons: list[str]


@stand_in
class StatedReported(Counted):
    disclosure_sha256: str
    summary: tuple[str, ...] = ()
    concerns: tuple[str, ...] = ()


def stages(decision: str, created_at: str | None = None) -> Stages:
    """What ``publish`` needs from the stages before it, made without training."""

    def ingest_public(ctx: StageContext) -> Counted:
        corpus.build_corpus(ctx.config.public_text, ctx.config.locale, ctx.public / "corpus")
        vocabulary.save(WORDS, ctx.public / "vocabulary.json")
        return Counted(value=1)

    def build_vocabulary(ctx: StageContext) -> Counted:
        vocabulary.save(WORDS, ctx.public / "vocabulary.json")
        for name in (artifacts.FREQUENCIES, artifacts.SHOWN):
            write_text(ctx.public / name, "[]\n")
        return Counted(value=1)

    def count(ctx: StageContext) -> Counted:
        if ctx.config.counts is None:
            return Counted(value=0)
        public = artifacts.public_streams(ctx, WORDS)[0]
        row_V = np.full(len(WORDS), -1)
        nothing = np.empty(0, dtype=np.int64)
        model = CountedNGram(
            NGram.fit(public, WORDS, 3), np.ones(len(WORDS)), row_V, nothing, nothing / 1.0, np.zeros(1)
        )
        counted.save(model, ctx.public / artifacts.COUNTS)
        return Counted(value=1, spend=counts(ctx.config.counts.rho, 1e-6))

    def fine_tune(ctx: StageContext) -> StatedTrained:
        model = build_model(ctx.config.model, len(WORDS), ctx.config.seed)
        export.save_model(model, ctx.public / "model.safetensors")
        # Losses add up only beside other releases.
        spend = gaussian(StatedTrained.model_fields["rho"].default, 1e-6, "tree") if is_sum(ctx.config) else None
        return StatedTrained(value=1, spend=spend)

    def ab_test(ctx: StageContext) -> StatedCompared:
        had = {
            feature: described(Baseline(feature, published, "champion", ""))
            for feature, published in published_before(ctx).items()
        }
        others = {
            feature: OtherFeature(
                champion=had.get(feature), attempt=1, broken_margins=(), missing_metrics=(), worse_than_champion=()
            )
            for feature in ctx.config.features[1:]
        }
        if "SC" in ctx.config.features:
            write_text(ctx.public / "comparison.json", json.dumps({"compose": [vars(COMPOSE)]}))
        return StatedCompared(value=1, champion=had.get(ctx.config.feature), others=others)

    def decide(ctx: StageContext) -> StatedDecided:
        return StatedDecided(value=1, decision=decision, reasons=["gain in top-1 recall: too small"])

    def report(ctx: StageContext) -> StatedReported:
        stated = example()
        if created_at:
            stated = stated.model_copy(update={"launch": stated.launch.model_copy(update={"created_at": created_at})})
        write_text(ctx.public / "disclosure.json", stated.model_dump_json())
        return StatedReported(value=1, disclosure_sha256=sha256(ctx.public / "disclosure.json"))

    made = (ingest_public, build_vocabulary, count, fine_tune, ab_test, decide, report, publish)
    return stages_of({function.__name__: function for function in made})


def launch(
    settings: Settings,
    folder: Path,
    decision: str = "launch",
    created_at: str | None = None,
    until: str = "publish",
    logged: Collection[str] = ("report", "publish"),
    **changes: object,
) -> dict:
    """Run one launch ``until`` a stage; returns the answer of the last one.

    Args:
      logged: stages that MLflow is told of; logging takes as long as they do.
    """
    for split in ("train", "validation"):
        with gzip.open(folder / f"{split}.json.gz", "wt", encoding="utf-8") as file:
            file.write("".join(json.dumps({"text": TEXT}) + "\n" for _ in range(20)))
    source = {
        "source": "files",
        "train": [str(folder / "train.json.gz")],
        "validation": [str(folder / "validation.json.gz")],
        "max_tokens": 1000,
    }
    config = LaunchConfig.model_validate(launch_config(**changes).model_dump() | {"public_text": source})
    register_simulation(config, PrivacyLedger.of(settings))
    made, run_id = stages(decision, created_at), launch_id(config)
    tracker = mlflow_tracker.MlflowTracker(settings, config, run_id)
    names = tuple(STAGES)
    for name in names[: names.index(until) + 1]:
        if name in made:
            outcome = runner.run_stage(name, config, run_id, settings, made, tracker if name in logged else None)
    return outcome.result | {"bundle": settings.runs_dir / run_id / "public" / "publish" / "bundle", "run_id": run_id}
