"""The arms of a launch's comparison: public ones, this launch's, what users have and, in a simulation, no privacy.

All arms speak one vocabulary: the launch's, followed by the words that only what users have knows.
"""

import logging
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from evaluation.arms import arm as arms
from evaluation.arms import ngram
from evaluation.arms.arm import NextWord
from evaluation.arms.history import WithHistory
from federated.config.mechanism import MechanismConfig
from federated.noise import seeded_key
from federated.train import fine_tune
from pipeline.config import SIMULATIONS
from pipeline.errors import PermanentError
from pipeline.registry import Published, Registry, model_name
from pipeline.stage import StageContext
from pipeline.stages import artifacts
from pretrain import vocabulary as vocabularies
from pretrain.graph import load_graph
from pretrain.model import KeyboardLM
from pretrain.vocabulary import Vocabulary

CHAMPION, NON_PRIVATE = "champion", "non_private"
# A mechanism has to have some noise; this much is far below the last digit of a weight.
_NEXT_TO_NONE = 1e-12
# Without noise there is no reason to clip tightly; without any bound a few devices would lead the rest.
_LOOSER = 4.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entrants:
    """What is compared.

    Attributes:
      arms: by name, all in ``vocabulary``; the first is the baseline.
      pairs: ``(candidate, baseline)``.
      vocabulary: the launch's words, ``own_words`` of them, then those that only the champion knows.
      champion: None where nothing was published before.
    """

    arms: Mapping[str, NextWord]
    pairs: tuple[tuple[str, str], ...]
    vocabulary: Vocabulary
    own_words: int
    champion: Published | None


def gather(ctx: StageContext) -> Entrants:
    """Load, fit and, for the arm without privacy, train what a launch is compared with.

    Raises:
      PermanentError: the champion's bundle is damaged.
      ServiceUnavailable: MLflow does not answer.
    """
    config, grown = ctx.config.ab_test, artifacts.vocabulary(ctx, "build_vocabulary")
    private = arms.neural(artifacts.model(ctx, "fine_tune"))
    public = arms.PublicNGram(ngram.NGram.fit(artifacts.public_streams(ctx, grown)[0], grown, config.ngram_order))
    own: dict[str, NextWord] = {
        "start": arms.neural(artifacts.model(ctx, "adapt")),
        "ngram": public,
        "pretrained": arms.neural(artifacts.model(ctx, "pretrain"), len(grown)),
        "private": private,
    }
    pairs = [("private", other) for other in ("start", "pretrained", "ngram")]
    if config.history_weight:
        own |= {
            "ngram_history": WithHistory(public, config.history_weight),
            "private_history": WithHistory(private, config.history_weight),
        }
        pairs.append(("private_history", "ngram_history"))
    if config.non_private_upper_bound:
        own[NON_PRIVATE] = arms.neural(without_privacy(ctx))
        pairs.append(("private", NON_PRIVATE))
    found, theirs = _champion(ctx)
    if found is None or theirs is None:
        return Entrants(own, tuple(pairs), grown, len(grown), None)
    model, words = theirs
    both = vocabularies.extend(grown, words.words, len(words))
    # History inside: a cache must not remember words that its arm does not know.
    wide = {name: arms.translated(arm, grown, both) for name, arm in own.items()} if len(both) > len(grown) else own
    entrants = {**wide, CHAMPION: arms.translated(arms.neural(model), words, both)}
    return Entrants(entrants, (*pairs, ("private", CHAMPION)), both, len(grown), found)


def without_privacy(ctx: StageContext) -> KeyboardLM:
    """The launch's fine-tuning again with no noise to speak of and a looser clip norm, without canaries.

    Not private, at all: only for a declared simulation, where nobody's text is at stake. The model and its
    checkpoints stay in the stage's private folder and are deleted as soon as they are in memory.

    Raises:
      PermanentError: the population is not a simulation.
    """
    config = ctx.config
    if config.private_text.source not in SIMULATIONS:
        raise PermanentError(f"ab_test.non_private_upper_bound: not for source {config.private_text.source!r}")
    words, store = artifacts.vocabulary(ctx, "build_vocabulary"), artifacts.store(ctx)
    model, devices = artifacts.model(ctx, "adapt"), store.encode(words, "train")
    folder = ctx.private / ".non_private"
    done = fine_tune(
        model,
        devices,
        np.zeros(len(devices), dtype=bool),
        store.encode(words, "validation"),
        loosened(config.mechanism),
        config.local_training,
        config.server,
        config.runtime.model_copy(update={"evaluate_every_rounds": config.mechanism.rounds, "workers": 1}),
        config.seed,
        seeded_key(config.seed),
        folder,
        noise_maker=replace(artifacts.mechanism(ctx.run), noise_multiplier=_NEXT_TO_NONE),
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


def _champion(ctx: StageContext) -> tuple[Published | None, tuple[KeyboardLM, Vocabulary] | None]:
    """What users of this locale and feature have, as registered, with its own vocabulary."""
    registry, name = Registry(ctx.settings), model_name(ctx.config.locale, ctx.config.feature)
    found = registry.champion_before(name, ctx.run.launch_id)
    if found is None:
        _log.info("%s: nothing was published before, so there is no champion to compare with", name)
        return None, None
    with tempfile.TemporaryDirectory(prefix=".champion-", dir=ctx.private) as folder:
        bundle = registry.fetch(found, Path(folder))
        model, words = load_graph(bundle / "model.onnx"), vocabularies.load(bundle / "vocabulary.json")
    _log.info("%s: compared with version %d of launch %s", name, found.version, found.launch_id)
    return found, (model, words)
