"""Inputs of the audit of an evaluation with a budget: held-out devices, their vectors, and the release."""

import json

import numpy as np

from evaluation.audit.released.evaluation import evaluation_audit
from evaluation.audit.verdict import Verdict
from evaluation.comparison.compare import Entrants, Rules
from evaluation.comparison.results import Comparison
from evaluation.noisy.compare import OURS, RECALLS, judged, layout
from evaluation.noisy.questions import MOST_WORDS, WORDS, Layout
from pipeline.releases.evaluation import clip_norm, typed
from pipeline.releases.release import asked_for
from pipeline.run import artifacts
from pipeline.run.second_run import differences
from pipeline.run.stage import StageContext
from pipeline.stages.ab_inputs import CHAMPION
from pipeline.stages.kept_release import RELEASED, VECTORS
from pretrain.text.words import SENTENCE_END


def audited(ctx: StageContext) -> tuple[Verdict, ...]:
    """Verdicts on the released sums over test devices, in the context of stage ``ab_test``."""
    config, store = ctx.config.evaluation, artifacts.store(ctx)
    assert config is not None, "evaluation has no budget"
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


def _follows(ctx: StageContext, released_M: np.ndarray, devices: int) -> bool:
    """Decide the comparison again by the released sums; variety and phrases, of public text, are as it states them."""
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
