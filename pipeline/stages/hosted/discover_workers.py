"""A local discovery by workers of several machines: each asks its part of a layer's devices.

As a program this module is one of those workers.
"""

from functools import partial

import numpy as np
import torch

from discovery import discover as trie
from discovery.config import TrieConfig
from discovery.device.typed import TypedWords
from discovery.device.votes import AddUp, Share
from discovery.results import DiscoveryResult
from federated.workers import Worker
from pipeline.hosts import fence, gang
from pipeline.stage import StageContext
from pipeline.stages import artifacts
from pipeline.stages.hosted.workers import main, share_out
from pretrain import text

_STAGE = "discover"
_INPUTS = (("ingest_public", "vocabulary.json"),)


def ask_together(ctx: StageContext) -> None:
    """Ask devices of all layers, by workers of as many hosts as the launch wants; every layer is finished then.

    Guarantee: that of ``trie.discover``. What passes between hosts is masked (``federated.wire.masked_sum``), so that
    the votes of one host's devices, among which fewer people hide than among all, are seen by no one.

    Raises:
      PermanentError, OSError: as of ``share_out``; the stage, run again, goes on after the last finished layer.
    """
    with ctx.before_devices():
        gang.require_hosts(ctx.config.runtime.hosts, ctx.settings.hosts)
    for stage, name in _INPUTS:
        ctx.run.input(stage, name)
    share_out(ctx)


def discover(
    ctx: StageContext, config: TrieConfig, typed: TypedWords, processes: int | Share, add_up: AddUp | None = None
) -> DiscoveryResult:
    """The launch's discovery, by this process with others or by its part of it."""
    base = artifacts.vocabulary(ctx, "ingest_public")
    return trie.discover(
        typed,
        known_words=frozenset(base.words),
        alphabet=text.alphabet(ctx.config.locale),
        config=config,
        key=ctx.noise_key,
        directory=ctx.private / "layers",
        progress=artifacts.progress(ctx),
        processes=processes,
        add_up=add_up,
    )


def _share(ctx: StageContext, process: Worker) -> None:
    def add_up(votes_d: np.ndarray) -> np.ndarray:
        return process.sum(torch.from_numpy(votes_d), np.zeros(0, dtype=np.int64))[0].numpy()

    assert isinstance(ctx.config.discovery, TrieConfig)
    typed = TypedWords.gather(artifacts.store(ctx).typed_words("train"), ctx.private)
    # Where hosts see different folders, they would ask devices of different layers.
    process.agree(len(list((ctx.private / "layers").glob("*layer-*"))), "finished layers")
    writing = partial(fence.standing, ctx.private, "gang", ctx.attempt)
    discover(ctx, ctx.config.discovery, typed, Share(process.rank, process.size, add_up, writing))


if __name__ == "__main__":
    main(_STAGE, _share, "cpu")
