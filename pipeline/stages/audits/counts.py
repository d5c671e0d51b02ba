"""Inputs of the audit of counts: text and key of the launch that made them, and its release."""

import numpy as np

from evaluation.audit.released.counts import CountCells, counts_audit
from evaluation.audit.verdict import Verdict
from evaluation.config import NGRAM_ORDER
from federated.counts import cells as counted_cells
from federated.counts.posterior import counted_ngram
from federated.counts.release import CLIP_NORM
from pipeline.run import artifacts
from pipeline.run.stage import StageContext
from pretrain.ngrams import counted
from pretrain.ngrams.counted import CountedNGram
from pretrain.ngrams.ngram import NGram


def audited(ctx: StageContext) -> tuple[Verdict, ...]:
    """Verdicts on the counts that a launch released, in the context of its stage ``count``."""
    config, words = ctx.config.counts, artifacts.vocabulary(ctx, "build_vocabulary")
    assert config is not None, "the launch has no counts"
    start_weight = ctx.run.result("count")["counts"]["start_weight"]
    public, base = artifacts.public_streams(ctx, words)[0], artifacts.vocabulary(ctx, "ingest_public")
    frequency_N = artifacts.frequencies(ctx)
    cells = counted_cells.choose(public, words, config.contexts, frequency_N=frequency_N, start_weight=start_weight)
    devices, released_U = artifacts.store(ctx).encode(words, "train"), np.load(ctx.private / artifacts.RELEASED)
    fitted = NGram.fit(public, words, NGRAM_ORDER, ctx.run.private("audit_releases"))
    return counts_audit(
        released_U,
        map(devices.owner, range(len(devices))),
        CountCells(cells.context_K, cells.weight_U, len(words)),
        config.noise_multiplier,
        CLIP_NORM,
        ctx.noise_key,
        _arrays(counted.load(ctx.run.input("count", artifacts.COUNTS))),
        _arrays(counted_ngram(released_U, cells, fitted, len(base), config.noise_multiplier)),
    )


def _arrays(model: CountedNGram) -> tuple[np.ndarray, ...]:
    return model.factor_V, model.row_V, model.key_G, model.pair_G, model.trust_K
