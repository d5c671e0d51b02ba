"""Stage ``publish``: bundle, parity checks, registration and the move of the alias."""

import json
import logging
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from evaluation import int8
from evaluation.comparison.results import ComposeSetting
from evaluation.int8 import Int8
from pipeline.ground.errors import PermanentError
from pipeline.launch import features as feature_settings
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.approvals import require_approved
from pipeline.publication.registry import Registry, nominate, promote, require_compared, void
from pipeline.run import artifacts
from pipeline.run.run_dir import RunDir, StageRecord
from pipeline.run.second_run import file_differences
from pipeline.run.stage import StageContext, StageResult
from pipeline.stages.report import disclosed, same_launch
from pipeline.telemetry.allowed import two_digits
from pretrain.dictionary import binary, combined
from pretrain.dictionary.content import Dictionary
from pretrain.dictionary.from_model import Arm, words_of
from pretrain.files import scratch, sha256, text_sha256, write_bytes, write_text
from pretrain.kernel.threads import one_torch_thread
from pretrain.model import export
from pretrain.model.keyboard_lm import KeyboardLM, sentence_rows
from pretrain.ngrams import counted
from pretrain.ngrams.counted import CountedNGram
from pretrain.text import corpus, vocabulary
from pretrain.text.vocabulary import Vocabulary
from pretrain.writing import truecasing
from pretrain.writing.truecasing import TypicalForm
from reports.disclosure.document import Disclosure
from reports.losses import up
from reports.render import CARD, model_card

_HELD_OUT_ROWS = 256
_SECONDS = {"float_seconds", "int8_seconds"}
# Files that a keyboard needs; the others describe the launch.
_OF_THE_MODEL = ("model.onnx", "vocabulary.json", "truecase.json", artifacts.COUNTS, feature_settings.WORD_SCORES)
_log = logging.getLogger(__name__)


class Publish(StageResult):
    """Registered versions, or the reason why there are none."""

    published: bool
    reason: str
    registered_model: str | None = None
    version: int | None = None
    versions: dict[str, int] = Field(default={}, description="version of each feature's registered model, by name")
    alias: str | None = None
    parity_max_difference: float | None = None
    int8: Int8 | None = None
    dictionary_words: int | None = None
    dictionary_of: str | None = Field(default=None, description="arm of the dictionary")
    files: tuple[str, ...] = ()
    registered_files: dict[str, str] = Field(default={}, description="digests of the registered model, its code too")


@dataclass(frozen=True)
class BundleInputs:
    """Content of a bundle, and public text to check its exported files with.

    Attributes:
      words: the launch's vocabulary.
      usual: typical forms of its words.
      arm: the models that ship: network, counts, or both.
      rows_RT: held-out public text.
      compose: thresholds for Smart Compose; empty without this feature.
      disclosed: text of ``disclosure.json``.
    """

    words: Vocabulary
    usual: Mapping[str, TypicalForm]
    arm: Arm
    rows_RT: np.ndarray
    compose: tuple[ComposeSetting, ...]
    disclosed: str


def publish(ctx: StageContext) -> Publish:
    """Export, check, register and promote the model; a held launch publishes nothing and states the reason.

    Raises:
      ReleaseRefused: the launch waits for a reviewer, was rejected, was rolled back, or another model was published
        since its comparison.
      ArithmeticError: an exported file differs from the model.
    """
    config, decision = ctx.config, ctx.run.result("decide")
    if decision["decision"] != "launch":
        return Publish(published=False, reason=f"held: {'; '.join(decision['reasons'])}")
    require_approved(config, ctx.run, PrivacyLedger.of(ctx.settings))
    inputs = open_inputs(ctx, ctx.run.input("report", "disclosure.json").read_text(encoding="utf-8"))
    compared, launch_id, bundle = ctx.run.result("ab_test"), ctx.run.launch_id, ctx.public / "bundle"
    about = build_bundle(inputs, config, launch_id, bundle)
    registry = Registry(ctx.settings)
    names = registry.names_of(config)
    require_compared(config, launch_id, compared, registry)
    name = names[config.feature]
    # A rewritten report of the same model is no second publication.
    about = _published_before(registry, name, launch_id, bundle) or about
    tags = registered_tags(config, launch_id, bundle)
    versions = {each: registry.register(config, launch_id, bundle, tags, feature) for feature, each in names.items()}
    # All features share one model, so it is registered for each before any alias moves.
    offer = nominate if config.tried_by else promote
    (alias,) = {offer(config, registry, each, version) for each, version in versions.items()}
    with scratch(ctx.private, "registered") as folder:
        registered = registry.files(name, versions[name], folder)
    _require_registered(bundle, registered)
    return Publish(
        published=True,
        reason="every gate passed" + (f", but {why}: never champion" if (why := void(config)) else ""),
        registered_model=name,
        version=versions[name],
        versions=versions,
        alias=alias,
        parity_max_difference=_furthest(about),
        int8=about["int8"],
        dictionary_words=about["dictionary_words"],
        dictionary_of=about["dictionary_of"],
        files=tuple(sorted(f"bundle/{path.name}" for path in bundle.iterdir())),
        registered_files=registered,
    )


def open_inputs(ctx: StageContext, disclosed: str) -> BundleInputs:
    """Open all inputs of a launch's bundle.

    Args:
      disclosed: text of ``disclosure.json``.

    Raises:
      PermanentError: the public corpus has no validation text.
      StageInputMissing: an artifact is unfinished, damaged or gone.
    """
    config, words = ctx.config, artifacts.vocabulary(ctx, "build_vocabulary")
    counts = None if config.ships == "network" else artifacts.counts(ctx)
    folder = ctx.run.input("ingest_public", "corpus")
    held_out = corpus.open_corpus(folder).validation
    if not held_out:
        raise PermanentError("publish: the public corpus has no validation text to check the export with")
    rows_RT = sentence_rows(held_out[0].encode(words).tokens_N, config.pretrain.sequence_words)[0][:_HELD_OUT_ROWS]
    usual = truecasing.of_words(corpus.usual_forms(folder), words.words)
    usual |= truecasing.discovered(artifacts.added_words(ctx), artifacts.shown_words(ctx))
    network = None if config.ships == "counts" else artifacts.model(ctx, "fine_tune")
    compose: tuple[ComposeSetting, ...] = ()
    if "SC" in config.features:
        compose = feature_settings.compose_settings(ctx.run.input("ab_test", "comparison.json"))
    return BundleInputs(words, usual, Arm(network, counts), rows_RT, compose, disclosed)


def registered_tags(config: LaunchConfig, launch_id: str, bundle: Path) -> dict[str, str]:
    """Return the tags of a bundle in the registry; what they state of the loss is the bundled disclosure's."""
    loss = Disclosure.model_validate_json((bundle / "disclosure.json").read_bytes()).accounting
    return {
        "tacit.launch": launch_id,
        "tacit.population": config.population,
        "bundle.sha256": sha256(bundle / "bundle.json"),
        "report.sha256": sha256(bundle / "disclosure.json"),
        "privacy.unit": "device",
        "privacy.void": void(config) or "no",
        "privacy.loss": loss.total.sentence,
        "reviewers": ", ".join(config.reviewers) or "none: the automatic gates alone decide",
    }


def _published_before(registry: Registry, name: str, launch_id: str, bundle: Path) -> dict | None:
    """Restore the bundle that this launch registered before, if the model is the same; its ``bundle.json``, or None."""
    before = registry.of_launch(name, launch_id)
    if before is None or before.bundle_sha256 == sha256(bundle / "bundle.json"):
        return None
    with scratch(bundle.parent, "bundle") as folder:
        registered = registry.fetch(before, folder)
        then, now = (json.loads((place / "bundle.json").read_text(encoding="utf-8")) for place in (registered, bundle))
        if any(then["files"].get(name) != now["files"].get(name) for name in _OF_THE_MODEL):
            return None
        shutil.rmtree(bundle)
        registered.rename(bundle)
    _log.info("publish: already published, as version %d", before.version)
    return then


def _require_registered(bundle: Path, registered: Mapping[str, str]) -> None:
    """Check that MLflow returns the registered bundle.

    Raises:
      PermanentError: a file differs.
    """
    for path in sorted(bundle.iterdir()):
        if registered.get(f"data/bundle/{path.name}") != sha256(path):
            raise PermanentError(
                f"publish: MLflow returns {path.name} with other content; no file from it can be trusted"
            )


def build_bundle(inputs: BundleInputs, config: LaunchConfig, launch_id: str, bundle: Path) -> dict:
    """Write the bundle folder, and return the content of its ``bundle.json``."""
    words, usual, arm, disclosed = inputs.words, inputs.usual, inputs.arm, inputs.disclosed
    arm_name = config.counts.model if config.counts else "network"
    with scratch(bundle.parent, "bundle") as folder:
        made = folder / "bundle"
        made.mkdir()
        vocabulary.save(words, made / "vocabulary.json")
        truecasing.save(usual, made / "truecase.json")
        if arm.counts is not None:
            counted.save(arm.counts, made / artifacts.COUNTS)
        measured: dict[str, object]
        if arm.network is None:
            assert arm.counts is not None, "an arm has a part"
            measured = {"parity": {artifacts.COUNTS: _counts_parity(arm.counts, made, inputs.rows_RT)}, "int8": None}
        else:
            measured = _add_network(arm.network, made, bundle, inputs.rows_RT)
        write_text(made / "disclosure.json", disclosed)
        write_text(made / CARD, model_card(Disclosure.model_validate_json(disclosed)))
        dictionary = keyboard_dictionary(arm, words, usual, disclosed, arm_name)
        write_dictionary(dictionary, made / config.locale)
        with one_torch_thread():
            settings = feature_settings.write(config.features, arm, inputs.compose, made, config.ships)
        about = {
            "launch_id": launch_id,
            "locale": config.locale,
            "feature": config.feature,
            "features": settings,
            "ships": config.ships,
            "counts_bytes": 0 if arm.counts is None else (made / artifacts.COUNTS).stat().st_size,
            "vocabulary_size": arm.vocabulary_size,
            "dictionary_words": len(dictionary.words),
            "dictionary_of": arm_name,
            **measured,
            "files": {path.name: sha256(path) for path in sorted(made.iterdir())},
        }
        write_text(made / "bundle.json", json.dumps(about, indent=2, sort_keys=True) + "\n")
        shutil.rmtree(bundle, ignore_errors=True)
        made.rename(bundle)
    return about


def _furthest(about: Mapping[str, Any]) -> float:
    """Largest difference between exported files and the model, from ``bundle.json``."""
    (measured,) = about["parity"].values()
    return measured["max_probability_difference" if about["ships"] == "counts" else "max_logit_difference"]


def _add_network(model: KeyboardLM, made: Path, bundle: Path, rows_RT: np.ndarray) -> dict[str, object]:
    """Export the network, and a version with int8 weights if its quality suffices; return the measurements."""
    export.export_onnx(model, made / "model.onnx")
    exact = export.parity(model, made / "model.onnx", rows_RT)
    export.quantise(made / "model.onnx", made / "model.int8.onnx")
    small = _measured_before(bundle, made) or _rounded(
        int8.measure(model, made / "model.onnx", made / "model.int8.onnx", rows_RT)
    )
    if not small.shipped:
        _log.info("publish: model.int8.onnx is left out: %s", "; ".join(small.reasons))
        (made / "model.int8.onnx").unlink()
    agreement = {"max_logit_difference": exact.max_abs_logit_diff, "top1_agreement": exact.top1_agreement}
    return {"parity": {"model.onnx": agreement}, "int8": small.model_dump(mode="json")}


def _rounded(small: Int8) -> Int8:
    seconds = {name: two_digits(getattr(small, name)) for name in _SECONDS}
    return small.model_copy(update=seconds)


def _counts_parity(model: CountedNGram, made: Path, rows_RT: np.ndarray) -> dict[str, float]:
    """Largest difference between predictions of the exported counts and those of the compared model.

    Raises:
      ArithmeticError: there is a difference.
    """
    last_RK = rows_RT[:, : model.order - 1].astype(np.int64)
    ours, theirs = model.dense(last_RK), counted.load(made / artifacts.COUNTS).dense(last_RK)
    furthest = float(np.abs(ours - theirs).max())
    if furthest:
        raise ArithmeticError(f"{artifacts.COUNTS}: probabilities differ from the model by {furthest:g}; report this")
    return {"max_probability_difference": furthest, "top1_agreement": 1.0}


def _measured_before(bundle: Path, made: Path) -> Int8 | None:
    """Measurement of an unfinished earlier attempt, as times vary and a retry must give the same bundle."""
    if not (bundle / "bundle.json").exists():
        return None
    about = json.loads((bundle / "bundle.json").read_text(encoding="utf-8"))
    same = about["files"].get("model.onnx") == sha256(made / "model.onnx") and "int8" in about
    return Int8.model_validate(about["int8"]) if same else None


def keyboard_dictionary(
    arm: Arm, words: Vocabulary, usual: Mapping[str, TypicalForm], disclosed: str, name: str
) -> Dictionary:
    """Dictionary of the shipped model's words in their typical form, with the privacy statement in its header.

    Guarantee: a function of the bundle's files. Model, counts, vocabulary and disclosure are already released and
    accounted for, and the typical forms are public; so it is post-processing, and anyone can derive it again.

    Args:
      name: name of the arm, for the header.
    """
    stated = Disclosure.model_validate_json(disclosed)
    launch, loss = stated.launch, stated.accounting
    made_at = datetime.fromisoformat(launch.created_at)
    # LatinIME writes a region as en_US; HeliBoard reads any other tag unchanged.
    locale = re.sub(r"^([a-z]{2,3})-([A-Z]{2})$", r"\1_\2", launch.locale)
    numbers = {"epsilon": up(loss.bound), "delta": f"{loss.delta:.3g}"}
    if loss.total.rho is not None:
        numbers = {"rho": up(loss.total.rho, 4), **numbers}
    bound = launch.void or " ".join(f"{name} {value}" for name, value in numbers.items())
    attributes = {
        "dictionary": f"main:{locale.lower()}",
        "locale": locale,
        "description": f"Launch {launch.id}. Differential privacy of every device ({bound})",
        "date": str(int(made_at.timestamp())),
        "version": made_at.strftime("%Y%m%d"),
        "launch": launch.id,
        "arm": name,
        **({} if launch.void else numbers),
        "disclosure_sha256": text_sha256(disclosed),
    }
    with one_torch_thread():
        return Dictionary(attributes, words_of(arm, _written(words, usual)))


def _written(words: Vocabulary, usual: Mapping[str, TypicalForm]) -> Vocabulary:
    """Return the words as keyboards show them; words with the same typical form keep the model's form."""
    forms = [usual[word].form if word in usual else word for word in words.words]
    times = Counter(forms)
    return Vocabulary(tuple(form if times[form] == 1 else word for word, form in zip(words.words, forms, strict=True)))


def write_dictionary(dictionary: Dictionary, stem: Path) -> None:
    """Write ``LOCALE.combined`` and ``LOCALE.dict``, and read both back.

    Raises:
      ArithmeticError: a file does not hold the dictionary.
    """
    text, content = combined.to_text(dictionary), binary.to_bytes(dictionary)
    if combined.from_text(text) != dictionary or binary.from_bytes(content) != dictionary.as_keyboards_read_it():
        raise ArithmeticError(f"{stem.name}.dict: the written file reads back as another dictionary; report this")
    write_text(stem.with_name(f"{stem.name}.combined"), text)
    write_bytes(stem.with_name(f"{stem.name}.dict"), content)


def remade(ctx: StageContext, record: StageRecord, released: Path) -> dict[str, Any]:
    """The bundle of the released models, with the stated speed of int8."""
    if not record.result["published"]:
        return {}
    shutil.copytree(released / "bundle", ctx.public / "bundle")
    bundle = ctx.public / "bundle"
    inputs = open_inputs(ctx, (bundle / "disclosure.json").read_text(encoding="utf-8"))
    about = build_bundle(inputs, ctx.config, ctx.run.launch_id, bundle)
    made = {
        "parity_max_difference": _furthest(about),
        "dictionary_words": about["dictionary_words"],
        "dictionary_of": about["dictionary_of"],
        "files": sorted(f"bundle/{path.name}" for path in bundle.iterdir()),
    }
    if inputs.arm.network is not None:
        small = ctx.private / "model.int8.onnx"  # it may be left out of the bundle
        export.quantise(bundle / "model.onnx", small)
        again = int8.measure(inputs.arm.network, bundle / "model.onnx", small, inputs.rows_RT).model_dump(mode="json")
        # The judgement includes the times, which are as stated.
        judged = {name: about["int8"][name] for name in ("shipped", "reasons")}
        made["int8"] = {name: value for name, value in (again | judged).items() if name not in _SECONDS}
    return made


def exported_again(ctx: StageContext, record: StageRecord, run: RunDir) -> Iterator[str]:
    """Export the bundle again, with the recorded speed of int8, and compare."""
    if not record.result["published"]:
        return
    shutil.copytree(run.public("publish") / "bundle", ctx.public / "bundle")
    content = (ctx.public / "bundle" / "disclosure.json").read_text(encoding="utf-8")
    build_bundle(open_inputs(ctx, content), ctx.config, ctx.run.launch_id, ctx.public / "bundle")
    # A report may have been rewritten since; it must still state the same of the launch.
    then, now = Disclosure.model_validate_json(content), disclosed(run)
    yield from ("disclosure.json",) if now is None or not same_launch(then, now) else ()
    yield from file_differences(record, run, ctx.run)
