"""Stages ``ingest_public`` and ``ingest_private``: text into shards and into the device store."""

import logging
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from federated.config.population import VALIDATION_FRACTION, Files, PopulationKey, Retention, SyntheticPopulation
from federated.devices import parts, pieces, store
from federated.devices.withdrawals import Withdrawals
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.preflight.shortfalls import unheard, written_by_devices
from pipeline.releases.evaluation import EVALUATION
from pipeline.run import artifacts
from pipeline.run.bookkeeping import PARTS
from pipeline.run.population import require_population, write_window
from pipeline.run.run_dir import RunDir, StageRecord
from pipeline.run.stage import Dataset, StageContext, StageResult
from pipeline.stages import identity
from pretrain.text import corpus, vocabulary
from pretrain.text.likeness import unlikeness
from pretrain.text.tokenise import letter_of
from pretrain.text.words import WordStore
from reports.disclosure.guarantee import PublicText

# Number of files that one process reads before worker processes would have started.
SMALL_BYTES = 1 << 24
# Least share of the vocabulary's places that public words must fill; text of an exercise fills a third.
_LEAST_SHARE = 0.25
# Number of tokens that suffices to identify a language.
_MOST_LOOKED_AT = 1 << 18
_log = logging.getLogger(__name__)


class IngestPublic(StageResult, PublicText):
    """The public corpus and the base vocabulary."""

    validation_tokens: int
    vocabulary_size: int
    corpus_digest: str
    vocabulary_digest: str


class IngestPrivate(StageResult):
    """Public facts about the device store.

    Attributes:
      population: its key, of kind and name.
      store_digest: commitment to the store, of this launch alone (``store.keyed_digest``).
      split_rule: digest of what decides a device's split: the population's secret and the held-out fractions.
    """

    population: PopulationKey
    source: str
    synthetic: bool
    devices_at_least: int
    devices_by_split: dict[str, int]
    store_digest: str
    split_rule: str | None = None
    other_locales: int = 0
    days_kept: int | None = None
    as_of: str | None = None
    older: int = 0
    unreadable: int = 0


def ingest_public(ctx: StageContext) -> IngestPublic:
    """Convert public text to word shards, and build the base vocabulary from its counts."""
    config = ctx.config
    summary = corpus.build_corpus(config.public_text, config.locale, ctx.public / "corpus", artifacts.progress(ctx))
    if summary.left_out_documents != 0:
        _log.info("ingest_public: %s", _cut(summary))
    opened = corpus.open_corpus(ctx.public / "corpus")
    counts = opened.counts()
    base = vocabulary.from_counts(counts, config.vocabulary.base_size)
    _require_readable(config, counts, len(base))
    _say_unlikeness("public_text", opened.train[0], config.locale)
    vocabulary.save(base, ctx.public / "vocabulary.json")
    return _summarised(summary, base)


def _summarised(summary: corpus.CorpusSummary, base: vocabulary.Vocabulary) -> IngestPublic:
    return IngestPublic(
        source=summary.source,
        revision=summary.revision,
        licence=summary.licence,
        parts=summary.parts,
        documents=summary.documents,
        train_tokens=summary.train_tokens,
        left_out_documents=summary.left_out_documents,
        validation_tokens=summary.validation_tokens,
        vocabulary_size=len(base),
        corpus_digest=summary.digest,
        vocabulary_digest=base.digest,
        datasets=(Dataset(name=summary.source, digest=summary.digest, context="pretraining"),),
    )


def _cut(summary: corpus.CorpusSummary) -> str:
    """Sentence about the train documents that ``max_tokens`` left out; their words were not read and are estimated."""
    kept = f"public_text.max_tokens ended the text after {summary.train_documents:,} documents"
    left_out = summary.left_out_documents
    if left_out is None:
        return f"{kept}; the rest of the stream was not downloaded, so it was not counted"
    words = left_out * summary.train_tokens // summary.train_documents
    return f"{kept}; {left_out:,} documents are left out whole or in part, about {words:,} words if they are as long"


def _require_readable(config: LaunchConfig, counts: Mapping[str, int], words: int) -> None:
    """Refuse public text that cannot give a model of the locale, before any later stage spends.

    Raises:
      ValueError: most words are not in the locale's script, or there are far fewer than ``vocabulary.base_size``.
    """
    letter = letter_of(config.locale)
    if 2 * sum(count for word, count in counts.items() if letter.search(word)) < sum(counts.values()):
        raise ValueError(
            f"public_text: most of its words have no letter of the script of {config.locale!r}; correct the source, or "
            "locale (a tag may name a script, as in 'sr-Latn')"
        )
    if words < _LEAST_SHARE * config.vocabulary.base_size:
        raise ValueError(
            f"vocabulary.base_size: {config.vocabulary.base_size:,}, but public_text has {len(counts):,} different "
            f"words; give more text, or lower it to {max(words, 8):,}"
        )


def _say_unlikeness(field: str, words: WordStore, locale: str) -> None:
    if unlike := unlikeness(words.first_sentences(_MOST_LOOKED_AT), locale):
        _log.warning("%s: %s", field, unlike)


def _require_heard(config: LaunchConfig, devices: store.DeviceStore) -> None:
    """Refuse, before any spend, devices without enough text to train, validate or compare.

    The refusal reveals a fact about the devices, so a launch with ``policy.cover_everything`` skips this check.

    Raises:
      ValueError: too few devices of some split have a word, or public text was written by the devices.
    """
    name = config.private_text.name
    if not devices.words.num_words:
        raise ValueError(
            f"private_text: no device of population {name!r} has a word of {config.locale}; check the source"
        )
    _say_unlikeness("private_text", devices.words, config.locale)
    if not devices.speaking("validation"):
        raise ValueError(
            f"private_text: none of the validation devices ({VALIDATION_FRACTION:.0%} of all, by a keyed hash) of "
            f"population {name!r} has a word; bring more devices, or add the block evaluation, which validates on "
            "public text"
        )
    chat = config.public_text.source == "sample-with-chat"
    problems = (
        *unheard(config, devices.speaking("test")),
        *(written_by_devices(config, devices.words) if chat else ()),
    )
    if problems:
        raise ValueError("\n".join(problems))


def _read_by_workers(ctx: StageContext, kept: Retention | None, withdrawn: Withdrawals) -> Path | None:
    """Read text by several processes, and return the folder of its parts; None if one process is faster."""
    config, population, workers = ctx.config, ctx.config.private_text, ctx.config.runtime.workers
    if workers == 1 or not isinstance(population, Files) or parts.size(population.paths) < SMALL_BYTES:
        return None
    store.require_readable(population, config.locale)
    parts.write_task(ctx.private / PARTS, population, config.locale, kept, withdrawn)
    parts.write_parts(ctx.private / PARTS, population, config.locale, workers)
    return ctx.private / PARTS


def ingest_private(ctx: StageContext) -> IngestPrivate:
    """Convert client text to the private device store; only rounded counts and a digest are public.

    Guarantee: no device of a person who withdrew is in the store, and the result does not say how many did. The digest
    reveals nothing without the population's key. With a budget for evaluation, so that every use is covered, only the
    number of devices is public beside it, which a device without text does not change.

    Raises:
      PopulationUnknown, BudgetExceeded: the population is not registered, or the ledger has these devices under
        another name.
      ValueError, OSError: as of ``store.build_store``, ``parts.write_parts`` and ``_require_heard``.
    """
    config, ledger = ctx.config, PrivacyLedger.of(ctx.settings)
    population = require_population(config, ledger)
    key = store.split_key(population.key, ledger.split_secret(population.key))
    kept = identity.kept_by(ctx, population)
    withdrawn = ledger.withdrawn(population.key)
    target = ctx.private / "store"
    for earlier in (target, ctx.private / PARTS):  # Older text, which the new window would misdescribe.
        shutil.rmtree(earlier, ignore_errors=True)
    write_window(ctx.run, kept, withdrawn)
    try:
        task = _read_by_workers(ctx, kept, withdrawn)
        summary = store.build_store(config.private_text, config.locale, config.seed, target, key, kept, task, withdrawn)
    finally:
        shutil.rmtree(ctx.private / PARTS, ignore_errors=True)
    # Synthetic typists of every population have the same numbers.
    if not isinstance(config.private_text, SyntheticPopulation):
        ledger.bind_devices(summary.population, pieces.device_ids(target))
    covered = EVALUATION.asked(config)
    if not covered:
        _require_heard(config, store.open_store(target))
    return IngestPrivate(
        population=summary.population,
        source=summary.source,
        synthetic=summary.synthetic,
        devices_at_least=summary.devices,
        devices_by_split=summary.devices_by_split,
        split_rule=population.split_rule(config.private_text.test_fraction),
        other_locales=0 if covered else summary.other_locales,
        days_kept=kept and kept.days,
        as_of=kept and kept.as_of.isoformat(),
        older=0 if covered else summary.older,
        unreadable=0 if covered else summary.unreadable,
        **committed(ctx),
    )


def committed(ctx: StageContext) -> dict[str, Any]:
    """Fields of the result that commit to the store in the launch's folder, under a salt of this launch."""
    population = ctx.config.population
    digest = identity.store_commitment(ctx.settings, population, ctx.private / "store", ctx.run.launch_id)
    return {"store_digest": digest, "datasets": [{"name": population, "digest": digest, "context": "fine-tuning"}]}


def public_text_again(ctx: StageContext, record: StageRecord, run: RunDir) -> Iterator[str]:
    ctx = replace(ctx, run=run)
    opened = corpus.open_corpus(ctx.run.input("ingest_public", "corpus"))
    base = vocabulary.from_counts(opened.counts(), ctx.config.vocabulary.base_size)
    stated = record.result
    if stated["corpus_digest"] != opened.summary.digest:
        yield "corpus_digest"
    if stated["vocabulary_digest"] != base.digest or artifacts.vocabulary(ctx, "ingest_public").digest != base.digest:
        yield "vocabulary.json"


def public_text_remade(ctx: StageContext, record: StageRecord, released: Path) -> dict[str, Any]:
    """The corpus' own summary, and the vocabulary of its counts."""
    opened = corpus.open_corpus(released / "corpus")
    base, summary = vocabulary.from_counts(opened.counts(), ctx.config.vocabulary.base_size), opened.summary
    vocabulary.save(base, ctx.public / "vocabulary.json")
    return _summarised(summary, base).model_dump(mode="json")


def private_text_remade(ctx: StageContext, record: StageRecord, released: Path) -> dict[str, Any]:
    """Facts of the launch file about its population."""
    text = ctx.config.private_text
    facts = {"population": ctx.config.population, "source": text.source, "synthetic": text.synthetic}
    return facts | {"datasets": [{"name": ctx.config.population, "context": "fine-tuning"}]}


def store_again(ctx: StageContext, record: StageRecord, run: RunDir) -> Iterator[str]:
    """Open the store, which checks its own digest, and compare that with the record."""
    ctx = replace(ctx, run=run)
    opened = artifacts.store(ctx)
    if committed(ctx)["store_digest"] != record.result["store_digest"]:
        yield "store_digest"
    counts = {name: len(opened.devices(name)) // 10 * 10 for name in store.SPLITS}
    if counts != record.result["devices_by_split"]:
        yield "devices_by_split"
