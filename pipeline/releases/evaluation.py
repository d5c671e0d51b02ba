"""Evaluation on held-out devices under a budget: one Gaussian release of sums, for gates and headline metrics."""

from pipeline.launch.config import LaunchConfig
from pipeline.ledger.entries import Spend
from pipeline.releases.release import Outlook, Release, Stated, asked_for, gaussian, overflows
from reports.disclosure.releases import Evaluation

_EVALUATED = (
    "With an evaluation budget there are no slices, and a test device counts as at most a few words, so heavy typists "
    "weigh less. Training is validated on public text."
)
_TYPED = (
    "With an evaluation budget, typing is simulated by one kind of typist, and only under the models that decide the "
    "launch."
)


def typed(config: LaunchConfig) -> bool:
    """Return whether typing is simulated: asked for, and on a known keyboard."""
    from evaluation.keyboard.layouts import has_keyboard  # numpy is slow to import

    return config.ab_test.session_words > 0 and has_keyboard(config.locale)


def clip_norm(config: LaunchConfig) -> float:
    """Clip norm of a test device's vector."""
    from evaluation.noisy import questions

    return questions.clip_norm(typed=typed(config))


def evaluated(rho: float, delta: float) -> Spend:
    """Spend of the release about test devices; training devices lose nothing to it."""
    return gaussian(rho, delta, "evaluation").model_copy(update={"split": "test"})


def _spend(config: LaunchConfig, _: Outlook | Stated) -> Spend:
    return evaluated(asked_for(config.evaluation).rho, config.mechanism.delta)


def _needs(config: LaunchConfig, test: int) -> tuple[str, ...]:
    from evaluation.noisy.questions import fewest_devices
    from federated.counts.bounded_sum import MOST_DEVICES

    noise_multiplier = asked_for(config.evaluation).noise_multiplier
    needed = fewest_devices(noise_multiplier, config.private_text.max_words_per_device, typed=typed(config))
    if test < needed:
        return (
            f"evaluation.noise_multiplier: {noise_multiplier:g} is too much for fewer than {needed} test devices, "
            f"and there are {test}+; lower it, or raise private_text.test_fraction",
        )
    return overflows("evaluation", test, MOST_DEVICES, "lower private_text.test_fraction")


def _block(config: LaunchConfig) -> Evaluation:
    from evaluation.noisy.questions import MOST_WORDS  # numpy is slow to import

    rho = asked_for(config.evaluation).rho
    return Evaluation(
        rho=rho,
        epsilon=evaluated(rho, config.mechanism.delta).epsilon,
        noise_multiplier=asked_for(config.evaluation).noise_multiplier,
        clip_norm=clip_norm(config),
        most_words=int(MOST_WORDS),
    )


def _says(config: LaunchConfig) -> str:
    from evaluation.noisy.questions import MOST_WORDS

    noise_multiplier = asked_for(config.evaluation).noise_multiplier
    beside = "coverage of words and simulated typing" if typed(config) else "coverage of words"
    return (
        f"Gaussian noise, multiplier {noise_multiplier:g}, one release of sums over test devices, {beside} included; "
        f"each device counts as at most {MOST_WORDS:g} words. Validation devices are not read: training is validated "
        "on public text"
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
    limits=lambda config: (_EVALUATED, _TYPED) if typed(config) else (_EVALUATED,),
    certain=True,
    needs=_needs,
    by_file=_block,
    disclosed=lambda config, results: _block(config),
    make="federated.counts.bounded_sum:make",
    keeps=("released.json", "vectors.npy"),
    audit="pipeline.stages.audits.evaluation:audited",
    proves=("devices", "sum", "digits", "figures"),
)
