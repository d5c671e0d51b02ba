"""Stage ``audit_releases``: derive every release of the launch again from private text and the key of its noise, and
the vocabulary from released words.

A launch is held unless each of its releases passes. A release that is reused from another launch keeps that launch's
verdicts, which are cited: they existed before the reuse, or were computed for it.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from discovery import review
from discovery.config import CentralConfig
from discovery.frequencies import TYPED_PER_HOLDER
from evaluation.audit.released.key import key_audit, seeded_key
from evaluation.audit.released.splits import TEST, TRAIN, VALIDATION, split_audit, splits_of
from evaluation.audit.released.vocabulary import BuiltVocabulary, ReleasedWord, vocabulary_audit
from evaluation.audit.verdict import Verdict
from federated.config.population import VALIDATION_FRACTION
from federated.devices.pieces import device_ids
from pipeline.ground.errors import LaunchError, StageInputMissing
from pipeline.launch.config import load_kept_launch
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.releases import uses
from pipeline.releases.release import EVERY_RELEASE, Release
from pipeline.run import artifacts
from pipeline.run.cache import cited_audit
from pipeline.run.known import run_folder
from pipeline.run.run_dir import KEY, RunDir
from pipeline.run.stage import StageContext, StageResult, commitment, drawn_anew, public_facts
from pretrain.text import corpus
from pretrain.writing.case import form_of
from reports.disclosure.findings import ReleaseAudit, ReleaseVerdict

# Verdicts on the vocabulary without which a launch is held.
VOCABULARY = ("words", "frequencies")
_log = logging.getLogger(__name__)


class AuditReleases(StageResult):
    """Verdicts on each release of the launch; a release that its stage did not make has none."""

    release_audits: tuple[ReleaseAudit, ...]


def audit_releases(ctx: StageContext) -> AuditReleases:
    """Audit each release of the launch by its own audit."""
    return AuditReleases(release_audits=tuple(_audits(ctx)))


def _audits(ctx: StageContext) -> Iterator[ReleaseAudit]:
    for release in uses.releases(ctx.config):
        if ctx.run.optional(release.stage) and (audit := _audit(ctx, release)):
            yield audit
    if ctx.run.optional("build_vocabulary"):
        yield _own(ctx, "build_vocabulary", audited_vocabulary(replace(ctx, stage="build_vocabulary")))


def _audit(ctx: StageContext, release: Release) -> ReleaseAudit | None:
    """Audit the launch's own release; for a reused one, return the audit that its reuse cites, if there is one."""
    record = ctx.run.record(release.stage)
    if record is not None and record.reused_from is not None:
        return cited_audit(ctx.run, release.stage, PrivacyLedger.of(ctx.settings))
    return _own(ctx, release.stage, audited(replace(ctx, stage=release.stage), release))


def _own(ctx: StageContext, stage: str, verdicts: Iterable[Verdict]) -> ReleaseAudit:
    shown = tuple(ReleaseVerdict.model_validate(vars(verdict)) for verdict in verdicts)
    return ReleaseAudit(stage=stage, made_by=ctx.run.launch_id, cited=None, verdicts=shown)


def of_another(ctx: StageContext, made_by: str, held_by: str, afresh: bool) -> ReleaseAudit | None:
    """Audit of another launch's release of this stage; None if there is none and none can be made.

    Guarantee: an earlier audit counts only if the ledger holds it, and only with every verdict that the release needs;
    a new audit reads the private folder of the launch that made the release.

    Args:
      ctx: context of the launch that would reuse the release.
      made_by, held_by: launches that made the release, and that have its files.
      afresh: make the audit if there is none yet.
    """
    wanted = next({*EVERY_RELEASE, *made.proves} for made in uses.releases(ctx.config) if made.stage == ctx.stage)
    for audit in _before(ctx, made_by, held_by):
        if (audit.stage, audit.made_by) == (ctx.stage, made_by) and wanted <= {row.name for row in audit.verdicts}:
            return audit
    return _now(ctx, run_folder(ctx.settings, made_by)) if afresh else None


def _before(ctx: StageContext, made_by: str, held_by: str) -> Iterator[ReleaseAudit]:
    """Yield audits that the ledger holds for two launches: their own, and those that the second cites."""
    for launch_id in dict.fromkeys((made_by, held_by)):
        for audit in _stated(run_folder(ctx.settings, launch_id)):
            yield audit.model_copy(update={"cited": audit.cited or launch_id})
    if cited := cited_audit(run_folder(ctx.settings, held_by), ctx.stage, PrivacyLedger.of(ctx.settings)):
        yield cited


def _stated(run: RunDir) -> tuple[ReleaseAudit, ...]:
    """Audits in the record of a launch's stage ``audit_releases``, if the ledger holds its digest."""
    try:
        record = run.record("audit_releases")
    except ValueError:
        return ()
    return () if record is None else AuditReleases.model_validate(record.result).release_audits


def _now(ctx: StageContext, there: RunDir) -> ReleaseAudit | None:
    """Audit a release from the private files of the launch that made it; None if they do not allow it."""
    try:
        config = load_kept_launch(there.path / "public" / "launch" / "launch.json")
        release = next(release for release in uses.releases(config) if release.stage == ctx.stage)
        there_ctx = replace(ctx, config=config, run=there, key=None)
        return _own(there_ctx, release.stage, audited(there_ctx, release))
    except (LaunchError, ValueError, ArithmeticError, LookupError, OSError, StopIteration) as error:
        _log.warning("%s: the release of launch %s cannot be audited: %s", ctx.stage, there.launch_id, error)
        return None


def audited(ctx: StageContext, release: Release) -> tuple[Verdict, ...]:
    """Verdicts on a release, in the context of the launch that made it and of its stage.

    The key comes from its file or, for a launch file with a seed, follows from the seed; it is never taken from the
    audited stage's own code.
    """
    config, launch_id = ctx.config, ctx.run.launch_id
    reserved = PrivacyLedger.of(ctx.settings).reserved(launch_id, release.stage)
    seeded, path = config.mechanism.randomness == "seeded", ctx.run.path / "private" / release.stage / KEY
    if not seeded and not path.is_file():
        raise StageInputMissing(
            f"{path}: the key of a release is gone, so that its noise cannot be audited; restore it"
        )
    key = seeded_key(config.seed, release.stage) if seeded else path.read_bytes()
    (named,) = commitment(config, key)
    on_key = key_audit(
        key,
        "" if reserved is None else reserved.names(named),
        public_facts(config, ctx.run, release.stage),
        drawn_anew(config, ctx.run, release.stage),
        seeded=seeded,
    )
    return (on_key, _on_split(ctx), *release.audit(replace(ctx, key=key)))


def _on_split(ctx: StageContext) -> Verdict:
    """Verdict on the store's splits, which decide the devices that a release reads."""
    store, config = artifacts.store(ctx), ctx.config
    secret = PrivacyLedger.of(ctx.settings).split_secret(config.population)
    shares = config.private_text.test_fraction, VALIDATION_FRACTION
    split_D = splits_of(device_ids(store.directory), config.population, secret, *shares)
    names = {TRAIN: "train", VALIDATION: "validation", TEST: "test"}
    return split_audit(split_D, {split: store.devices(name) for split, name in names.items()})


def audited_vocabulary(ctx: StageContext) -> tuple[Verdict, ...]:
    """Verdicts on the vocabulary of a launch, in the context of its stage."""
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
