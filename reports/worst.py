"""Main concerns about a launch, for its first page; fixed thresholds select them, so nobody can omit one."""

from collections.abc import Mapping
from typing import NamedTuple

from reports.disclosure.document import Disclosure
from reports.disclosure.releases import Evaluation
from reports.disclosure.utility import Utility
from reports.formats import ARMS, arm_name, change, metric_name, percent, verdict
from reports.losses import strength, up

# Top-3 recall of discovered words; below it they are of little use.
LEAST_SUGGESTED = 0.05
# Share of the OOV words on held-out devices that discovery found.
LEAST_COVERED = 0.05
# Different right first suggestions in a fixed number of words, as a share of the public starting point's or n-gram's.
LEAST_VARIETY = 0.5
# Share of the ten most frequent words among first suggestions, as a multiple of their share among typed words.
MOST_FREQUENT = 2.0
_OURS = "private"
# Metrics that users notice at once, and arms that use more data than this launch and are no baselines for it.
_NOTICED = (
    "keystroke_savings",
    "words_per_minute",
    "prate",
    "top1_recall",
    "top3_recall",
    "words_modified",
    "errors_left",
)
_NO_RIVALS = frozenset(("non_private", "private_history", "ngram_history", "network", "counts", "mixture"))


class Concern(NamedTuple):
    """A fact beyond its threshold.

    Attributes:
      text: the English sentence.
      key: selects its translation, which inserts the values.
      values: numbers, metrics and arms as the English sentence writes them.
    """

    text: str
    key: str
    values: Mapping[str, str]


# Each sentence; the front page of every other language translates them by their keys.
SENTENCES = {
    "collector_in_full": "Against the collector of its messages for {release}, a device has ε = {epsilon}, which is "
    "weak. The front page's number includes it in full, as shuffling among so few devices hides nobody.",
    "collector_hidden": "Against the collector of its messages for {release}, a device has ε = {epsilon}, which is "
    "weak. The front page's number assumes that the messages are shuffled.",
    "weak": "ε = {epsilon} of one device over all releases is weak: on its own it promises little.",
    "no_word": "Discovery added no word.",
    "coverage": "The discovered words cover only {share} of the typed words on held-out devices that were out of "
    "vocabulary before.",
    "never": "When a discovered word is typed, it is never among the three suggestions.",
    "seldom": "When a discovered word is typed, it is in only {share} of cases ({low} to {high}) among the three "
    "suggestions.",
    "variety": "In 300 typed words the model is right by only {ours} different words; {rival}: {theirs}.",
    "few_words": "The model leans on few words: ten of them are {predicted} of its first suggestions but {typed} of "
    "typed words.",
    "worse": "Clearly worse than {arm}: {metric}, {value} ({low} to {high}).",
    "keystrokes": "Suggestions cost users keystrokes: {share} more than without suggestions.",
}
# Names of METRICS and ARMS that stand in these sentences.
IN_SENTENCES = (*map(metric_name, _NOTICED), *(name for arm, name in ARMS.items() if arm not in {_OURS, *_NO_RIVALS}))


def _concern(key: str, **values: str) -> Concern:
    return Concern(SENTENCES[key].format_map(values), key, values)


def worst_facts(disclosure: Disclosure) -> list[str]:
    """Each fact beyond its threshold, in a sentence; empty if there is none."""
    return [concern.text for concern in main_concerns(disclosure)]


def main_concerns(disclosure: Disclosure) -> list[Concern]:
    """Each fact beyond its threshold; empty if there is none."""
    words, utility, total = disclosure.words, disclosure.utility, disclosure.accounting.total
    hidden = total.words is not None and total.words.how != "local"
    facts = [
        _concern("collector_hidden" if hidden else "collector_in_full", release=release.called, epsilon=up(epsilon))
        for release in disclosure.releases
        if (epsilon := release.against_server) is not None and strength(epsilon) == "weak"
    ]
    if not disclosure.launch.void and strength(disclosure.accounting.bound) == "weak":
        facts.append(_concern("weak", epsilon=up(disclosure.accounting.bound)))
    if words.words_added == 0:
        facts.append(_concern("no_word"))
    elif words.coverage is not None and words.coverage < LEAST_COVERED:
        facts.append(_concern("coverage", share=percent(words.coverage)))
    if utility is not None:
        noisy = disclosure.release(Evaluation) is not None
        facts += _suggested(utility, words.words_added, noisy) + _variety(utility) + _losses(utility)
    return facts


def _suggested(utility: Utility, words_added: int, noisy: bool) -> list[Concern]:
    row = utility.part("new_words", _OURS, "top3_recall")
    # Under noise, a share may be anything in its interval.
    if not words_added or row is None or (row.high if noisy else row.value) >= LEAST_SUGGESTED:
        return []
    if row.value == 0 and not noisy:
        return [_concern("never")]
    return [_concern("seldom", share=percent(row.value), low=percent(row.low), high=percent(row.high))]


def _variety(utility: Utility) -> list[Concern]:
    facts, of = list[Concern](), utility.variety
    rival = max((arm for arm in ("start", "ngram") if arm in of), key=lambda arm: of[arm], default=None)
    if _OURS in of and rival is not None and of[_OURS] < LEAST_VARIETY * of[rival]:
        facts.append(_concern("variety", ours=f"{of[_OURS]:.1f}", rival=arm_name(rival), theirs=f"{of[rival]:.1f}"))
    heads = [row for row in utility.head_words if (row.arm, row.words) == (_OURS, 10)]
    if heads and heads[0].typed > 0 and heads[0].predicted > MOST_FREQUENT * heads[0].typed:
        facts.append(_concern("few_words", predicted=percent(heads[0].predicted), typed=percent(heads[0].typed)))
    return facts


def _losses(utility: Utility) -> list[Concern]:
    """Metrics that are clearly worse than those of another model that users could have."""
    facts = []
    for metric in _NOTICED:
        worse = [
            row
            for row in utility.differences
            if row.metric == metric and row.candidate == _OURS and row.baseline not in _NO_RIVALS
            if verdict(row) == "worse"
        ]
        for row in worse:
            seen = change(row)
            interval = {name: seen.shown(getattr(seen, name)) for name in ("value", "low", "high")}
            facts.append(_concern("worse", arm=arm_name(row.baseline), metric=metric_name(metric), **interval))
    savings = utility.value(_OURS, "keystroke_savings")
    if savings is not None and savings.value < 0:
        facts.append(_concern("keystrokes", share=percent(-savings.value)))
    return facts
