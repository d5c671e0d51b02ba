"""The worst facts of a launch, for its first page: found by thresholds, so that nobody chooses what to leave out."""

from reports.disclosure.document import Disclosure
from reports.disclosure.releases import Evaluation
from reports.disclosure.total import Total
from reports.disclosure.utility import Utility
from reports.formats import arm_name, change, metric_name, percent, verdict
from reports.losses import strength, up

# A discovered word among the three suggestions, where one is typed: below this share they are of little use.
LEAST_SUGGESTED = 0.05
# Share of the unknown words on held-out devices that discovery found.
LEAST_COVERED = 0.05
# Different words that ever stand first, as a share of what the n-gram of the same public text has.
LEAST_VARIETY = 0.5
# Share of the first candidates that the ten most frequent words may be, over the share that they are of what is typed.
MOST_FREQUENT = 2.0
_OURS = "private"
# What users would notice at once, and arms that have more than this launch: they are not what it competes with.
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


def worst_facts(disclosure: Disclosure) -> list[str]:
    """Each fact beyond its threshold, in a sentence; empty if there is none."""
    words, utility = disclosure.words, disclosure.utility
    facts = [
        f"Against whoever collects what it sends for {release.called} a device has ε = {up(epsilon)}, which is weak."
        + _hidden(disclosure.accounting.total)
        for release in disclosure.releases
        if (epsilon := release.against_server) is not None and strength(epsilon) == "weak"
    ]
    if words.words_added == 0:
        facts.append("Discovery added no word.")
    elif words.coverage is not None and words.coverage < LEAST_COVERED:
        facts.append(
            f"The discovered words are only {percent(words.coverage)} of the words on held-out devices that were "
            "unknown before."
        )
    if utility is not None:
        noisy = disclosure.release(Evaluation) is not None
        facts += _suggested(utility, words.words_added, noisy) + _variety(utility) + _losses(utility)
    return facts


def _hidden(total: Total) -> str:
    """The trust by which the front page's number has the messages of word discovery."""
    if total.words is None or total.words.how == "local":
        return " The front page's number has it in full, as shuffling among so few hides nobody."
    return " The front page's number counts on their being shuffled."


def _suggested(utility: Utility, words_added: int, noisy: bool) -> list[str]:
    row = utility.part("new_words", _OURS, "top3_recall")
    # Under noise a share is what its interval leaves possible.
    if not words_added or row is None or (row.high if noisy else row.value) >= LEAST_SUGGESTED:
        return []
    seldom = f"only {percent(row.value)} of the times ({percent(row.low)} to {percent(row.high)})"
    return [
        "Where somebody types a discovered word it is among the three suggestions "
        + ("never." if row.value == 0 and not noisy else f"{seldom}.")
    ]


def _variety(utility: Utility) -> list[str]:
    facts, ours = [], utility.distinct_first_words.get(_OURS)
    rival = next((arm for arm in ("ngram", "start") if arm in utility.distinct_first_words), None)
    if ours is not None and rival is not None and ours < LEAST_VARIETY * utility.distinct_first_words[rival]:
        facts.append(
            f"Only {ours:,} different {'word ever stands' if ours == 1 else 'words ever stand'} first; with "
            f"{arm_name(rival)} it is {utility.distinct_first_words[rival]:,}."
        )
    heads = [row for row in utility.head_words if (row.arm, row.words) == (_OURS, 10)]
    if heads and heads[0].typed > 0 and heads[0].predicted > MOST_FREQUENT * heads[0].typed:
        facts.append(
            f"The model leans on few words: ten of them are {percent(heads[0].predicted)} of its first suggestions but "
            f"{percent(heads[0].typed)} of typed words."
        )
    return facts


def _losses(utility: Utility) -> list[str]:
    """Metrics that are clearly worse than with something else that users could have."""
    facts = []
    for metric in _NOTICED:
        worse = [
            row
            for row in utility.differences
            if row.metric == metric and row.candidate == _OURS and row.baseline not in _NO_RIVALS
            if verdict(row) == "worse"
        ]
        for row in worse:
            facts.append(f"Clearly worse than {arm_name(row.baseline)}: {metric_name(metric)}, {change(row).told()}.")
    savings = utility.value(_OURS, "keystroke_savings")
    if savings is not None and savings.value < 0:
        facts.append(f"Suggestions cost users keystrokes: {percent(-savings.value)} more than without them.")
    return facts
