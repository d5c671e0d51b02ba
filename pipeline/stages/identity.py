"""Identity of what a stage reads beside the launch file: text, people, and outputs of earlier stages.

Between launches a stage is known by it (``graph``), so it stands apart from what computes: `tacit check` says what a
launch would take over without importing that.
"""

from dataclasses import asdict
from pathlib import Path

from federated.config.population import Retention
from federated.devices import store
from pipeline.ledger import withdrawals
from pipeline.ledger.budget import Population
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.registry import published_before
from pipeline.run import population as populations
from pipeline.run.run_dir import RunDir
from pipeline.run.stage import StageContext
from pretrain import sources
from pretrain.files import sha256


def people(run: RunDir) -> dict[str, object]:
    """Identity of the device store: population, text and split."""
    stated = run.result("ingest_private")
    return {name: stated[name] for name in ("population", "store_digest", "split")}


def outputs(run: RunDir, *stages: str) -> dict[str, object]:
    """Digests of the public files that stages wrote."""
    return {stage: run.outputs(stage) for stage in stages}


def public_text(ctx: StageContext) -> dict[str, object]:
    """The text, and the champion where it chooses among sentences."""
    config, published = ctx.config, None
    if config.public_text.select_by == "champion":
        published = published_before(ctx).get(config.feature)
    return {
        "text": sources.identity(config.public_text, config.locale),
        "champion": asdict(published) if published else None,
    }


def private_text(ctx: StageContext) -> dict[str, object]:
    """The text, and which of it is kept: on another day, or once somebody withdrew, it is another text."""
    key, url = ctx.config.population, ctx.settings.ledger_url
    text: dict[str, object] = {"text": store.identity(ctx.config.private_text)}
    if left_out := withdrawals.withdrawn(url, key).digest:
        text["withdrawn"] = left_out
    days = kept_by(ctx, PrivacyLedger.of(ctx.settings).population(key))
    return text if days is None else text | {"kept": [days.days, days.as_of.isoformat()]}


def kept_by(ctx: StageContext, population: Population) -> Retention | None:
    """Retention window of the launch's text; without a date, a launch that reads its text again keeps its window."""
    before = ctx.run.record("ingest_private")
    return populations.kept(ctx.config, population, ctx.run.launch_id, before.result.get("as_of") if before else None)


def words(ctx: StageContext) -> dict[str, object]:
    """Words that need not be found, and the devices that are asked."""
    return {"known": ctx.run.result("ingest_public")["vocabulary_digest"], **people(ctx.run)}


def public_training(ctx: StageContext) -> dict[str, object]:
    """Public text and model, and the vocabulary that discovery has a part in."""
    return outputs(ctx.run, "ingest_public", "pretrain", "build_vocabulary")


def vocabulary(ctx: StageContext) -> dict[str, object] | None:
    """Discovered words, blocklist, public text, devices; None where a person decides on the words, launch by launch."""
    words, blocklist = ctx.run.result("discover")["words_sha256"], ctx.config.discovery.blocklist
    if ctx.config.vocabulary.review:
        return None
    blocked = None if blocklist is None else sha256(Path(blocklist))
    return {"words": words, "blocked": blocked, **outputs(ctx.run, "ingest_public"), **people(ctx.run)}


def counts(ctx: StageContext) -> dict[str, object] | None:
    """Public text, vocabulary and devices; None where nothing is counted."""
    if ctx.config.counts is None:
        return None
    return outputs(ctx.run, "ingest_public", "build_vocabulary") | people(ctx.run)
