"""Limits on launches under a policy that covers every use of private text."""

from evaluation.config import EvaluationConfig
from pipeline.launch.policy.config import ExperimentConfig, PolicyConfig


def require_coverable(
    policy: PolicyConfig, evaluation: EvaluationConfig | None, experiment: ExperimentConfig | None
) -> None:
    """See that a launch that promises to cover everything can.

    Raises:
      ValueError: with field, value and fix.
    """
    if policy.cover_everything and evaluation is None:
        raise ValueError(
            "policy.cover_everything: true, but held-out devices are evaluated without noise; add the block "
            "evaluation with a noise_multiplier"
        )
    if policy.cover_everything and experiment is not None:
        # A bucket's counts have no bound on what one device adds, so no noise here could cover them.
        raise ValueError(
            f"experiment.share: {experiment.share:g}, but policy.cover_everything is true, and what keyboards log of "
            "an experiment is under no guarantee: a bucket's counts bound no device; remove the block experiment, or "
            "set cover_everything to false, and the report lists the logs as a use that is not covered"
        )
