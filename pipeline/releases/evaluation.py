"""Evaluation on held-out devices under a budget: one Gaussian release of sums, for gates and headline metrics."""

import json
from typing import TYPE_CHECKING

from evaluation.audit.verdict import Verdict
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.entries import Spend
from pipeline.releases.release import Outlook, Release, Stated, asked_for, gaussian, overflows
from pipeline.run.second_run import differences
from pipeline.run.stage import StageContext
from reports.disclosure.releases import Evaluation

if TYPE_CHECKING:
    import numpy as np

RELEASED, VECTORS = "released.json", "vectors.npy"

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


def _audited(ctx: StageContext) -> tuple[Verdict, ...]:
    """Verdicts on the released sums over test devices."""
    import numpy as np

    from evaluation.audit.released.evaluation import evaluation_audit
    from evaluation.noisy.questions import MOST_WORDS, WORDS, Layout
    from pipeline.run import artifacts
    from pretrain.text.words import SENTENCE_END

    config, store = asked_for(ctx.config.evaluation), artifacts.store(ctx)
    kept = json.loads((ctx.private / RELEASED).read_text(encoding="utf-8"))
    released_M = np.array(kept["sums"])
    figures = Verdict(
        "figures",
        "the comparison and the coverage follow from the released sums",
        "one part in 10^6",
        follows := _follows(ctx, released_M, len(store.devices("test"))),
        "" if follows else "the comparison states other figures than the released sums give",
    )
    texts = (store.words.owner(int(device)) for device in store.devices("test"))
    audited_sums = evaluation_audit(
        released_M,
        np.load(ctx.private / VECTORS),
        np.array([np.count_nonzero(tokens_N != SENTENCE_END) for tokens_N in texts]),
        len(released_M),
        Layout(()).weights[WORDS],
        MOST_WORDS,
        config.noise_multiplier,
        clip_norm(ctx.config),
        ctx.noise_key,
    )
    return *audited_sums, figures


def _follows(ctx: StageContext, released_M: "np.ndarray", devices: int) -> bool:
    """Decide the comparison again by the released sums; variety and phrases, of public text, are as it states them."""
    from evaluation.comparison.compare import Entrants, Rules
    from evaluation.comparison.results import Comparison
    from evaluation.noisy.compare import CHAMPION, OURS, RECALLS, judged, layout
    from pipeline.run import artifacts

    config, stated = ctx.config, ctx.run.result(ctx.stage)
    text = ctx.run.input(ctx.stage, "comparison.json").read_text(encoding="utf-8")
    compared = Comparison.from_json(text)
    others = [row.baseline for row in compared.table.differences if row.metric == RECALLS[0]]
    features_of: dict[str, list[str]] = {}
    for row in compared.verdicts:
        features_of.setdefault(row.baseline, []).append(row.feature)
    pairs, only = tuple((OURS, other) for other in others), {name: tuple(of) for name, of in features_of.items()}
    champions = tuple(pair for pair in pairs if pair[1].partition("_")[0] == CHAMPION)
    arms = Entrants({}, pairs, artifacts.vocabulary(ctx, "build_vocabulary"), 0, 0, champions, only)
    words = config.ab_test.session_words if typed(config) else 0
    asked = (config.features, config.locale, config.name, config.seed, config.ab_test.buckets, words)
    rules = Rules(*asked, confidence=compared.table.confidence)
    wanted = layout(arms, rules)
    if len(wanted) != len(released_M):
        return False
    noise_multiplier = asked_for(config.evaluation).noise_multiplier
    sums = wanted.read(released_M, noise_multiplier * wanted.clip_norm)
    again, covered = judged(arms, sums, rules, devices, compared.compose, compared.variety)
    ends = (None, None, None) if covered is None else (covered.value, covered.low, covered.high)
    said = tuple(stated[name] for name in ("coverage", "coverage_low", "coverage_high"))
    return not any(True for _ in differences(json.loads(text), json.loads(again.to_json()))) and not any(
        True for _ in differences(said, ends)
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
    keeps=(RELEASED, VECTORS),
    audit=_audited,
    proves=("devices", "sum", "digits", "figures"),
)
