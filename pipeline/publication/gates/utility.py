"""Gates on the utility of the launch's model to its users."""

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import Field

from evaluation.comparison.intervals import confidence_of
from evaluation.config import VARIETY_WORDS
from pipeline.launch.policy import PolicyConfig
from pipeline.publication.gates.gate import Part, at_least, finite, gate, none_of, rounded, show
from reports.disclosure.document import GateResult
from reports.disclosure.utility import OtherFeature


class UtilityEvidence(Part):
    """Results of the comparison on held-out devices."""

    top1_gain_low: float | None = Field(default=None, description="lower end of private minus starting point")
    top3_gain_low: float | None = None
    ngram_gain_low: float | None = Field(
        default=None, description="lower end of private minus public n-gram, alone and mixed, or constant: the lowest"
    )
    new_word_top3_low: float | None = Field(
        default=None, description="lower end of top-3 recall where a discovered word is typed; None if never"
    )
    variety_private: float | None = Field(
        default=None, description="different words suggested first and rightly, expected in a fixed number of words"
    )
    variety_public: float | None = Field(default=None, description="the same of the public n-gram on public text")
    session_words: int | None = Field(
        default=None, description="typed by all kinds of typists; 0: not asked for, no layout, or noisy"
    )
    judged_words: int | None = Field(default=None, description="typed under the arms that decide")
    broken_margins: tuple[str, ...] | None = Field(default=None, description="missed margins of simulated typing")
    missing_metrics: tuple[str, ...] | None = Field(default=None, description="metrics that have no interval")
    worse_than_champion: tuple[str, ...] | None = Field(
        default=None, description="metrics that are clearly worse than the users' model, or were not compared"
    )
    attempt: int | None = Field(default=None, description="attempt number on these held-out devices")
    confidence: float | None = Field(default=None, description="confidence of the gates' intervals")
    broken_typists: tuple[str, ...] | None = Field(default=None, description="metrics on which typists contradict")
    launched_for: tuple[str, ...] | None = Field(default=None, description="its features, the main one first")
    others: dict[str, OtherFeature] | None = Field(default=None, description="evidence on the further features")


def of_utility(evidence: UtilityEvidence, policy: PolicyConfig) -> Iterator[GateResult]:
    """Yield gates on gains on held-out devices, and on metrics of typing that must not get worse.

    A property of the model is one gate; a metric that judges a feature is a gate of that feature. One that fails holds
    the launch for all its features, as they share one model and one spend.
    """
    features = tuple(_by_feature(evidence))
    for each in features:
        yield _attempts(evidence, each)
        yield _champion(each)
    yield at_least(
        "utility",
        "gain in top-1 recall",
        evidence.top1_gain_low,
        policy.min_top1_gain,
        "lower end of the interval, private minus starting point",
        strictly=True,
    )
    yield at_least(
        "top3_guardrail",
        "loss of top-3 recall",
        evidence.top3_gain_low,
        0.0 - policy.max_top3_loss,  # not -0.0
        "lower end of the interval, private minus starting point",
    )
    yield at_least(
        "ngram",
        "top-1 recall beside what needs no training",
        evidence.ngram_gain_low,
        policy.min_ngram_gain,
        "lower end of the interval, private minus the best of an n-gram of the same public text, that n-gram mixed "
        "with the starting point and, without an evaluation budget, the words that people type most, always",
    )
    if policy.min_new_word_top3 is not None:
        yield at_least(
            "new_words",
            "discovered words among the suggestions",
            evidence.new_word_top3_low,
            policy.min_new_word_top3,
            "lower end of the interval of top-3 recall where a discovered word is typed",
        )
    yield at_least(
        "variety",
        "different right suggestions",
        evidence.variety_private,
        None if evidence.variety_public is None else policy.min_variety * evidence.variety_public,
        f"expected number of different words that stood first and were typed, in {VARIETY_WORDS} typed words,",
    )
    for each in features:
        if evidence.session_words != 0 or each.broken_margins is not None:
            yield _typing(evidence, each)
    if evidence.session_words != 0:
        yield none_of(
            "typists",
            "simulated typing, all kinds of typists",
            evidence.broken_typists,
            "no kind of typist contradicts another or is clearly worse off",
        )


@dataclass(frozen=True)
class _FeatureFindings:
    """Evidence on one feature; ``suffix`` and ``of`` distinguish its gates from those of others."""

    attempt: int | None
    broken_margins: tuple[str, ...] | None
    missing_metrics: tuple[str, ...] | None
    worse_than_champion: tuple[str, ...] | None
    suffix: str = ""
    of: str = ""


def _by_feature(evidence: UtilityEvidence) -> Iterator[_FeatureFindings]:
    """Yield the evidence of each feature of the launch file; missing evidence fails its gates."""
    main, *others = evidence.launched_for or ("",)
    of = f" ({main})" if others else ""
    yield _judged(None if evidence.launched_for is None else evidence, "", of)
    for name in others:
        yield _judged((evidence.others or {}).get(name), f"_{name}", f" ({name})")


def _judged(stated: UtilityEvidence | OtherFeature | None, suffix: str, of: str) -> _FeatureFindings:
    if stated is None:
        return _FeatureFindings(None, None, None, None, suffix, of)
    return _FeatureFindings(
        stated.attempt, stated.broken_margins, stated.missing_metrics, stated.worse_than_champion, suffix, of
    )


def _champion(judged: _FeatureFindings) -> GateResult:
    """Gate on the baseline: no metric may be clearly worse than with the users' model, simulated or not.

    Without a published model the gate passes.
    """
    title = f"against the users' model{judged.of}"
    otherwise = "no metric is clearly worse than with the users' model, if there is one"
    return none_of(f"champion{judged.suffix}", title, judged.worse_than_champion, otherwise)


def _attempts(evidence: UtilityEvidence, judged: _FeatureFindings) -> GateResult:
    """Gate on repeated attempts: later ones on the same held-out devices need intervals of higher confidence."""
    attempt, confidence = judged.attempt, evidence.confidence
    needed = confidence_of(attempt) if attempt is not None and attempt > 0 else None
    passed = finite(confidence) and finite(needed) and confidence >= needed
    said = rounded(confidence, needed, passed=passed)
    text = (
        f"attempt {show(attempt)} on these held-out devices against the users' model: intervals at {said}, at least "
        f"{rounded(needed, needed, passed=True)} needed"
    )
    title = f"luck over repeated attempts{judged.of}"
    return gate(f"attempts{judged.suffix}", title, confidence, needed, passed, text)


def _typing(evidence: UtilityEvidence, judged: _FeatureFindings) -> GateResult:
    broken, missing = judged.broken_margins, judged.missing_metrics
    told = evidence.session_words is not None and evidence.judged_words is not None
    if broken is not None and missing is not None and told:
        broken = (*broken, *(f"{name}: could not be estimated" for name in missing))
    else:
        broken = None
    # Without simulated typing, recall must not be worse, for every feature.
    what = "recall" if evidence.session_words == 0 and not evidence.judged_words else "simulated typing"
    title = f"{what}, against the starting point{judged.of}"
    return none_of(f"typing{judged.suffix}", title, broken, f"no metric of {what} breaks its margin")
