"""Identity of a stage's inputs beside the launch file: text, devices, and outputs of earlier stages.

It is part of a stage's content key (``graph``). This module imports no numeric code, so that `tacit check` can list the
stages that a launch would reuse.
"""

from pathlib import Path

from federated.config.population import PopulationKey, Retention
from federated.devices import store
from pipeline.ground.settings import Settings
from pipeline.ledger.budget import Population
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run import population as populations
from pipeline.run.run_dir import RESULT, RunDir
from pipeline.run.stage import StageContext
from pretrain.files import sha256
from pretrain.text import sources

_STAGE = "ingest_private"


def people(ctx: StageContext) -> dict[str, object]:
    """Identity of the device store: population, text and split. Private.

    Raises:
      ValueError: the store is not the one that its record commits to.
    """
    stated, record = ctx.run.result(_STAGE), ctx.run.record(_STAGE)
    assert record is not None, "its result was read"
    # Before a launch has run, the record and the store are those of the launch whose store it would reuse.
    folder = ctx.run.folder_of(_STAGE) / "private" / _STAGE / "store"
    if store_commitment(ctx.settings, stated["population"], folder, record.launch_id) != stated["store_digest"]:
        raise ValueError(f"{_STAGE}: the device store is not that of {RESULT}; run the stage again")
    return {"population": stated["population"], "store": store.stored_digest(folder)}


def store_commitment(settings: Settings, key: PopulationKey, folder: Path, launch_id: str) -> str:
    """Commitment to a population's store for publication by a launch; see ``store.keyed_digest``."""
    secret = PrivacyLedger.of(settings).split_secret(key)
    return store.keyed_digest(store.stored_digest(folder), store.split_key(key, secret), launch_id)


def outputs(run: RunDir, *stages: str) -> dict[str, object]:
    """Digests of the public files of stages."""
    return {stage: run.outputs(stage) for stage in stages}


def public_text(ctx: StageContext) -> dict[str, object]:
    """Identity of the public text."""
    return {"text": sources.identity(ctx.config.public_text, ctx.config.locale)}


def private_text(ctx: StageContext) -> dict[str, object]:
    """Identity of the private text, its retention window and its withdrawals; each of them changes the text."""
    key, ledger = ctx.config.population, PrivacyLedger.of(ctx.settings)
    text: dict[str, object] = {"text": store.identity(ctx.config.private_text)}
    if left_out := ledger.withdrawn(key).digest:
        text["withdrawn"] = left_out
    days = kept_by(ctx, ledger.population(key))
    return text if days is None else text | {"kept": [days.days, days.as_of.isoformat()]}


def kept_by(ctx: StageContext, population: Population) -> Retention | None:
    """Retention window of the launch's text; a launch without a date keeps the window of its first read."""
    before = ctx.run.record(_STAGE)
    return populations.kept(ctx.config, population, ctx.run.launch_id, before.result.get("as_of") if before else None)


def words(ctx: StageContext) -> dict[str, object]:
    """Identity of the known words, and of the devices."""
    return {"known": ctx.run.result("ingest_public")["vocabulary_digest"], **people(ctx)}


def public_training(ctx: StageContext) -> dict[str, object]:
    """Identity of the public text and model, and of the vocabulary with discovered words."""
    return outputs(ctx.run, "ingest_public", "pretrain", "build_vocabulary")


def vocabulary(ctx: StageContext) -> dict[str, object] | None:
    """Identity of discovered words, blocklist and public text; None if reviewers decide in each launch."""
    words, blocklist = ctx.run.result("discover")["words_sha256"], ctx.config.discovery.blocklist
    if ctx.config.vocabulary.review:
        return None
    blocked = None if blocklist is None else sha256(Path(blocklist))
    return {"words": words, "blocked": blocked, **outputs(ctx.run, "ingest_public")}


def counts(ctx: StageContext) -> dict[str, object] | None:
    """Identity of public text, vocabulary and devices; None without counts."""
    if ctx.config.counts is None:
        return None
    return outputs(ctx.run, "ingest_public", "build_vocabulary") | people(ctx)
