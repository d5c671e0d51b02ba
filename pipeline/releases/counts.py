"""Noisy counts of words and pairs: one Gaussian release, beside training or in its place."""

from evaluation.audit.verdict import Verdict
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.entries import Spend
from pipeline.releases.release import Outlook, Release, Stated, asked_for, gaussian, overflows
from pipeline.run.stage import StageContext
from reports.disclosure.releases import Counts


def counts(rho: float, delta: float) -> Spend:
    """Spend of the release of counts."""
    return gaussian(rho, delta, "counts")


def _spend(config: LaunchConfig, _: Outlook | Stated) -> Spend:
    return counts(asked_for(config.counts).rho, config.mechanism.delta)


def _says(config: LaunchConfig) -> str:
    return f"Gaussian noise, multiplier {asked_for(config.counts).noise_multiplier:g}, one release"


def _needs(config: LaunchConfig, train: int) -> tuple[str, ...]:
    from federated.counts.bounded_sum import MOST_DEVICES

    return overflows("counts", train, MOST_DEVICES, "remove 'counts'")


def _limits(config: LaunchConfig) -> tuple[str, ...]:
    if config.trains:
        return (
            "Canaries are planted in training, not in the counts: only their noise protects the counts, and no attack "
            "here has tested it.",
        )
    return (
        "Nothing was trained on devices and no canary was planted: only their noise protects the counts. The noise "
        "was tested statistically; no attack here has tested it.",
    )


def _audited(ctx: StageContext) -> tuple[Verdict, ...]:
    """Verdicts on the counts that a launch released."""
    import numpy as np

    from evaluation.audit.released.counts import CountCells, counts_audit
    from evaluation.config import NGRAM_ORDER
    from federated.counts import cells as counted_cells
    from federated.counts.posterior import counted_ngram
    from federated.counts.release import CLIP_NORM
    from pipeline.run import artifacts
    from pretrain.ngrams import counted
    from pretrain.ngrams.counted import CountedNGram
    from pretrain.ngrams.ngram import NGram

    def arrays(model: CountedNGram) -> tuple[np.ndarray, ...]:
        return model.factor_V, model.row_V, model.key_G, model.pair_G, model.trust_K

    config, words = asked_for(ctx.config.counts), artifacts.vocabulary(ctx, "build_vocabulary")
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
        arrays(counted.load(ctx.run.input("count", artifacts.COUNTS))),
        arrays(counted_ngram(released_U, cells, fitted, len(base), config.noise_multiplier)),
    )


COUNTS = Release(
    stage="count",
    name="counts",
    block="counts",
    asked=lambda config: config.counts is not None,
    says=_says,
    planned=_spend,
    paid=_spend,
    limits=_limits,
    neighbour="counts replaced by zeros",
    output=lambda config, whole: "the noisy counts and every model made from them",
    needs=_needs,
    disclosed=lambda config, results: Counts.model_validate(results("count")["counts"]),
    make="federated.counts.bounded_sum:make",
    keeps=("released.npy",),
    audit=_audited,
    proves=("sum", "digits", "model"),
)
