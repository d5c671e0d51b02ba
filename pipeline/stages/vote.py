"""Stage ``vote``: which public sentences are like what devices type, where the launch asks them."""

import numpy as np

from federated.accounting.composition import compose
from federated.votes import release
from federated.votes.clusters import GROUPS, group
from pipeline.covered import spends
from pipeline.stage import StageContext, StageResult
from pipeline.stages import artifacts
from pretrain import selection
from pretrain.files import atomic
from reports.disclosure.guarantee import ReleasedVotes


class Vote(StageResult):
    """The release of votes; None where the launch asks for none, and then nothing was spent."""

    votes: ReleasedVotes | None


def vote(ctx: StageContext) -> Vote:
    """One Gaussian release of all train devices' votes, and how often each public sentence is taken for them.

    Raises:
      ValueError: too little public text to make groups of; before anything is released.
      ArithmeticError: the two accountants differ; before anything is released.
    """
    config = ctx.config.vote
    if config is None:
        return Vote(votes=None)
    delta = ctx.config.mechanism.delta
    loss = compose([config.rho], [delta])
    words = artifacts.vocabulary(ctx, "ingest_public")
    public, _ = artifacts.public_streams(ctx, words)
    model = artifacts.model(ctx, "pretrain")
    with ctx.before_devices():
        groups = group(public, model.embedding.detach().double().cpu().numpy(), GROUPS, ctx.config.seed)
    devices = artifacts.store(ctx).encode(words, "train")
    released_K = release.released_votes(devices, groups, config.noise_multiplier, ctx.noise_key)
    weight_S = release.importance(released_K, groups.nearest(public.tokens_N), config.noise_multiplier)
    with atomic(ctx.public / artifacts.SELECTION) as temporary, temporary.open("wb") as file:
        np.save(file, selection.copies(weight_S, ctx.config.seed))
    return Vote(
        votes=ReleasedVotes(
            noise_multiplier=config.noise_multiplier,
            clip_norm=release.CLIP_NORM,
            groups=len(released_K),
            effective_share=selection.effective_share(weight_S),
            rho=config.rho,
            epsilon=loss.epsilon[delta],
        ),
        spend=spends.votes(config.rho, delta),
    )
