"""Stages run once more, from the same inputs and keys, in a folder of their own: they must say and write the same.

Nothing is released by that: the same noise is drawn by the same key, and what comes out is compared and thrown away.
Public training, ingestion and the rounds of private training are done again only if asked for (``trained``), as they
take as long as they took; else their models are measured, and private training is taken up from its last checkpoint.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from federated.devices import store as population
from federated.devices.store import SPLITS
from pipeline.config import LaunchConfig
from pipeline.covered.spends import SPENDS
from pipeline.errors import LaunchError, ServiceUnavailable
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.registry import Had, Registry
from pipeline.run.known import as_it_lies
from pipeline.run_dir import KEY, RunDir, StageRecord
from pipeline.settings import Settings, processor
from pipeline.stage import StageContext, StageResult, stage_key
from pipeline.stages import artifacts
from pipeline.stages.ab_test import ab_test
from pipeline.stages.audit import audit
from pipeline.stages.build_vocabulary import build_vocabulary
from pipeline.stages.count import count
from pipeline.stages.decide import decide
from pipeline.stages.discover import discover
from pipeline.stages.fine_tune import fine_tune
from pipeline.stages.ingest import ingest_public
from pipeline.stages.plan import plan
from pipeline.stages.public_model import adapt, pretrain
from pipeline.stages.publish import build_bundle
from pipeline.stages.training.fine_tune_workers import watched_on
from pipeline.verify.check import Check, differences, file_differences, in_words
from pipeline.verify.files import is_gone, missing
from pipeline.verify.report import of_this_code as made_by_this_code
from pipeline.verify.report import read, same_launch
from pipeline.verify.reused import origin
from pretrain import corpus, vocabulary
from pretrain.files import scratch
from pretrain.model import KeyboardLM
from pretrain.new_words import hold_back, new_word_loss
from pretrain.train import evaluate
from pretrain.vocabulary import join_streams
from reports.disclosure.document import Disclosure

# What later launches and rehearsals go on changing.
_MOVING_GATES = {"population_budget", "window_budget", "population_total", "window_total"}
_MOVING_GATES |= {"population_discovery", "ledger"}
_MOVING = frozenset({"rehearsed", "verdict"})
# Whole numbers, text and noise, which are the same on every processor.
_ANYWHERE = frozenset({"ingest_private", "discover", "build_vocabulary", "decide"})
_LINKED = frozenset({"discover", "plan"})  # made again from nothing of their own
# The stage's context in the other folder, its record, and the launch itself; what is not the same.
_Again = Callable[[StageContext, StageRecord, RunDir], Iterator[str]]


def replay(
    config: LaunchConfig, run: RunDir, settings: Settings, records: Mapping[str, StageRecord], of_this_code: bool
) -> Iterator[Check]:
    """Each finished stage made or measured again.

    Args:
      of_this_code: whether the launch was made by the code that is running; other code need not say the same.
    """
    for name in (name for name in AGAIN if name in records):
        yield replay_one(name, config, run, settings, records[name], of_this_code)


def trained(
    config: LaunchConfig, run: RunDir, settings: Settings, records: Mapping[str, StageRecord], of_this_code: bool
) -> Iterator[Check]:
    """Public text read, public models trained and all rounds of private training done again, from their first step."""
    for name in (name for name in _FROM_NOTHING if name in records):
        if name == "audit" and not config.audit.on_twin:
            continue
        yield replay_one(name, config, run, settings, records[name], of_this_code, from_nothing=True)


def replay_one(
    name: str,
    config: LaunchConfig,
    run: RunDir,
    settings: Settings,
    record: StageRecord,
    of_this_code: bool,
    from_nothing: bool = False,
) -> Check:
    """One stage made or measured again; a release that was taken over, where it was made.

    What other code or another kind of processor made may not come out here: then it is neither verified nor wrong.
    """
    check_id = f"trained:{name}" if from_nothing else f"again:{name}"
    if name in SPENDS and record.reused_from is not None:
        made = origin(run, record)
        if made is None:
            return Check(id=check_id, passed=None, detail=f"{record.reused_from}, which made it, is not here")
        of_this_code = made_by_this_code(made[1], settings, PrivacyLedger.of(settings))
        return replay_one(name, *made[:2], settings, made[2], of_this_code, from_nothing)
    keyed = ("ab_test",) if name == "ab_test" and config.evaluation is not None else ()
    keyed = ("audit",) if name == "audit" and record.private_outputs else keyed
    asked = {"fine_tune": config.trains, "count": config.counts is not None}
    unasked = {stage for stage, wanted in asked.items() if not wanted}  # which leave nothing private then
    if config.mechanism.randomness == "seeded":
        unasked |= {"count"}  # which keeps a key alone, and a seeded one is no file
    if any(is_gone(run, each) for each in (*(set(_PRIVATE.get(name, ())) - unasked), *keyed)):
        passed, detail = missing(run, PrivacyLedger.of(settings))
        return Check(id=check_id, passed=passed, detail=detail)
    with _beside(config, run, settings, name) as ctx:
        try:
            wrong = sorted((_FROM_NOTHING if from_nothing else AGAIN)[name](ctx, record, run))
        except ServiceUnavailable as error:
            return Check(id=check_id, passed=None, detail=str(error))
        except (LaunchError, ValueError, ArithmeticError, OSError, KeyError) as error:
            wrong = [f"it cannot be made again: {error}"]
    excuse = None if of_this_code else "other code made it, and the code that is running does not say the same"
    if name not in _ANYWHERE and record.processor != (here := processor()):
        excuse = excuse or f"made on {record.processor}; this is {here}, whose last digits may differ"
    if wrong and excuse:
        return Check(id=check_id, passed=None, detail=f"{excuse}: {in_words(wrong)}")
    detail = f"not the same: {in_words(wrong)}" if wrong else "the same again"
    return Check(id=check_id, passed=not wrong, detail=detail)


@contextmanager
def _beside(config: LaunchConfig, run: RunDir, settings: Settings, name: str) -> Iterator[StageContext]:
    """A folder like the launch's, in which one stage is empty and the others are the launch's own.

    It lies in the private half, because what a stage makes again there is as private as what it made before.
    """
    private = run.path / "private"
    with scratch(private if private.is_dir() else Path(tempfile.gettempdir()), "again") as folder:
        there = RunDir(folder, run.launch_id, as_it_lies)
        for half in ("public", "private"):
            (there.path / half).mkdir(parents=True)
            for other in sorted((run.path / half).iterdir()) if (run.path / half).is_dir() else ():
                if other.name != name and not other.name.startswith("."):
                    (there.path / half / other.name).symlink_to(other.resolve(), target_is_directory=True)
        if name not in _LINKED and (private / name).is_dir():
            # Checkpoints, sheets: files are only ever replaced whole, so a second name for each costs nothing.
            shutil.copytree(private / name, there.path / "private" / name, copy_function=os.link)
        alone = config.model_copy(update={"runtime": config.runtime.model_copy(update={"workers": 1, "hosts": 1})})
        # Without its key, which only a stage that spends has, none is drawn.
        has_key = name in SPENDS and (config.mechanism.randomness == "seeded" or (private / name / KEY).is_file())
        key = stage_key(config, run, name) if has_key else None
        yield StageContext(alone, there, settings, name, key)


def _made(function: Callable[[StageContext], StageResult], ignored: frozenset[str] = frozenset()) -> _Again:
    """The stage run again: its result, number by number, and its files, byte by byte."""

    def again(ctx: StageContext, record: StageRecord, run: RunDir) -> Iterator[str]:
        both = (_untimed(each) for each in (record.result, function(ctx).model_dump(mode="json")))
        stated, result = ({name: each[name] for name in each.keys() - ignored} for each in both)
        yield from differences(stated, result)
        yield from file_differences(record, run, ctx.run)

    return again


def _untimed(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result without how long each point of its curve took."""
    curve = [{name: point[name] for name in point if name != "seconds"} for point in result.get("curve", ())]
    return {**result, "curve": curve} if curve else dict(result)


def _ingest_public(ctx: StageContext, record: StageRecord, run: RunDir) -> Iterator[str]:
    ctx = replace(ctx, run=run)
    opened = corpus.open_corpus(ctx.run.input("ingest_public", "corpus"))
    base = vocabulary.from_counts(opened.counts(), ctx.config.vocabulary.base_size)
    stated = record.result
    if stated["corpus_digest"] != opened.summary.digest:
        yield "corpus_digest"
    if stated["vocabulary_digest"] != base.digest or artifacts.vocabulary(ctx, "ingest_public").digest != base.digest:
        yield "vocabulary.json"


def _ingest_private(ctx: StageContext, record: StageRecord, run: RunDir) -> Iterator[str]:
    """The store opens only if it has its own digest, which must be the one that was stated."""
    ctx = replace(ctx, run=run)
    store = artifacts.store(ctx)
    stored = json.loads((ctx.run.private("ingest_private") / "store" / "store.json").read_text(encoding="utf-8"))
    key = ctx.config.population
    secret = PrivacyLedger.of(ctx.settings).split_secret(key)
    digest = population.keyed_digest(stored["summary"]["digest"], population.split_key(key, secret))
    if digest != record.result["store_digest"]:
        yield "store_digest"
    counts = {name: len(store.devices(name)) // 10 * 10 for name in SPLITS}
    if counts != record.result["devices_by_split"]:
        yield "devices_by_split"


def _pretrain(ctx: StageContext, record: StageRecord, run: RunDir) -> Iterator[str]:
    ctx = replace(ctx, run=run)
    words = artifacts.vocabulary(ctx, "ingest_public")
    yield from _measured(ctx, record, artifacts.model(ctx, "pretrain"), words)


def _adapt(ctx: StageContext, record: StageRecord, run: RunDir) -> Iterator[str]:
    ctx = replace(ctx, run=run)
    base, words = artifacts.vocabulary(ctx, "ingest_public"), artifacts.vocabulary(ctx, "build_vocabulary")
    model = artifacts.model(ctx, "adapt")
    yield from _measured(ctx, record, model, words)
    train, held_out = artifacts.public_streams(ctx, words)
    held_out = join_streams([hold_back(train, len(base))[1], held_out])
    after = new_word_loss(model, held_out, len(base), ctx.config.pretrain.sequence_words)
    yield from differences(record.result["new_word_loss_after"], after, "new_word_loss_after")


def _measured(ctx: StageContext, record: StageRecord, model: KeyboardLM, words: vocabulary.Vocabulary) -> Iterator[str]:
    loss, top1 = evaluate(model, artifacts.public_streams(ctx, words)[1], ctx.config.pretrain.sequence_words)
    stated = {name: record.result[name] for name in ("validation_loss", "validation_top1")}
    yield from differences(stated, {"validation_loss": loss, "validation_top1": top1})
    yield from differences(stated, {name: record.result["curve"][-1][name] for name in stated}, "curve")


def _fine_tune(ctx: StageContext, record: StageRecord, run: RunDir) -> Iterator[str]:
    """Export the last checkpoint again, which is after the last round, and measure on held-out devices."""
    if not ctx.config.trains:
        yield from _made(fine_tune)(ctx, record, run)
        return
    rounds = ctx.private / "rounds" / f"round-{ctx.config.mechanism.rounds:08d}.ckpt"
    if not rounds.is_file():
        yield f"{rounds.name} is lost"
        return
    yield from _made(fine_tune)(ctx, record, run)
    held_out = watched_on(ctx)
    words = int((held_out.tokens_N > vocabulary.UNK).sum())
    unknown = int((held_out.tokens_N == vocabulary.UNK).sum())
    for stage, when in (("adapt", "before"), ("fine_tune", "after")):
        weights = artifacts.model(StageContext(ctx.config, run, ctx.settings, stage, None), stage)
        top1 = evaluate(weights, held_out, ctx.config.local_training.sequence_words)[1]
        recall = top1 * words / max(words + unknown, 1)
        yield from differences(record.result[f"validation_recall_{when}"], recall, f"validation_recall_{when}")


def _select_and_ingest(ctx: StageContext, record: StageRecord, run: RunDir) -> Iterator[str]:
    """Ingest with the model that chose among sentences then, which later launches have replaced."""
    then = _published_then(ctx, record.result.get("selection"))
    yield from _made(lambda there: ingest_public(there, then))(ctx, record, run)


def _all_rounds(function: Callable[[StageContext], StageResult]) -> _Again:
    """Every round under the key of then, from the adapted model."""

    def again(ctx: StageContext, record: StageRecord, run: RunDir) -> Iterator[str]:
        for left in ctx.private.iterdir():
            if left.is_dir():
                shutil.rmtree(left)
            elif left.name != KEY:
                left.unlink()
        yield from _made(function)(ctx, record, run)

    return again


def _ab_test(ctx: StageContext, record: StageRecord, run: RunDir) -> Iterator[str]:
    """Against what users had then, which later launches have replaced."""
    others = {feature: each["champion"] for feature, each in record.result.get("others", {}).items()}
    then = _published_then(ctx, record.result["champion"], others)
    yield from _made(lambda there: ab_test(there, then, again=True))(ctx, record, run)


def _published_then(
    ctx: StageContext, stated: Mapping[str, Any] | None, others: Mapping[str, Mapping[str, Any] | None] | None = None
) -> Callable[[StageContext], Had]:
    """The registered versions that a stage says it used, for the main feature and for others."""

    def then(_: StageContext) -> Had:
        named = {ctx.config.feature: stated, **(others or {})}
        return {
            feature: Registry(ctx.settings).published(each["registered_model"], each["version"])
            for feature, each in named.items()
            if each is not None
        }

    return then


def _decide(ctx: StageContext, record: StageRecord, run: RunDir) -> Iterator[str]:
    again, stated = decide(ctx).model_dump(mode="json"), record.result
    passed = {gate["id"]: gate["passed"] for gate in stated["gates"]}
    if stated["decision"] != ("launch" if all(passed.values()) else "hold"):
        yield "decision"
    before, now = (
        {gate["id"]: gate for gate in result["gates"] if gate["id"] not in _MOVING_GATES} for result in (stated, again)
    )
    yield from differences(before, now, "gates")
    if all(passed[name] for name in passed.keys() & _MOVING_GATES):
        yield from differences(stated["reasons"], again["reasons"], "reasons")
    yield from differences(stated["headline"], {**again["headline"], "decision": stated["decision"]}, "headline")


def _publish(ctx: StageContext, record: StageRecord, run: RunDir) -> Iterator[str]:
    """The bundle exported again; how fast int8 ran is taken from what is there."""
    if not record.result["published"]:
        return
    shutil.copytree(run.public("publish") / "bundle", ctx.public / "bundle")
    disclosed = (ctx.public / "bundle" / "disclosure.json").read_text(encoding="utf-8")
    build_bundle(ctx, ctx.public / "bundle", disclosed)
    # Written again since, a report still says of the launch what was published with the model.
    then, now = Disclosure.model_validate_json(disclosed), read(run)
    yield from ("disclosure.json",) if now is None or not same_launch(then, now) else ()
    yield from file_differences(record, run, ctx.run)


AGAIN: Mapping[str, _Again] = {
    "ingest_public": _ingest_public,
    "ingest_private": _ingest_private,
    "pretrain": _pretrain,
    "discover": _made(discover),
    "build_vocabulary": _made(build_vocabulary),
    "adapt": _adapt,
    "plan": _made(plan, _MOVING),
    "count": _made(count),
    "fine_tune": _fine_tune,
    "audit": _made(audit),
    "ab_test": _ab_test,
    "decide": _decide,
    "publish": _publish,
}
# As they were made the first time; the others of ``AGAIN`` are.
_FROM_NOTHING: Mapping[str, _Again] = {
    "ingest_public": _select_and_ingest,
    "pretrain": _made(pretrain),
    "adapt": _made(adapt),
    "fine_tune": _all_rounds(fine_tune),
    "audit": _all_rounds(audit),
}
# The private folders that a stage reads when it is made again.
_PRIVATE = {
    **dict.fromkeys(("ingest_private", "plan", "build_vocabulary"), ("ingest_private",)),
    "discover": ("ingest_private", "discover"),
    "count": ("ingest_private", "count"),
    "fine_tune": ("ingest_private", "fine_tune"),
    "audit": ("ingest_private", "fine_tune"),
    "ab_test": ("ingest_private",),
}
