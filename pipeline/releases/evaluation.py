"""Sums over held-out devices under a budget: one Gaussian release, for gates and headlines alike."""

from evaluation.noisy.questions import CLIP_NORM, MOST_WORDS
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.spend import Spend
from pipeline.releases.release import Outlook, Release, Results, Stated, gaussian
from reports.disclosure.releases import Evaluation

_EVALUATED = (
    "Under the budget of evaluation there are no slices and no simulated typing, and a test device "
    "counts as at most a few words: what heavy typists would say weighs less. Training is watched on public text."
)


def evaluated(rho: float, delta: float) -> Spend:
    """The one release about held-out devices: who trains loses nothing to it."""
    return gaussian(rho, delta, "evaluation").model_copy(update={"split": "test"})


def _spend(config: LaunchConfig, _: Outlook | Stated) -> Spend:
    assert config.evaluation is not None, "it is not asked for"
    return evaluated(config.evaluation.rho, config.mechanism.delta)


def _disclosed(config: LaunchConfig, _: Results) -> Evaluation:
    assert config.evaluation is not None, "it is not asked for"
    rho = config.evaluation.rho
    return Evaluation(
        rho=rho,
        epsilon=evaluated(rho, config.mechanism.delta).epsilon,
        noise_multiplier=config.evaluation.noise_multiplier,
        clip_norm=CLIP_NORM,
        most_words=int(MOST_WORDS),
    )


def _says(config: LaunchConfig) -> str:
    assert config.evaluation is not None, "it is not asked for"
    return (
        f"Gaussian noise, multiplier {config.evaluation.noise_multiplier:g}, one release of sums over test devices, of "
        f"which each counts as at most {MOST_WORDS:g} words; words' coverage is among them. Validation devices are not "
        "read: training is watched on public text"
    )


EVALUATION = Release(
    stage="ab_test",
    name="evaluation",
    block="evaluation",
    asked=lambda config: config.evaluation is not None,
    says=_says,
    planned=_spend,
    paid=_spend,
    neighbour="what a test device adds to the evaluation",
    output=lambda config, whole: "",
    split="test",
    limits=lambda config: (_EVALUATED,),
    certain=True,
    disclosed=_disclosed,
)
