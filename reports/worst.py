"""Main concerns about a launch, for its first page; fixed thresholds select them, so nobody can omit one."""

from reports.disclosure.document import Disclosure
from reports.disclosure.releases import Evaluation
from reports.disclosure.total import Total
from reports.disclosure.utility import Utility
from reports.formats import arm_name, change, metric_name, percent, verdict
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


def worst_facts(disclosure: Disclosure) -> list[str]:
    """Each fact beyond its threshold, in a sentence; empty if there is none."""
    words, utility = disclosure.words, disclosure.utility
    facts = [
        f"Against the collector of its messages for {release.called}, a device has ε = {up(epsilon)}, which is weak."
        + _hidden(disclosure.accounting.total)
        for release in disclosure.releases
        if (epsilon := release.against_server) is not None and strength(epsilon) == "weak"
    ]
    if words.words_added == 0:
        facts.append("Discovery added no word.")
    elif words.coverage is not None and words.coverage < LEAST_COVERED:
        facts.append(
            f"The discovered words cover only {percent(words.coverage)} of the typed words on held-out devices that "
            "were out of vocabulary before."
        )
    if utility is not None:
        noisy = disclosure.release(Evaluation) is not None
        facts += _suggested(utility, words.words_added, noisy) + _variety(utility) + _losses(utility)
    return facts


def _hidden(total: Total) -> str:
    """Sentence on the trust under which the front page's number includes the messages of word discovery."""
    if total.words is None or total.words.how == "local":
        return " The front page's number includes it in full, as shuffling among so few devices hides nobody."
    return " The front page's number assumes that the messages are shuffled."


def _suggested(utility: Utility, words_added: int, noisy: bool) -> list[str]:
    row = utility.part("new_words", _OURS, "top3_recall")
    # Under noise, a share may be anything in its interval.
    if not words_added or row is None or (row.high if noisy else row.value) >= LEAST_SUGGESTED:
        return []
    often = f"in only {percent(row.value)} of cases ({percent(row.low)} to {percent(row.high)})"
    shown = "never" if row.value == 0 and not noisy else often
    return [f"When a discovered word is typed, it is {shown} among the three suggestions."]


def _variety(utility: Utility) -> list[str]:
    facts, of = list[str](), utility.variety
    rival = max((arm for arm in ("start", "ngram") if arm in of), key=lambda arm: of[arm], default=None)
    if _OURS in of and rival is not None and of[_OURS] < LEAST_VARIETY * of[rival]:
        facts.append(
            f"In 300 typed words the model is right by only {of[_OURS]:.1f} different words; {arm_name(rival)}: "
            f"{of[rival]:.1f}."
        )
    heads = [row for row in utility.head_words if (row.arm, row.words) == (_OURS, 10)]
    if heads and heads[0].typed > 0 and heads[0].predicted > MOST_FREQUENT * heads[0].typed:
        facts.append(
            f"The model leans on few words: ten of them are {percent(heads[0].predicted)} of its first suggestions but "
            f"{percent(heads[0].typed)} of typed words."
        )
    return facts


def _losses(utility: Utility) -> list[str]:
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
            facts.append(f"Clearly worse than {arm_name(row.baseline)}: {metric_name(metric)}, {change(row).told()}.")
    savings = utility.value(_OURS, "keystroke_savings")
    if savings is not None and savings.value < 0:
        facts.append(f"Suggestions cost users keystrokes: {percent(-savings.value)} more than without suggestions.")
    return facts
