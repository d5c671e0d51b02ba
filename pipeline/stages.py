"""One short function per stage: load earlier artifacts, call the core, save, return.

    ingest_public ──> pretrain ──┐
          └────────────┐         ├─> build_vocabulary ─> adapt ─> plan ─> fine_tune ─┬─> audit ───┐
    ingest_private ─> discover ──┘                                                  └─> ab_test ─┴─> decide
                                                                         decide ─> report ─> publish

The siblings ``discovery``, ``federated``, ``evaluation`` and ``reports`` never see each other;
what one makes for another passes through here as plain data.
"""

import json
import logging
import shutil
from collections.abc import Callable

import numpy as np

from discovery import discover as discovery_core
from discovery.filters import reviewable
from evaluation import ab, canaries, metrics, ngram
from evaluation import audit as audit_core
from federated import accounting, population
from federated import plan as plan_core
from federated import train as federated_train
from pipeline import evidence, gates, release, results
from pipeline.config import LaunchConfig
from pipeline.run_dir import write_text
from pipeline.runner import Stages
from pipeline.stage import Dataset, Spend, StageContext, StageSpend
from pretrain import corpus, export, extend, text, vocabulary
from pretrain import train as pretrain_core
from pretrain.model import KeyboardLM, build_model, parameter_count
from pretrain.vocabulary import TokenStream, Vocabulary
from pretrain.words import WordStore
from reports import render

_log = logging.getLogger(__name__)


def ingest_public(ctx: StageContext) -> results.IngestPublic:
    """Public text into word shards, and the base vocabulary from its counts."""
    config = ctx.config
    summary = corpus.build_corpus(config.public_text, config.locale, ctx.public / "corpus", _progress(ctx))
    base = vocabulary.from_counts(corpus.open_corpus(ctx.public / "corpus").counts(), config.vocabulary.base_size)
    vocabulary.save(base, ctx.public / "vocabulary.json")
    return results.IngestPublic(
        source=summary.source,
        licence=summary.licence,
        documents=summary.documents,
        train_tokens=summary.train_tokens,
        validation_tokens=summary.validation_tokens,
        digest=summary.digest,
        vocabulary_size=len(base),
        vocabulary_digest=base.digest,
        datasets=(Dataset(name=summary.source, digest=summary.digest, context="pretraining"),),
    )


def ingest_private(ctx: StageContext) -> results.IngestPrivate:
    """Client text into the private device store; only bucketed counts come out."""
    summary = population.build_store(
        ctx.config.private_text, ctx.config.locale, ctx.config.seed, ctx.private / "store"
    )
    return results.IngestPrivate(
        population=summary.population,
        source=summary.source,
        synthetic=summary.synthetic,
        devices_at_least=summary.devices,
        devices_by_split=summary.devices_by_split,
        digest=summary.digest,
        datasets=(Dataset(name=summary.population, digest=summary.digest, context="fine-tuning"),),
    )


def pretrain(ctx: StageContext) -> results.Pretrain:
    """A next-word model from public text alone."""
    base = vocabulary.load(ctx.run.input("ingest_public", "vocabulary.json"))
    train, validation = _public_streams(ctx, base)
    model = build_model(ctx.config.model, len(base), ctx.config.seed)
    curve = pretrain_core.pretrain(
        ctx.config.pretrain, model, train, validation, ctx.private / "work", ctx.config.seed, _progress(ctx)
    )
    export.save_model(model, ctx.public / "model.safetensors")
    shutil.rmtree(ctx.private / "work")
    return results.Pretrain(**_training_result(model, curve))


def discover(ctx: StageContext) -> results.Discover:
    """New words from train devices, each of which randomises its own message."""
    base = vocabulary.load(ctx.run.input("ingest_public", "vocabulary.json"))
    ctx.run.result("ingest_private")
    store = population.open_store(ctx.run.private("ingest_private") / "store")
    found = discovery_core.discover(
        list(store.device_words("train")),
        known=frozenset(base.words),
        alphabet=text.alphabet(ctx.config.locale),
        config=ctx.config.discovery,
        key=ctx.key,
        directory=ctx.private / "rounds",
        progress=_progress(ctx),
    )
    _save_json(ctx, "words.json", [word.model_dump(mode="json") for word in found.words])
    return results.Discover(
        words_found=len(found.words),
        epsilon0=found.epsilon0,
        messages_per_device=found.messages_per_device,
        device_level_epsilon0=found.device_level_epsilon0,
        epsilon_central=found.epsilon_central,
        delta=found.delta,
        certificate=found.certificate,
        layers=[layer.model_dump(mode="json") for layer in found.layers],
        spend=Spend(
            unit="item",
            adjacency="swap",
            rho=None,
            epsilon=found.epsilon0,
            delta=0.0,
            note=f"local; {found.certificate} epsilon {found.epsilon_central} at delta {found.delta}",
        ),
    )


def build_vocabulary(ctx: StageContext) -> results.BuildVocabulary:
    """Base words first, then discovered words that pass the filters, as many as the budget holds."""
    base = vocabulary.load(ctx.run.input("ingest_public", "vocabulary.json"))
    found = [entry["word"] for entry in _load_json(ctx, "discover", "words.json")]
    kept, dropped = reviewable(found)
    grown = vocabulary.extend(base, kept, ctx.config.vocabulary.max_new_words)
    vocabulary.save(grown, ctx.public / "vocabulary.json")
    return results.BuildVocabulary(
        base_size=len(base),
        added=len(grown) - len(base),
        size=len(grown),
        digest=grown.digest,
        dropped_by_filter=dict(sorted(dropped.items())),
    )


def adapt(ctx: StageContext) -> results.Adapt:
    """Rows for the new words, then a little more public training."""
    base = vocabulary.load(ctx.run.input("ingest_public", "vocabulary.json"))
    grown = vocabulary.load(ctx.run.input("build_vocabulary", "vocabulary.json"))
    train, validation = _public_streams(ctx, grown)
    model = extend.grow(_load_model(ctx, "pretrain"), base, grown)
    curve = extend.adapt(
        ctx.config.adapt,
        model,
        train,
        validation,
        ctx.config.pretrain.sequence_words,
        ctx.config.seed,
        ctx.private / "work",
        _progress(ctx),
    )
    export.save_model(model, ctx.public / "model.safetensors")
    shutil.rmtree(ctx.private / "work", ignore_errors=True)
    return results.Adapt(**_training_result(model, curve))


def plan(ctx: StageContext) -> results.Plan:
    """What the guarantee will be at worst, before any device takes part."""
    devices = ctx.run.result("ingest_private")["devices_by_split"]["train"]
    planned = plan_core.plan(ctx.config.mechanism, devices)
    return results.Plan(
        feasible=planned.feasible,
        reasons=list(planned.reasons),
        sensitivity_squared=planned.guarantee.sensitivity_squared,
        rho=planned.guarantee.rho,
        epsilon={f"{delta:g}": value for delta, value in planned.guarantee.epsilon.items()},
        alternatives=[dict(row) for row in planned.alternatives],
    )


def fine_tune(ctx: StageContext) -> results.FineTune:
    """DP-FTRL on train devices and synthetic canary devices; accounted from what happened."""
    config = ctx.config
    planned = ctx.run.result("plan")
    if not planned["feasible"]:
        raise ValueError(f"mechanism: the plan cannot be carried out: {'; '.join(planned['reasons'])}")
    words = vocabulary.load(ctx.run.input("build_vocabulary", "vocabulary.json"))
    store = population.open_store(ctx.run.private("ingest_private") / "store")
    devices = store.encode(words, "train")
    inserted = canaries.make(config.audit, words, _public_streams(ctx, words)[0], config.seed)
    canaries.save(inserted, ctx.public / "canaries.json")
    synthetic_D = np.arange(len(devices) + len(inserted.devices)) >= len(devices)
    model = _load_model(ctx, "adapt")
    done = federated_train.fine_tune(
        model,
        devices.join(inserted.devices),
        synthetic_D,
        store.encode(words, "validation"),
        config.mechanism,
        config.local_training,
        config.server,
        config.runtime,
        config.seed,
        ctx.key,
        ctx.private / "rounds",
        _progress(ctx),
    )
    export.save_model(model, ctx.public / "model.safetensors")
    reached = accounting.from_records(config.mechanism, done.observed)
    return results.FineTune(**evidence.fine_tune_fields(config, done, reached, len(inserted.devices)))


def audit(ctx: StageContext) -> results.Audit:
    """What the private model remembers of the canaries."""
    words = vocabulary.load(ctx.run.input("build_vocabulary", "vocabulary.json"))
    inserted = canaries.load(ctx.run.input("fine_tune", "canaries.json"))
    found = audit_core.audit(
        _load_model(ctx, "fine_tune"),
        inserted,
        ctx.config.audit,
        words,
        ctx.config.seed,
        mu=ctx.run.result("fine_tune")["mu"],
    )
    rows = [row.model_dump(mode="json") for row in found.rows]
    return results.Audit(
        worst_rank_single_user=found.worst_rank_single_user,
        max_exposure_bits=max(row["exposure_bits"] for row in rows),
        found_by_beam=sum(row["found_by_beam"] for row in rows),
        random_continuations=ctx.config.audit.random_continuations,
        canaries=rows,
        headline={"exposure_bits": max(row["exposure_bits"] for row in rows)},
    )


def ab_test(ctx: StageContext) -> results.AbTest:
    """Public n-gram, pretrained, starting point and private model on held-out test devices."""
    config = ctx.config
    base = vocabulary.load(ctx.run.input("ingest_public", "vocabulary.json"))
    grown = vocabulary.load(ctx.run.input("build_vocabulary", "vocabulary.json"))
    store = population.open_store(ctx.run.private("ingest_private") / "store")
    test, base_test = (_first(store.encode(words, "test"), config.ab_test.max_devices) for words in (grown, base))
    public = ngram.NGram.fit(_public_streams(ctx, grown)[0], len(grown), config.ab_test.ngram_order)
    arms = {
        "ngram": ngram.per_device(public, test),
        "pretrained": metrics.per_device(_load_model(ctx, "pretrain"), base_test),
        "start": metrics.per_device(_load_model(ctx, "adapt"), test),
        "private": metrics.per_device(_load_model(ctx, "fine_tune"), test),
    }
    compared = ab.compare(
        arms,
        pairs=[("private", "start"), ("private", "pretrained"), ("private", "ngram")],
        salt=config.name,
        buckets=config.ab_test.buckets,
        confidence=config.ab_test.confidence,
    )
    return results.AbTest(**evidence.ab_test_fields(compared, len(test)))


def decide(ctx: StageContext) -> results.Decide:
    """The declared gates over the evidence; a hold is a value, not an error."""
    decision = gates.decide(evidence.for_gates(ctx), ctx.config.policy)
    return results.Decide(
        decision=decision.decision,
        reasons=list(decision.reasons),
        gates=[gate.model_dump(mode="json") for gate in decision.gates],
        headline={"decision": decision.decision},
    )


def report(ctx: StageContext) -> results.Report:
    """The disclosure and its renderings, for a launch and for a hold."""
    disclosure = evidence.disclosure(ctx)
    files = render.render(disclosure, ctx.public)
    return results.Report(
        files=sorted(path.name for path in files), disclosure_sha256=ctx.run.manifest("report")["disclosure.json"]
    )


def publish(ctx: StageContext) -> results.Publish:
    """Export, check parity, register and move the alias; a hold publishes nothing."""
    return results.Publish(**release.publish(ctx))


def planned_training_spend(config: LaunchConfig) -> Spend:
    """The worst case of the mechanism as enforced; reserved before the first round."""
    mechanism = config.mechanism
    worst = accounting.guarantee(
        mechanism, mechanism.rounds, mechanism.min_sep, mechanism.max_participations, (mechanism.delta,)
    )
    return Spend(
        unit="device",
        adjacency="zero-out",
        rho=worst.rho,
        epsilon=worst.epsilon[mechanism.delta],
        delta=mechanism.delta,
        note=f"{mechanism.kind}, planned",
    )


def planned_discovery_spend(config: LaunchConfig) -> Spend:
    """The local guarantee of one message; it does not depend on who answers."""
    return Spend(
        unit="item", adjacency="swap", rho=None, epsilon=config.discovery.epsilon0, delta=0.0, note="local, planned"
    )


def _progress(ctx: StageContext) -> Callable[..., None]:
    def log(point: dict) -> None:
        shown = ", ".join(f"{name} {value:.4g}" for name, value in point.items() if isinstance(value, int | float))
        _log.info("%s: %s", ctx.stage, shown)

    return log


def _public_streams(ctx: StageContext, words: Vocabulary) -> tuple[TokenStream, TokenStream]:
    opened = corpus.open_corpus(ctx.run.input("ingest_public", "corpus"))
    return _encode(opened.train, words), _encode(opened.validation, words)


def _encode(shards: list[WordStore], words: Vocabulary) -> TokenStream:
    stream, *rest = [shard.encode(words) for shard in shards]
    for more in rest:
        stream = stream.join(more)
    return stream


def _first(stream: TokenStream, most: int | None) -> TokenStream:
    return stream if most is None or most >= len(stream) else stream.select(np.arange(most))


def _load_model(ctx: StageContext, stage: str) -> KeyboardLM:
    return export.load_model(ctx.run.input(stage, "model.safetensors"), ctx.config.model)


def _training_result(model: KeyboardLM, curve: pretrain_core.TrainingCurve) -> dict:
    last = curve.points[-1]
    return {
        "parameters": parameter_count(model),
        "steps": last.step,
        "validation_loss": last.validation_loss,
        "validation_top1": last.validation_top1,
        "curve": tuple(point.model_dump(mode="json") for point in curve.points),
    }


def _save_json(ctx: StageContext, name: str, content: object) -> None:
    write_text(ctx.public / name, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _load_json(ctx: StageContext, stage: str, name: str) -> list:
    return json.loads(ctx.run.input(stage, name).read_text(encoding="utf-8"))


STAGES = Stages(
    functions={
        function.__name__: function
        for function in (
            ingest_public,
            ingest_private,
            pretrain,
            discover,
            build_vocabulary,
            adapt,
            plan,
            fine_tune,
            audit,
            ab_test,
            decide,
            report,
            publish,
        )
    },
    spends={
        "discover": StageSpend(planned=planned_discovery_spend, inputs=("ingest_public", "ingest_private")),
        "fine_tune": StageSpend(planned=planned_training_spend, inputs=("ingest_private", "build_vocabulary", "adapt")),
    },
)
