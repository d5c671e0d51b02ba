"""Stage ``count``: optional noisy counts of words and pairs on devices, and the model made from them."""

from pathlib import Path
from typing import Any

from evaluation.config import NGRAM_ORDER
from federated.accounting.composition import compose
from federated.config.counts import START_WEIGHT, CountsConfig
from federated.counts import cells as counted_cells
from federated.counts.cells import Cells
from federated.counts.posterior import LEAST_PAIR, counted_ngram
from federated.counts.release import CLIP_NORM, released_counts
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.releases.counts import counts
from pipeline.run import artifacts
from pipeline.run.run_dir import StageRecord
from pipeline.run.stage import StageContext, StageResult
from pretrain.files import PRIVATE, write_array
from pretrain.ngrams import counted
from pretrain.ngrams.ngram import NGram
from reports.disclosure.releases import Counts


class Count(StageResult):
    """The release of counts; None, without a spend, if the launch asks for none."""

    counts: Counts | None


def count(ctx: StageContext) -> Count:
    """Release noisy counts of all train devices in one Gaussian release, and update the public n-gram with them.

    Raises:
      RefusedUntouched: the model would be too large to load; before anything is released.
      ArithmeticError: the two accountants differ; before anything is released.
    """
    config = ctx.config.counts
    if config is None:
        return Count(counts=None)
    delta = ctx.config.mechanism.delta
    loss = compose([config.rho], [delta])
    words, base = artifacts.vocabulary(ctx, "build_vocabulary"), artifacts.vocabulary(ctx, "ingest_public")
    public, _ = artifacts.public_streams(ctx, words)
    frequency_N, start_weight = artifacts.frequencies(ctx), begun_with(ctx)
    cells = counted_cells.choose(public, words, config.contexts, frequency_N=frequency_N, start_weight=start_weight)
    fitted = NGram.fit(public, words, NGRAM_ORDER, ctx.private)
    with ctx.before_devices():
        counted.require_loadable(fitted, len(cells.context_K) * min(len(words), round(1 / LEAST_PAIR)))
    devices = artifacts.store(ctx).encode(words, "train")
    released_U = released_counts(devices, cells, config.noise_multiplier, ctx.noise_key)
    write_array(ctx.private / artifacts.RELEASED, released_U, PRIVATE)  # for the audit
    model = counted_ngram(released_U, cells, fitted, len(base), config.noise_multiplier)
    counted.save(model, ctx.public / artifacts.COUNTS)
    return _stated(config, cells, delta, loss.epsilon[delta])


def _stated(config: CountsConfig, cells: Cells, delta: float, epsilon: float) -> Count:
    stated = Counts(
        noise_multiplier=config.noise_multiplier,
        clip_norm=CLIP_NORM,
        start_weight=cells.start_weight,
        cells=len(cells),
        contexts=len(cells.context_K),
        rho=config.rho,
        epsilon=epsilon,
    )
    return Count(counts=stated, spend=counts(config.rho, delta))


def remade(ctx: StageContext, record: StageRecord, released: Path) -> dict[str, Any]:
    """The cells of public text, and the launch file's loss."""
    config, delta = ctx.config.counts, ctx.config.mechanism.delta
    if config is None:
        return {}
    words = artifacts.vocabulary(ctx, "build_vocabulary")
    public, _ = artifacts.public_streams(ctx, words)
    frequency_N = artifacts.frequencies(ctx)
    cells = counted_cells.choose(public, words, config.contexts, frequency_N=frequency_N, start_weight=START_WEIGHT)
    return _stated(config, cells, delta, compose([config.rho], [delta]).epsilon[delta]).model_dump(mode="json")


def begun_with(ctx: StageContext) -> float:
    """Weight of a sentence's start in this launch's release, from its reservation.

    Guarantee: noise is a function of the key, so a retry under another weight would add the same noise to other sums,
    and the two releases together would reveal the difference of the sums.
    """
    reserved = PrivacyLedger.of(ctx.settings).reserved(ctx.run.launch_id, ctx.stage)
    return START_WEIGHT if reserved is None else float(reserved.names("start_weight"))
