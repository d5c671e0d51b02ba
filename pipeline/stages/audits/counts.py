"""What the audit of counts reads: text and key of the launch that counted, and what it released."""

import numpy as np

from evaluation.audit.released.counts import Asked, counts_audit
from evaluation.audit.verdict import Verdict
from federated.counts.release import CLIP_NORM
from pipeline.run import artifacts
from pipeline.run.stage import StageContext
from pipeline.stages.count import asked_of_devices


def audited(ctx: StageContext) -> tuple[Verdict, ...]:
    """Verdicts on the counts that a launch released, in the context of its stage ``count``."""
    config, words = ctx.config.counts, artifacts.vocabulary(ctx, "build_vocabulary")
    assert config is not None, "nothing was counted"
    start_weight = ctx.run.result("count")["counts"]["start_weight"]
    cells = asked_of_devices(ctx, words, artifacts.public_streams(ctx, words)[0], start_weight)
    devices = artifacts.store(ctx).encode(words, "train")
    return counts_audit(
        np.load(ctx.private / artifacts.RELEASED),
        map(devices.owner, range(len(devices))),
        Asked(cells.context_K, cells.weight_U, len(words)),
        config.noise_multiplier,
        CLIP_NORM,
        ctx.noise_key,
    )
