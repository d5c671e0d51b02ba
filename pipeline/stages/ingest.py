"""Stages ``ingest_public`` and ``ingest_private``: text into shards and into the device store."""

from federated.devices import store
from pipeline.stage import Dataset, StageContext, StageResult
from pipeline.stages import artifacts
from pretrain import corpus, vocabulary
from reports.disclosure.guarantee import PublicText


class IngestPublic(StageResult, PublicText):
    """The public corpus and the base vocabulary."""

    validation_tokens: int
    vocabulary_size: int
    corpus_digest: str
    vocabulary_digest: str


class IngestPrivate(StageResult):
    """The device store, as far as it may be shown."""

    population: str
    source: str
    synthetic: bool
    devices_at_least: int
    devices_by_split: dict[str, int]
    store_digest: str


def ingest_public(ctx: StageContext) -> IngestPublic:
    """Public text into word shards, and the base vocabulary from its counts."""
    config = ctx.config
    summary = corpus.build_corpus(config.public_text, config.locale, ctx.public / "corpus", artifacts.progress(ctx))
    base = vocabulary.from_counts(corpus.open_corpus(ctx.public / "corpus").counts(), config.vocabulary.base_size)
    vocabulary.save(base, ctx.public / "vocabulary.json")
    return IngestPublic(
        source=summary.source,
        licence=summary.licence,
        parts=summary.parts,
        documents=summary.documents,
        train_tokens=summary.train_tokens,
        validation_tokens=summary.validation_tokens,
        vocabulary_size=len(base),
        corpus_digest=summary.digest,
        vocabulary_digest=base.digest,
        datasets=(Dataset(name=summary.source, digest=summary.digest, context="pretraining"),),
    )


def ingest_private(ctx: StageContext) -> IngestPrivate:
    """Client text into the private device store; only rounded counts and a digest come out."""
    summary = store.build_store(ctx.config.private_text, ctx.config.locale, ctx.config.seed, ctx.private / "store")
    return IngestPrivate(
        population=summary.population,
        source=summary.source,
        synthetic=summary.synthetic,
        devices_at_least=summary.devices,
        devices_by_split=summary.devices_by_split,
        store_digest=summary.digest,
        datasets=(Dataset(name=summary.population, digest=summary.digest, context="fine-tuning"),),
    )
