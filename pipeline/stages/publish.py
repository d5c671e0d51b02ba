"""Stage ``publish``: bundle, parity check, registration and the move of the alias."""

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np

from pipeline.errors import PermanentError
from pipeline.registry import Registry, model_name, promote
from pipeline.stage import StageContext, StageResult
from pretrain import corpus, export, vocabulary
from pretrain.files import sha256, write_bytes, write_text
from pretrain.model import KeyboardLM, sentence_rows
from pretrain.vocabulary import Vocabulary
from pretrain.writing import truecasing

_PARITY_ROWS = 64


class Publish(StageResult):
    """What was registered, or why nothing was."""

    published: bool
    reason: str
    registered_model: str | None = None
    version: int | None = None
    alias: str | None = None
    parity_max_difference: float | None = None
    files: tuple[str, ...] = ()


def publish(ctx: StageContext) -> Publish:
    """Export, check, register, promote. A hold publishes nothing and says why.

    Raises:
      ArithmeticError: the exported model does not compute what the model computes.
    """
    decision = ctx.run.result("decide")
    if decision["decision"] != "launch":
        return Publish(published=False, reason=f"held: {'; '.join(decision['reasons'])}")
    bundle = ctx.public / "bundle"
    difference = build_bundle(ctx, bundle)
    registry = Registry(ctx.settings)
    trained = ctx.run.result("fine_tune")
    tags = {
        "tacit.launch": ctx.run.launch_id,
        "bundle.sha256": sha256(bundle / "bundle.json"),
        "report.sha256": ctx.run.result("report")["disclosure_sha256"],
        "privacy.unit": "device",
        "privacy.rho": f"{trained['rho']:.6g}",
        "privacy.epsilon": f"{trained['epsilon']:.6g}",
        "privacy.delta": f"{trained['delta']:.3g}",
        "reviewers": ", ".join(ctx.config.reviewers) or "none: the automatic gates alone decide",
    }
    version = registry.register(ctx.config, ctx.run.launch_id, bundle, tags)
    promote(registry, ctx.config, version)
    return Publish(
        published=True,
        reason="every gate passed",
        registered_model=model_name(ctx.config.locale, ctx.config.feature),
        version=version,
        alias="champion",
        parity_max_difference=difference,
        files=tuple(sorted(f"bundle/{path.name}" for path in bundle.iterdir())),
    )


def build_bundle(ctx: StageContext, bundle: Path) -> float:
    """Write the bundle folder whole; returns the largest logit difference of the float32 export."""
    words = vocabulary.load(ctx.run.input("build_vocabulary", "vocabulary.json"))
    model = export.load_model(ctx.run.input("fine_tune", "model.safetensors"), ctx.config.model)
    rows_RT = _parity_rows(ctx, words)
    with tempfile.TemporaryDirectory(prefix=".bundle-", dir=bundle.parent) as folder:
        made = Path(folder) / "bundle"
        made.mkdir()
        vocabulary.save(words, made / "vocabulary.json")
        usual = corpus.usual_forms(ctx.run.input("ingest_public", "corpus"))
        truecasing.save(truecasing.of_words(usual, words.words), made / "truecase.json")
        export.export_onnx(model, made / "model.onnx")
        exact = export.parity(model, made / "model.onnx", rows_RT)
        export.quantise(made / "model.onnx", made / "model.int8.onnx")
        small = export.parity(model, made / "model.int8.onnx", rows_RT, tolerance=None)
        write_bytes(made / "disclosure.json", ctx.run.input("report", "disclosure.json").read_bytes())
        write_text(made / "bundle.json", _about(ctx, model, made, exact, small))
        shutil.rmtree(bundle, ignore_errors=True)
        made.rename(bundle)
    return exact.max_abs_logit_diff


def _parity_rows(ctx: StageContext, words: Vocabulary) -> np.ndarray:
    shards = corpus.open_corpus(ctx.run.input("ingest_public", "corpus")).validation
    if not shards:
        raise PermanentError("publish: the public corpus has no validation text to check the export with")
    return sentence_rows(shards[0].encode(words).tokens_N, ctx.config.pretrain.sequence_words)[0][:_PARITY_ROWS]


def _about(ctx: StageContext, model: KeyboardLM, made: Path, exact: export.Parity, small: export.Parity) -> str:
    content = {
        "launch_id": ctx.run.launch_id,
        "locale": ctx.config.locale,
        "feature": ctx.config.feature,
        "vocabulary_size": model.vocabulary_size,
        "parity": {
            "model.onnx": {"max_logit_difference": exact.max_abs_logit_diff, "top1_agreement": exact.top1_agreement},
            "model.int8.onnx": {
                "max_logit_difference": small.max_abs_logit_diff,
                "top1_agreement": small.top1_agreement,
            },
        },
        "files": {path.name: sha256(path) for path in sorted(made.iterdir())},
    }
    return json.dumps(content, indent=2, sort_keys=True) + "\n"
