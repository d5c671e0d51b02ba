"""What decides the outputs of each stage that launches share or take over from one another.

It stands apart from the stages, so that `tacit check` can say what a launch would take over without importing what
computes it.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from discovery.state import AFTERWARDS
from federated.config.population import Kept
from federated.devices import store
from pipeline.config import LaunchConfig
from pipeline.covered import spends
from pipeline.ledger import launch
from pipeline.ledger.budget import Population
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.people import withdrawals
from pipeline.run_dir import RunDir
from pipeline.sharing import LIBRARIES
from pipeline.stage import PrivateStage, PublicStage, StageContext
from pretrain import sources
from pretrain.files import sha256

WORDS = "words.json"


def _people(run: RunDir) -> dict[str, object]:
    """What names the device store: population, text and split."""
    stated = run.result("ingest_private")
    return {name: stated[name] for name in ("population", "store_digest", "split")}


def _outputs(run: RunDir, *stages: str) -> dict[str, object]:
    """Digests of the public files that stages wrote."""
    return {stage: run.outputs(stage) for stage in stages}


def _public_text_reads(config: LaunchConfig) -> tuple[str, ...]:
    by_champion = config.public_text.select_by == "champion"
    selecting = ("features", "seed", "pretrain.sequence_words", "runtime.device") if by_champion else ()
    return ("locale", "public_text", "vocabulary.base_size", *selecting)


def _public_text(ctx: StageContext) -> dict[str, object]:
    """The text, and the champion where it chooses among sentences."""
    config, published = ctx.config, None
    if config.public_text.select_by == "champion":
        from pipeline.stages import artifacts  # torch is slow to import

        published = artifacts.published_before(ctx).get(config.feature)
    return {
        "text": sources.identity(config.public_text, config.locale),
        "champion": asdict(published) if published else None,
    }


def _private_text_reads(config: LaunchConfig) -> tuple[str, ...]:
    """All but where files lie; made-up typists alone follow the seed."""
    population = config.private_text
    described = (f"private_text.{name}" for name in type(population).model_fields if name != "paths")
    covered = ("evaluation",) if config.evaluation else ()
    return ("locale", *described, *covered, *(("seed",) if population.source == "synthetic" else ()))


def _private_text(ctx: StageContext) -> dict[str, object]:
    """The text, and which of it is kept: on another day, or once somebody withdrew, it is another text."""
    key, url = ctx.config.population, ctx.settings.ledger_url
    text: dict[str, object] = {"text": store.identity(ctx.config.private_text)}
    if left_out := withdrawals.withdrawn(url, key).digest:
        text["withdrawn"] = left_out
    days = kept_by(ctx, PrivacyLedger.of(ctx.settings).population(key))
    return text if days is None else text | {"kept": [days.days, days.as_of.isoformat()]}


def kept_by(ctx: StageContext, population: Population) -> Kept | None:
    """Which text is kept. A launch without a date that reads its text again keeps what it kept."""
    before = ctx.run.record("ingest_private")
    return launch.kept(ctx.config, population, ctx.run.launch_id, before.result.get("as_of") if before else None)


def _discovery_reads(config: LaunchConfig) -> tuple[str, ...]:
    """Fields that the answers depend on; what is done with the words afterwards is not among them."""
    asked = (f"discovery.{name}" for name in type(config.discovery).model_fields if name not in AFTERWARDS)
    summed = ("mechanism.secagg",) if config.mechanism.secagg else ()
    return ("locale", "mechanism.randomness", *summed, *asked, *spends.seeded(config))


def _vocabulary(ctx: StageContext) -> dict[str, object] | None:
    """Discovered words, blocklist, public text, devices; None where a person decides on the words, launch by launch."""
    words, blocklist = ctx.run.result("discover")["words_sha256"], ctx.config.discovery.blocklist
    if ctx.config.vocabulary.review:
        return None
    blocked = None if blocklist is None else sha256(Path(blocklist))
    return {"words": words, "blocked": blocked, **_outputs(ctx.run, "ingest_public"), **_people(ctx.run)}


def _counts(ctx: StageContext) -> dict[str, object] | None:
    if ctx.config.counts is None:
        return None
    return _outputs(ctx.run, "ingest_public", "build_vocabulary") | _people(ctx.run)


PUBLIC: Mapping[str, PublicStage] = {
    "ingest_public": PublicStage(reads=_public_text_reads, given=_public_text),
    # A GPU multiplies in bfloat16, so where it trains decides the model.
    "pretrain": PublicStage(
        reads=lambda config: ("seed", "model", "pretrain", "public_text.select_by", "runtime.device"),
        after=("ingest_public",),
    ),
}
PRIVATE: Mapping[str, PrivateStage] = {
    "ingest_private": PrivateStage(
        reads=_private_text_reads,
        given=_private_text,
        code=(
            "federated/devices",
            "pretrain",
            "pipeline/stages/ingest.py",
        ),
        libraries=LIBRARIES,
        sees=("name", "seed", "private_text", "policy", "mechanism", "evaluation", "runtime"),
        files=("store",),
    ),
    "discover": PrivateStage(
        reads=_discovery_reads,
        given=lambda ctx: {"known": ctx.run.result("ingest_public")["vocabulary_digest"], **_people(ctx.run)},
        code=(
            "discovery",
            "pretrain/randomness",
            "pretrain/writing/case.py",
            "pipeline/stages/discover.py",
        ),
        sees=("discovery", "runtime", "mechanism.secagg", "seed"),
        files=(WORDS,),
    ),
    "build_vocabulary": PrivateStage(
        # Without a budget its coverage is that of validation devices, and with one nobody's.
        reads=lambda config: (
            *("locale", "seed", "vocabulary", "discovery"),
            *(("evaluation",) if config.evaluation else ()),
        ),
        given=_vocabulary,
        code=("discovery", "pretrain", "evaluation/config.py", "pipeline/stages", "reports/disclosure"),
        libraries=LIBRARIES,
        sees=("evaluation",),
    ),
    # Of public text, in a vocabulary that discovery has a part in.
    "adapt": PrivateStage(
        reads=lambda config: (
            *("seed", "model", "adapt", "pretrain.sequence_words", "public_text.select_by", "runtime.device"),
        ),
        given=lambda ctx: _outputs(ctx.run, "ingest_public", "pretrain", "build_vocabulary"),
        code=("pretrain", "pipeline/stage.py", "pipeline/stages", "reports/disclosure"),
        libraries=LIBRARIES,
    ),
    "count": PrivateStage(
        reads=lambda config: (
            *("counts", "mechanism.delta", "mechanism.randomness", "public_text.select_by"),
            *spends.seeded(config),
        ),
        given=_counts,
        code=("federated", "pretrain", "pipeline/stages/count.py"),
    ),
}
