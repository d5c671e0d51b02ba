"""Gates over what the launch is worth to people who type."""

from collections.abc import Iterator

from evaluation.comparison.intervals import confidence_of
from pipeline.gates.answers import at_least, finite, gate, none_of, show
from pipeline.gates.evidence import Evidence
from pipeline.policy.config import PolicyConfig
from reports.disclosure.document import GateResult


def of_utility(evidence: Evidence, policy: PolicyConfig) -> Iterator[GateResult]:
    """Gains on held-out devices, and nothing that gets worse for people who type."""
    yield _attempts(evidence)
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
    if policy.min_ngram_gain is not None:
        yield at_least(
            "ngram",
            "top-1 recall beside public n-grams",
            evidence.ngram_gain_low,
            policy.min_ngram_gain,
            "lower end of the interval, private minus an n-gram of the same public text or that n-gram mixed with the "
            "starting point, whichever is better",
        )
    if policy.min_new_word_top3 is not None:
        yield at_least(
            "new_words",
            "discovered words among the suggestions",
            evidence.new_word_top3_low,
            policy.min_new_word_top3,
            "lower end of the interval of top-3 recall where a discovered word is typed",
        )
    if policy.min_distinct_first_words is not None:
        yield at_least(
            "variety",
            "different first suggestions",
            evidence.distinct_private,
            policy.min_distinct_first_words,
            "number of different words that stood first on held-out text",
        )
    if evidence.session_words != 0 or evidence.broken_margins is not None:
        yield _typing(evidence)
    if evidence.session_words != 0:
        yield none_of(
            "typists",
            "simulated typing, whoever types",
            evidence.broken_typists,
            "no kind of typist contradicts another or is clearly worse off",
        )


def _attempts(evidence: Evidence) -> GateResult:
    """Intervals of a later attempt on the same held-out devices must be surer, or one of many would pass by luck."""
    attempt, confidence = evidence.attempt, evidence.confidence
    needed = confidence_of(attempt) if attempt is not None and attempt > 0 else None
    passed = finite(confidence) and finite(needed) and confidence >= needed
    text = (
        f"attempt {show(attempt)} on these held-out devices against what users have: intervals at "
        f"{show(confidence)}, at least {show(needed)} needed"
    )
    return gate("attempts", "luck over repeated attempts", confidence, needed, passed, text)


def _typing(evidence: Evidence) -> GateResult:
    broken = evidence.broken_margins
    if broken is not None and evidence.session_words is not None and evidence.missing_metrics is not None:
        broken = (*broken, *(f"{name}: could not be estimated" for name in evidence.missing_metrics))
    else:
        broken = None
    # Under a budget nothing is typed again: then it is recall that must not be worse.
    what = "recall" if evidence.session_words == 0 else "simulated typing"
    title = f"{what}, against the starting point and what users have"
    return none_of("typing", title, broken, f"no metric of {what} breaks its margin")
