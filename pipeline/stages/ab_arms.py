"""The arms of a launch's comparison: public ones, this launch's, what users have and, in a simulation, no privacy.

All arms speak one vocabulary: the launch's, followed by the words that only what users have knows.
"""

import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from evaluation.arms.arm import Mixture, NextWord, PublicNGram, neural, translated
from evaluation.arms.history import WithHistory
from evaluation.comparison.compare import Entrants
from evaluation.config import HISTORY_WEIGHT, NGRAM_ORDER
from federated.config.mechanism import MechanismConfig
from federated.rounds.rule import RoundRule
from federated.train import TrainingData, Workplace, fine_tune
from pipeline.ground.errors import PermanentError
from pipeline.publication.champion import Champion, fetched, trained_on
from pipeline.publication.registry import Champions, PublishedModel, published_before
from pipeline.releases.release import asked_for
from pipeline.run import artifacts
from pipeline.run.stage import StageContext
from pretrain import vocabulary as vocabularies
from pretrain.model import KeyboardLM
from pretrain.ngrams.counted import CountedNGram
from pretrain.ngrams.ngram import NGram
from pretrain.randomness.noise import seeded_key
from reports.disclosure.utility import EarlierLaunch

CHAMPION, NON_PRIVATE, PUBLIC_MIXTURE = "champion", "non_private", "public_mixture"
# A mechanism has to have some noise; this much is far below the last digit of a weight.
_NEXT_TO_NONE = 1e-9
# Without noise there is no reason to clip tightly; without any bound a few devices would lead the rest.
_LOOSER = 4.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class UsersHave:
    """Baseline of a feature: the version that its users have without this launch.

    Attributes:
      arm: its name in the comparison; features whose users have the same bundle share one.
      left_out: why it is no arm; empty if it is one.
      earlier: what the launch that made it disclosed; None where that does not say it all.
    """

    feature: str
    published: PublishedModel
    arm: str
    left_out: str
    earlier: EarlierLaunch | None = None


def gather(
    ctx: StageContext, before: Callable[[StageContext], Champions] = published_before
) -> tuple[Entrants, tuple[UsersHave, ...]]:
    """Load, fit and, for the arm without privacy, train what a launch is compared with; and what users have.

    Raises:
      PermanentError: a champion's bundle is damaged.
      ServiceUnavailable: MLflow does not answer.
    """
    grown, device = artifacts.vocabulary(ctx, "build_vocabulary"), ctx.config.runtime.device
    sizes = len(artifacts.vocabulary(ctx, "ingest_public")), len(grown)
    network, counts = neural(artifacts.model(ctx, "fine_tune"), device=device), artifacts.counts(ctx)
    public = PublicNGram(NGram.fit(artifacts.public_streams(ctx, grown)[0], grown, NGRAM_ORDER, ctx.private))
    start = neural(artifacts.model(ctx, "adapt"), device=device)
    private, beside = _shipped(ctx, start, network, counts)
    # The strongest that public text gives for nothing is what private training has to beat.
    ours: dict[str, NextWord] = {
        "start": start,
        "ngram": public,
        PUBLIC_MIXTURE: Mixture(start, public),
        "private": private,
        "ngram_history": WithHistory(public, HISTORY_WEIGHT),
        "private_history": WithHistory(private, HISTORY_WEIGHT),
        **beside,
    }
    pairs = [("private", other) for other in ("start", PUBLIC_MIXTURE, "ngram")]
    pairs.append(("private_history", "ngram_history"))
    pairs += [("private", other) for other in beside]
    if ctx.config.ab_test.non_private_upper_bound:
        ours[NON_PRIVATE] = neural(without_privacy(ctx), device=device)
        pairs.append(("private", NON_PRIVATE))
    had, champions = _champions(ctx, before(ctx))
    both = grown
    for champion in champions.values():
        both = vocabularies.extend(both, champion.words.words, len(champion.words))
    # History inside: a cache must not remember words that its arm does not know.
    wide = {name: translated(arm, grown, both) for name, arm in ours.items()} if len(both) > len(grown) else ours
    theirs = {name: translated(as_arm(champion, device), champion.words, both) for name, champion in champions.items()}
    last = tuple(("private", name) for name in theirs)
    only = {name: tuple(each.feature for each in had if each.arm == name) for name in theirs}
    return Entrants({**wide, **theirs}, (*pairs, *last), both, *sizes, last, only), had


def _champions(ctx: StageContext, published: Champions) -> tuple[tuple[UsersHave, ...], dict[str, Champion]]:
    """Baseline of each feature, and those baselines that may be arms, by name."""
    if not published:
        _log.info("nothing was published before, so there is no champion")
    had: list[UsersHave] = []
    champions: dict[str, Champion] = {}
    for feature, each in published.items():
        same = next((one for one in had if _bundle(one.published) == _bundle(each)), None)
        if same is not None:
            had.append(UsersHave(feature, each, same.arm, same.left_out, same.earlier))
            continue
        champion = fetched(ctx, each)
        unfair = left_out(champion.devices, ctx.run.result("ingest_private"))
        arm = CHAMPION if feature == ctx.config.feature else f"{CHAMPION}_{feature}"
        had.append(UsersHave(feature, each, arm, unfair, champion.earlier))
        if unfair:
            _log.warning("the champion of %s is left out of the comparison: %s", feature, unfair)
        else:
            champions[arm] = champion
    return tuple(had), champions


def _bundle(published: PublishedModel) -> tuple[str, str]:
    return published.launch_id, published.bundle_sha256


def as_arm(champion: Champion, device: str) -> NextWord:
    """Arm made of an earlier publication: network, counts, or both mixed."""
    parts: list[NextWord] = [] if champion.network is None else [neural(champion.network, device=device)]
    parts += [] if champion.counts is None else [PublicNGram(champion.counts)]
    return Mixture(*parts) if len(parts) == 2 else parts[0]


def left_out(theirs: tuple[str, str] | None, ingested: dict) -> str:
    """Why a champion must not be an arm on this launch's held-out devices; empty if it may.

    Guarantee: no arm has trained on a device that it is measured on. Launches on one population and split hold
    out the same devices, and another population's devices are others, as the ledger sees to.

    Args:
      theirs: population and split that the champion trained on; None if it does not say.
      ingested: result of this launch's ``ingest_private``.
    """
    if theirs is None:
        return "its disclosure does not say which devices it trained on, so they may be held out here"
    same_population = theirs[0] == ingested["population"]
    if same_population and theirs != trained_on(ingested):
        return f"it trained on population {theirs[0]!r} under another split, so on devices that may be held out here"
    return ""


def _shipped(
    ctx: StageContext, start: NextWord, network: NextWord, counts: CountedNGram | None
) -> tuple[NextWord, dict[str, NextWord]]:
    """The arm that would ship, ``private``, and what else the launch made, by name."""
    if counts is None:
        return network, {}
    alone, model = PublicNGram(counts), asked_for(ctx.config.counts).model
    if model == "counts":
        return alone, {}
    if model == "start-mixture":
        return Mixture(start, alone), {"counts": alone}
    # What counts give without training is what training has to beat.
    beside: dict[str, NextWord] = {"counts": alone, "start_and_counts": Mixture(start, alone)}
    mixture = Mixture(network, alone)
    return (mixture, {"network": network} | beside) if model == "mixture" else (network, beside | {"mixture": mixture})


def without_privacy(ctx: StageContext) -> KeyboardLM:
    """The launch's fine-tuning again with no noise to speak of and a looser clip norm, without canaries.

    Not private, at all: only for a declared simulation, where nobody's text is at stake. The model and its
    checkpoints stay in the stage's private folder and are deleted as soon as they are in memory.

    Raises:
      PermanentError: the population is not a simulation.
    """
    config = ctx.config
    if not config.private_text.simulated:
        raise PermanentError(f"ab_test.non_private_upper_bound: not for source {config.private_text.source!r}")
    words, store = artifacts.vocabulary(ctx, "build_vocabulary"), artifacts.store(ctx)
    model, devices = artifacts.model(ctx, "adapt"), store.encode(words, "train")
    folder = ctx.private / ".non_private"
    runtime = config.runtime.model_copy(update={"evaluate_every_rounds": config.mechanism.rounds, "workers": 1})
    quiet = replace(artifacts.mechanism(ctx.run), noise_multiplier=_NEXT_TO_NONE)
    done = fine_tune(
        model,
        TrainingData(devices, np.zeros(len(devices), dtype=bool), store.encode(words, "validation")),
        RoundRule(loosened(config.mechanism), config.seed, seeded_key(config.seed), quiet),
        config.local_training,
        config.server,
        Workplace(folder, runtime, on_round=artifacts.progress(ctx)),
    )
    shutil.rmtree(folder)
    _log.info("without privacy, simulation only: %d rounds done, the model is not kept", done.rounds)
    return model


def loosened(mechanism: MechanismConfig) -> MechanismConfig:
    """The same rounds and devices, next to no noise, and a clip norm that hardly bites."""
    changes = {
        "noise_multiplier": _NEXT_TO_NONE,
        "clip_norm": _LOOSER * mechanism.clip_norm,
        "adaptive_clipping": None,
        "secagg": None,
    }
    return mechanism.model_copy(update=changes)
