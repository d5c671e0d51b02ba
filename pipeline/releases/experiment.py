"""The live experiment under a budget: one Gaussian release of sums over devices of every split, after approval."""

import math

from pipeline.launch.config import LaunchConfig
from pipeline.launch.policy import ExperimentConfig
from pipeline.ledger.spend import Spend
from pipeline.releases.release import Outlook, Release, Stated, asked_for, gaussian
from reports.disclosure.releases import LiveExperiment

STAGE = "experiment"
_LIMITS = (
    "In a live experiment under a budget, each device counts as at most a few words at its own rates, so heavy typists "
    "weigh less, and the logs show nothing before they decide."
)


def _noise_multiplier(experiment: ExperimentConfig) -> float:
    assert experiment.noise_multiplier is not None, "the experiment has no noise"
    return experiment.noise_multiplier


def live(rho: float, delta: float) -> Spend:
    """Spend of the release; a device of any split may be in the experiment."""
    return gaussian(rho, delta, "live experiment").model_copy(update={"split": "every"})


def _spend(config: LaunchConfig, _: Outlook | Stated) -> Spend:
    return live(asked_for(config.experiment).rho, config.mechanism.delta)


def _needs(config: LaunchConfig, devices: int) -> tuple[str, ...]:
    from evaluation.live.noisy import least_devices  # numpy is slow to import

    experiment = asked_for(config.experiment)
    noise_multiplier, share = _noise_multiplier(experiment), experiment.share
    least = least_devices(noise_multiplier, experiment.days)
    if share * devices >= least:
        return ()
    return (
        f"experiment.noise_multiplier: {noise_multiplier:g} hides an arm of fewer than {least} devices, and share "
        f"{share:g} of {devices}+ is about {math.floor(share * devices)}; lower it, or raise experiment.share",
    )


def _block(config: LaunchConfig) -> LiveExperiment:
    from evaluation.noisy.questions import MOST_WORDS, clip_norm  # numpy is slow to import

    experiment = asked_for(config.experiment)
    return LiveExperiment(
        rho=experiment.rho,
        epsilon=live(experiment.rho, config.mechanism.delta).epsilon,
        noise_multiplier=_noise_multiplier(experiment),
        clip_norm=clip_norm(typed=True),
        most_words=int(MOST_WORDS),
        days=experiment.days,
    )


def _says(config: LaunchConfig) -> str:
    from evaluation.noisy.questions import MOST_WORDS

    experiment = asked_for(config.experiment)
    return (
        f"Gaussian noise, multiplier {_noise_multiplier(experiment):g}, one release of sums over devices after the "
        f"last of {experiment.days} days of a live experiment on {experiment.share:.2%} of devices, after approval; "
        f"each device counts as at most {MOST_WORDS:g} words; the logs train nothing"
    )


EXPERIMENT = Release(
    stage=STAGE,
    name="live_experiment",
    block="experiment",
    asked=lambda config: config.experiment is not None and config.experiment.noise_multiplier is not None,
    says=_says,
    planned=_spend,
    paid=_spend,
    neighbour="events in the live experiment, not logged",
    output=lambda config, whole: "the noisy sums of the live experiment",
    split="every",
    limits=lambda config: (_LIMITS,),
    certain=True,
    needs=_needs,
    by_file=_block,
    disclosed=lambda config, results: _block(config),
    make="federated.counts.bounded_sum:make",
    keeps=("released.json",),
    audit="pipeline.experiments.audit:audited",
    proves=("logs", "sum", "digits"),
    audited_by=STAGE,
)
