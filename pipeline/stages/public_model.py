"""Stages ``pretrain`` and ``adapt``: training on public text."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.arms.arm import Mixture, NextWord, PublicNGram, neural
from evaluation.arms.held_out import held_out
from evaluation.comparison import scoring, slices
from evaluation.config import NGRAM_ORDER
from evaluation.noisy.compare import PUBLIC_WORDS
from pipeline.run import artifacts
from pipeline.run.run_dir import RunDir, StageRecord
from pipeline.run.second_run import differences, outcome_differences
from pipeline.run.stage import StageContext, StageResult
from pipeline.stages.ab_arms import PUBLIC_MIXTURE
from pipeline.telemetry.allowed import two_digits
from pretrain.files import remove_folder
from pretrain.kernel.threads import one_torch_thread
from pretrain.model import export
from pretrain.model.keyboard_lm import KeyboardLM, build_model, parameter_count, placed
from pretrain.ngrams.ngram import NGram
from pretrain.text.vocabulary import TokenStream, Vocabulary, join_streams
from pretrain.training import extend, new_words
from pretrain.training import train as public_training
from reports.disclosure.findings import NewWordAdaptation


class PublicTraining(StageResult):
    """Size of a model trained on public text, and its loss and accuracy."""

    parameters: int
    steps: int
    validation_loss: float
    validation_top1: float


class Pretraining(PublicTraining):
    """Result of pretraining, with what a launch must beat, on held-out public text: by arm of the comparison.

    Attributes:
      public_recall: top-1 recall of the network, the n-gram of the same text, and both mixed.
      public_variety: different words that each suggests first and rightly, as the gate ``variety`` counts them.
    """

    public_recall: dict[str, float]
    public_variety: dict[str, float]


class Adaptation(PublicTraining, NewWordAdaptation):
    """Result of public training in the grown vocabulary, with separate figures for new words."""

    new_words: int


def pretrain(ctx: StageContext) -> Pretraining:
    """Train a next-word model on public text alone."""
    base = artifacts.vocabulary(ctx, "ingest_public")
    train, validation = artifacts.public_streams(ctx, base)
    model = artifacts.on_device(ctx, build_model(ctx.config.model, len(base), ctx.config.seed))
    public_training.start_from_frequencies(model, train.tokens_N)
    config = ctx.config.pretrain
    work = ctx.private / "work"
    curve = public_training.pretrain(config, model, train, validation, work, ctx.config.seed, artifacts.progress(ctx))
    return Pretraining(**dict(_trained(ctx, model, curve)), **_on_public_text(ctx, model, train, base))


def _on_public_text(
    ctx: StageContext, model: KeyboardLM, train: TokenStream, base: Vocabulary
) -> dict[str, dict[str, float]]:
    """Score the network and what public text gives for nothing, so that gates can be foretold before a spend."""
    start = neural(model, device=ctx.config.runtime.device)
    ngram = PublicNGram(NGram.fit(train, base, NGRAM_ORDER, ctx.private))
    store = artifacts.validation_text(ctx)
    text = held_out(store, np.arange(len(store)), PUBLIC_WORDS)
    arms: dict[str, NextWord] = {"start": start, "ngram": ngram, PUBLIC_MIXTURE: Mixture(start, ngram)}
    with one_torch_thread():
        scored = {name: scoring.score(arm, text, text.ids(base)) for name, arm in arms.items()}
    return {
        "public_recall": {name: float(np.mean(each.rank_P < 1)) for name, each in scored.items()},
        "public_variety": {name: slices.variety(each) for name, each in scored.items()},
    }


def adapt(ctx: StageContext) -> Adaptation:
    """Add rows for the new words, with biases from their typed frequency, and train a little more on public text.

    Training continues as long as it makes new words of held-out public text more probable.
    """
    config, base = ctx.config.adapt, artifacts.vocabulary(ctx, "ingest_public")
    grown = artifacts.vocabulary(ctx, "build_vocabulary")
    train, validation = artifacts.public_streams(ctx, grown)
    model = extend.grow(artifacts.on_device(ctx, artifacts.model(ctx, "pretrain")), base, grown, public=train)
    new, richer = _new_words(ctx, model, base, train, validation)
    words = ctx.config.pretrain.sequence_words
    before = new_words.new_word_loss(model, new.held_out, len(base), words)
    work = ctx.private / "work"
    curve = extend.adapt(
        config, model, richer.stream, validation, words, ctx.config.seed, work, artifacts.progress(ctx), new
    )
    return Adaptation(
        **dict(_trained(ctx, model, curve)),
        new_words=len(grown) - len(base),
        new_words_in_text=richer.words,
        new_word_sentences=richer.sentences,
        copies=richer.copies,
        new_word_loss_before=before,
        new_word_loss_after=new_words.new_word_loss(model, new.held_out, len(base), words),
    )


def _new_words(
    ctx: StageContext, model: KeyboardLM, base: Vocabulary, train: TokenStream, validation: TokenStream
) -> tuple[extend.NewWords, new_words.EnrichedText]:
    """Set the biases of a grown model's new words; return those words, and the text to learn them from."""
    frequency_N = artifacts.frequencies(ctx)
    if len(frequency_N):
        extend.set_biases(model, len(base), train, frequency_N)
    learnt, kept_back = new_words.hold_back(train, len(base))
    new = extend.NewWords(len(base), train, frequency_N, join_streams([kept_back, validation]))
    return new, new_words.enrich(learnt, len(base))


def _trained(ctx: StageContext, model: KeyboardLM, curve: public_training.TrainingCurve) -> PublicTraining:
    export.save_model(placed(model, "cpu"), ctx.public / "model.safetensors")
    remove_folder(ctx.private / "work")  # A resumed attempt reads all of it.
    last = curve.points[-1]
    return PublicTraining(
        parameters=parameter_count(model),
        steps=last.step,
        validation_loss=last.validation_loss,
        validation_top1=last.validation_top1,
        # More digits of a duration would say how long text is; other stages' texts are not public.
        curve=[point.model_dump() | {"seconds": two_digits(point.seconds)} for point in curve.points],
    )


def pretrained_again(ctx: StageContext, record: StageRecord, run: RunDir) -> Iterator[str]:
    yield from _measured(pretrained_remade(replace(ctx, run=run), record, run.public("pretrain")), record)


def adapted_again(ctx: StageContext, record: StageRecord, run: RunDir) -> Iterator[str]:
    yield from _measured(adapted_remade(replace(ctx, run=run), record, run.public("adapt")), record)


def _measured(made: dict[str, Any], record: StageRecord) -> Iterator[str]:
    """Compare figures measured again with those of the result and of the last point of its curve."""
    yield from differences({name: record.result[name] for name in made}, made)
    last = {name: value for name, value in record.result["curve"][-1].items() if name in made}
    yield from differences({name: made[name] for name in last}, last, "curve")


def pretrained_repeated(ctx: StageContext, record: StageRecord, run: RunDir) -> Iterator[str]:
    """Train on public text again."""
    yield from outcome_differences(pretrain(ctx), ctx, record, run)


def adapted_repeated(ctx: StageContext, record: StageRecord, run: RunDir) -> Iterator[str]:
    """Train in the grown vocabulary again, from the public model and public text."""
    yield from outcome_differences(adapt(ctx), ctx, record, run)


def pretrained_remade(ctx: StageContext, record: StageRecord, released: Path) -> dict[str, Any]:
    """Size, loss and accuracy of the public model, measured again."""
    _, validation = artifacts.public_streams(ctx, artifacts.vocabulary(ctx, "ingest_public"))
    model = export.load_model(released / "model.safetensors", ctx.config.model)
    return _evaluated(model, validation, ctx.config.pretrain.sequence_words)


def adapted_remade(ctx: StageContext, record: StageRecord, released: Path) -> dict[str, Any]:
    """The same of the adapted model, and its loss on new words before and after."""
    base, grown = artifacts.vocabulary(ctx, "ingest_public"), artifacts.vocabulary(ctx, "build_vocabulary")
    train, validation = artifacts.public_streams(ctx, grown)
    words = ctx.config.pretrain.sequence_words
    after = export.load_model(released / "model.safetensors", ctx.config.model)
    model = extend.grow(artifacts.model(ctx, "pretrain"), base, grown, public=train)
    new, richer = _new_words(ctx, model, base, train, validation)
    return {
        **_evaluated(after, validation, words),
        "new_words": len(grown) - len(base),
        "new_words_in_text": richer.words,
        "new_word_sentences": richer.sentences,
        "copies": richer.copies,
        "new_word_loss_before": new_words.new_word_loss(model, new.held_out, len(base), words),
        "new_word_loss_after": new_words.new_word_loss(after, new.held_out, len(base), words),
    }


def _evaluated(model: KeyboardLM, validation: TokenStream, words: int) -> dict[str, float]:
    loss, top1 = public_training.evaluate(model, validation, words)
    return {"parameters": parameter_count(model), "validation_loss": loss, "validation_top1": top1}
