"""Inputs of the audit of a vocabulary: released words, public text, and what was built of them."""

from pathlib import Path

from discovery import review
from discovery.config import CentralConfig
from discovery.frequencies import TYPED_PER_HOLDER
from evaluation.audit.released.vocabulary import BuiltVocabulary, ReleasedWord, vocabulary_audit
from evaluation.audit.verdict import Verdict
from pipeline.run import artifacts
from pipeline.run.stage import StageContext
from pretrain.text import corpus
from pretrain.writing.case import form_of

PROVES = ("words", "frequencies")


def audited(ctx: StageContext) -> tuple[Verdict, ...]:
    """Verdicts on the vocabulary of a launch, in the context of its stage ``build_vocabulary``."""
    config, locale = ctx.config.discovery, ctx.config.locale
    found, public = artifacts.discovered_words(ctx), artifacts.vocabulary(ctx, "ingest_public").words
    built = BuiltVocabulary(
        artifacts.vocabulary(ctx, ctx.stage).words, artifacts.frequencies(ctx).tolist(), artifacts.shown_words(ctx)
    )
    blocked = review.read_blocklist(Path(config.blocklist)) if config.blocklist else ()
    listed = review.candidates(found, ctx.config.vocabulary.filters, blocked, locale)
    factor = ceiling = TYPED_PER_HOLDER
    if isinstance(config, CentralConfig):
        counts = corpus.open_corpus(ctx.run.input("ingest_public", "corpus")).counts()
        every = sum(counts.values())
        factor, ceiling = max(every - sum(counts.get(word, 0) for word in public), 1) / every, 1.0
    else:
        factor *= config.messages_per_device
    return vocabulary_audit(
        built,
        public,
        {each.word: ReleasedWord(each.share, each.high, form_of(each.word, each.form, locale)) for each in found},
        None if ctx.config.vocabulary.review else {each.word for each in listed if not each.accepted},
        ctx.config.vocabulary.max_new_words,
        factor,
        ceiling,
    )
