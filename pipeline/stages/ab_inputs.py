"""Inputs of stage ``ab_test``: the launch's own artifacts, held-out devices, and the users' baselines.

The stage opens them once, before it reads a device. All later steps take this value, and open no file.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from evaluation.noisy.compare import CHAMPION
from federated.devices.store import DeviceStore
from federated.mechanisms import Mechanism
from pipeline.publication.champion import Champion, fetched, trained_on
from pipeline.publication.registry import Champions, PublishedModel
from pipeline.run import artifacts
from pipeline.run.stage import StageContext
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.ngrams.counted import CountedNGram
from pretrain.text.vocabulary import TokenStream, Vocabulary
from pretrain.text.words import WordStore
from reports.disclosure.utility import EarlierLaunch

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Baseline:
    """Baseline of a feature: the published version that its users have now.

    Attributes:
      arm: its name in the comparison; features whose users have the same bundle share one.
      left_out: reason why it is not an arm; empty if it is one.
      earlier: disclosure of the launch that made it; None if incomplete.
    """

    feature: str
    published: PublishedModel
    arm: str
    left_out: str
    earlier: EarlierLaunch | None = None


@dataclass(frozen=True)
class ComparisonInputs:
    """Models, text and devices of one comparison.

    Attributes:
      base: public words.
      grown: public words, then the launch's discovered words.
      start: the public model with the new words.
      begun: the model that private training begins with: ``start``, or that moved by counts.
      network: the model after private training.
      counts: the model made from counts; None if the launch has no counts.
      public: public train text in ids of ``grown``.
      validation: public text that no arm was trained on.
      mechanism: the mechanism of the launch's training; None without the arm without privacy.
      store: the device store. Private.
      baselines: published version of each feature.
      champions: baselines that are arms, by name.
    """

    base: Vocabulary
    grown: Vocabulary
    start: KeyboardLM
    begun: KeyboardLM
    network: KeyboardLM
    counts: CountedNGram | None
    public: TokenStream
    validation: WordStore
    mechanism: Mechanism | None
    store: DeviceStore
    baselines: tuple[Baseline, ...]
    champions: Mapping[str, Champion]

    @property
    def published(self) -> Champions:
        """Published version of each feature."""
        return {each.feature: each.published for each in self.baselines}


def open_inputs(ctx: StageContext, before: Callable[[StageContext], Champions]) -> ComparisonInputs:
    """Open all inputs of a launch's comparison.

    Args:
      before: returns the published version of each feature before this launch.

    Raises:
      PermanentError: a champion's bundle is damaged.
      ServiceUnavailable: MLflow does not answer.
      StageInputMissing: an artifact or the store is unfinished, damaged or gone.
    """
    config = ctx.config
    grown, base = artifacts.vocabulary(ctx, "build_vocabulary"), artifacts.vocabulary(ctx, "ingest_public")
    network, counts = artifacts.model(ctx, "fine_tune"), artifacts.counts(ctx)
    public = artifacts.public_streams(ctx, grown)[0]
    start, begun = artifacts.model(ctx, "adapt"), artifacts.training_start(ctx)
    mechanism = artifacts.mechanism(ctx.run) if config.ab_test.non_private_upper_bound else None
    baselines, champions = _champions(ctx, before(ctx))
    store = artifacts.store(ctx)
    validation = artifacts.validation_text(ctx)
    return ComparisonInputs(
        base,
        grown,
        start,
        begun,
        network,
        counts,
        public,
        validation,
        mechanism,
        store,
        baselines,
        champions,
    )


def _champions(ctx: StageContext, published: Champions) -> tuple[tuple[Baseline, ...], dict[str, Champion]]:
    """Return the baseline of each feature, and those baselines that are arms, by name."""
    if not published:
        _log.info("no earlier publication, so there is no champion")
    baselines: list[Baseline] = []
    champions: dict[str, Champion] = {}
    for feature, each in published.items():
        same = next((one for one in baselines if _bundle(one.published) == _bundle(each)), None)
        if same is not None:
            baselines.append(Baseline(feature, each, same.arm, same.left_out, same.earlier))
            continue
        champion = fetched(ctx, each)
        unfair = left_out(champion.devices, ctx.run.result("ingest_private"))
        arm = CHAMPION if feature == ctx.config.feature else f"{CHAMPION}_{feature}"
        baselines.append(Baseline(feature, each, arm, unfair, champion.earlier))
        if unfair:
            _log.warning("the champion of %s is left out of the comparison: %s", feature, unfair)
        else:
            champions[arm] = champion
    return tuple(baselines), champions


def _bundle(published: PublishedModel) -> tuple[str, str]:
    return published.launch_id, published.bundle_sha256


def left_out(theirs: tuple[str, str] | None, ingested: dict) -> str:
    """Reason why a champion must not be an arm on this launch's held-out devices; empty if it may.

    Guarantee: no arm has trained on a device that it is evaluated on. Launches on one population and split hold
    out the same devices, and the ledger ensures that different populations have different devices.

    Args:
      theirs: population and split of the champion's training; None if its disclosure does not state them.
      ingested: result of this launch's ``ingest_private``.
    """
    if theirs is None:
        return "its disclosure does not say which devices it trained on, so they may be held out here"
    same_population = theirs[0] == ingested["population"]
    if same_population and theirs != trained_on(ingested):
        return f"it trained on population {theirs[0]!r} under another split, so on devices that may be held out here"
    return ""
