"""Inputs of the audit of an evaluation with a budget: held-out devices, their vectors, and the release."""

import json

import numpy as np

from evaluation.audit.released.evaluation import evaluation_audit
from evaluation.audit.verdict import Verdict
from evaluation.noisy.questions import MOST_WORDS, WORDS, Layout
from pipeline.releases.evaluation import clip_norm
from pipeline.run import artifacts
from pipeline.run.stage import StageContext
from pipeline.stages.kept_release import RELEASED, VECTORS
from pretrain.words import SENTENCE_END


def audited(ctx: StageContext) -> tuple[Verdict, ...]:
    """Verdicts on the released sums over test devices, in the context of stage ``ab_test``."""
    config, store = ctx.config.evaluation, artifacts.store(ctx)
    assert config is not None, "evaluation has no budget"
    released_M = np.array(json.loads((ctx.private / RELEASED).read_text(encoding="utf-8"))["sums"])
    typed = (store.words.owner(int(device)) for device in store.devices("test"))
    return evaluation_audit(
        released_M,
        np.load(ctx.private / VECTORS),
        np.array([np.count_nonzero(tokens_N != SENTENCE_END) for tokens_N in typed]),
        len(released_M),
        Layout(()).weights[WORDS],
        MOST_WORDS,
        config.noise_multiplier,
        clip_norm(ctx.config),
        ctx.noise_key,
    )
