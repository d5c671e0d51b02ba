"""The arms of a launch's comparison: public models, the launch's own, the users' baselines and, in a simulation, an arm
without privacy.

All arms share one vocabulary: the launch's, followed by the words that only the baselines have.
"""

import copy
import logging
from dataclasses import replace

import numpy as np

from evaluation.arms.arm import Constant, Mixture, NextWord, PublicNGram, neural, translated
from evaluation.arms.history import WithHistory
from evaluation.comparison.compare import Entrants
from evaluation.config import HISTORY_WEIGHT, NGRAM_ORDER
from federated.config.mechanism import MechanismConfig
from federated.rounds.rule import RoundRule
from federated.train import TrainingData, Workplace, fine_tune
from pipeline.ground.errors import PermanentError
from pipeline.launch.config import LaunchConfig
from pipeline.publication.champion import Champion
from pipeline.releases.evaluation import EVALUATION
from pipeline.releases.release import asked_for
from pipeline.stages.ab_inputs import ComparisonInputs
from pretrain.files import remove_folder
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.ngrams.counted import CountedNGram
from pretrain.ngrams.ngram import NGram
from pretrain.randomness.noise import seeded_key
from pretrain.text import vocabulary as vocabularies

NON_PRIVATE, PUBLIC_MIXTURE, CONSTANT = "non_private", "public_mixture", "constant"
# A mechanism must have some noise; this much is far below the last digit of a weight.
_NEXT_TO_NONE = 1e-9
# Without noise there is no reason to clip tightly; without any bound a few devices would dominate the others.
_LOOSER = 4.0

_log = logging.getLogger(__name__)


def gather(inputs: ComparisonInputs, config: LaunchConfig, work: Workplace) -> Entrants:
    """Build all arms of a comparison: fit the public ones, and train the arm without privacy.

    Args:
      work: its private folder, from which all files are deleted afterwards.
    """
    grown, device = inputs.grown, work.runtime.device
    network = neural(inputs.network, device=device)
    public = PublicNGram(NGram.fit(inputs.public, grown, NGRAM_ORDER, work.directory))
    start = neural(inputs.start, device=device)
    private, beside = shipped(config, start, network, inputs.counts)
    # Private training must beat the strongest model that public text alone gives.
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
    if not EVALUATION.asked(config):  # With an evaluation budget, its words would be a release of their own.
        ours[CONSTANT] = Constant.fit(inputs.store.encode(grown, "validation"), grown)
        pairs.append(("private", CONSTANT))
    pairs += [("private", other) for other in beside]
    if config.ab_test.non_private_upper_bound:
        ours[NON_PRIVATE] = neural(without_privacy(inputs, config, work), device=device)
        pairs.append(("private", NON_PRIVATE))
    champions, both = inputs.champions, grown
    for champion in champions.values():
        both = vocabularies.extend(both, champion.words.words, len(champion.words))
    # The history cache is inside the mask: it must not remember words outside the arm's vocabulary.
    wide = {name: translated(arm, grown, both) for name, arm in ours.items()} if len(both) > len(grown) else ours
    theirs = {name: translated(as_arm(champion, device), champion.words, both) for name, champion in champions.items()}
    last = tuple(("private", name) for name in theirs)
    only = {name: tuple(each.feature for each in inputs.baselines if each.arm == name) for name in theirs}
    return Entrants({**wide, **theirs}, (*pairs, *last), both, len(inputs.base), len(grown), last, only)


def as_arm(champion: Champion, device: str) -> NextWord:
    """Return the arm of a published bundle: network, counts, or their mixture."""
    parts: list[NextWord] = [] if champion.network is None else [neural(champion.network, device=device)]
    parts += [] if champion.counts is None else [PublicNGram(champion.counts)]
    return Mixture(*parts) if len(parts) == 2 else parts[0]


def shipped(
    config: LaunchConfig, start: NextWord, network: NextWord, counts: CountedNGram | None
) -> tuple[NextWord, dict[str, NextWord]]:
    """Return the arm that would ship, ``private``, and the launch's other models, by name."""
    if counts is None:
        return network, {}
    alone, model = PublicNGram(counts), asked_for(config.counts).model
    if model == "counts":
        return alone, {}
    if model == "start-mixture":
        return Mixture(start, alone), {"counts": alone}
    # Training must beat the counts alone.
    beside: dict[str, NextWord] = {"counts": alone, "start_and_counts": Mixture(start, alone)}
    mixture = Mixture(network, alone)
    return (mixture, {"network": network} | beside) if model == "mixture" else (network, beside | {"mixture": mixture})


def without_privacy(inputs: ComparisonInputs, config: LaunchConfig, work: Workplace) -> KeyboardLM:
    """Repeat the launch's fine-tuning with negligible noise and a looser clip norm, without canaries.

    Not private at all: only for a declared simulation, which has no private text. The model and its checkpoints
    stay in the stage's private folder and are deleted as soon as they are in memory.

    Raises:
      PermanentError: the population is not a simulation.
    """
    if not config.private_text.simulated:
        raise PermanentError(f"ab_test.non_private_upper_bound: not for source {config.private_text.source!r}")
    assert inputs.mechanism is not None, "open_inputs loads it if the launch file asks for this arm"
    words, store = inputs.grown, inputs.store
    # Training changes a model in place.
    model, devices = copy.deepcopy(inputs.begun), store.encode(words, "train")
    folder = work.directory / ".non_private"
    runtime = work.runtime.model_copy(update={"evaluate_every_rounds": config.mechanism.rounds, "workers": 1})
    quiet = replace(inputs.mechanism, noise_multiplier=_NEXT_TO_NONE)
    done = fine_tune(
        model,
        TrainingData(devices, np.zeros(len(devices), dtype=bool), store.encode(words, "validation")),
        RoundRule(loosened(config.mechanism), config.seed, seeded_key(config.seed), quiet),
        config.local_training,
        config.server,
        replace(work, directory=folder, runtime=runtime),
    )
    remove_folder(folder)
    _log.info("without privacy, simulation only: %d rounds done, the model is not kept", done.rounds)
    return model


def loosened(mechanism: MechanismConfig) -> MechanismConfig:
    """Return a mechanism with the same rounds and cohorts, negligible noise, and a loose clip norm."""
    changes = {
        "noise_multiplier": _NEXT_TO_NONE,
        "clip_norm": _LOOSER * mechanism.clip_norm,
        "adaptive_clipping": None,
        "secagg": None,
    }
    return mechanism.model_copy(update=changes)
