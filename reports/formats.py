"""Text forms of numbers and names in reports; ``losses`` formats privacy losses."""

import math
from typing import NamedTuple

from markupsafe import Markup

from reports.disclosure.document import Disclosure
from reports.disclosure.findings import AuditBlock
from reports.disclosure.releases import LocalWords, Training
from reports.disclosure.total import Part
from reports.disclosure.utility import ArmMetric, Difference, SliceMetric, Utility
from reports.losses import strength, up

METRICS = {
    "top1_recall": "top-1 recall",
    "top3_recall": "top-3 recall",
    "invocab_accuracy": "top-1 accuracy, known words",
    "cross_entropy": "cross-entropy, known words (nats)",
    "prate": "predictions accepted (PRate)",
    "strip_accuracy": "predictions with the right word (Acc)",
    "click_through_rate": "shown candidates accepted (CTR)",
    "compose_trigger_rate": "words offered a phrase (Trigger Rate)",
    "compose_prate": "offered phrases accepted (PRate)",
    "words_modified": "words modified (WMR)",
    "errors_left": "words left wrong",
    "words_per_minute": "words per minute (WPM)",
    "keystroke_savings": "keystrokes saved",
}
PARTS = {
    "all": "all words",
    "rare_words": "rare words",
    "new_words": "discovered words",
    "heavy_users": "heavy users",
    "light_users": "light users",
}
_IN_POINTS = frozenset(("top1_recall", "top3_recall", "invocab_accuracy", "cross_entropy"))
LOWER_IS_BETTER = frozenset(("cross_entropy", "words_modified", "errors_left"))
ARMS = {
    "ngram": "n-gram, public text",
    "public_mixture": "public model and n-gram, mixed",
    "constant": "the words typed most, always",
    "pretrained": "public model",
    "start": "public model with the new words",
    "private": "this launch",
    "network": "its network alone",
    "counts": "its counts alone",
    "mixture": "its network and counts, mixed",
    "start_and_counts": "its counts mixed with the public model",
    "ngram_history": "n-gram with the user's own words",
    "private_history": "this launch with the user's own words",
    "champion": "current model",
    "non_private": "trained without privacy, simulation only",
}
# Of these and the current models, the first six are in the report's table; its appendix has all. The start mixed
# with the counts is the strongest that needs no training, so it stands before the others.
_FIRST_ARMS = ("private", "start", "start_and_counts", "counts", "ngram", "non_private", "public_mixture")
_MOST_ARMS = 6
_SPACE = "\N{NO-BREAK SPACE}"
_SAID = {"better": Markup(f"{_SPACE}*▲*"), "worse": Markup(f"{_SPACE}**▼**")}
FEATURES = {"NWP": "Next-word prediction", "SC": "Smart Compose", "OTF": "On-the-fly rescoring"}


def percent(value: float) -> str:
    """A share in percent."""
    return f"{100 * value:.2f}%"


def how_hidden(part: Part, disclosure: Disclosure) -> str:
    """Protection on which a part of the total relies: noise, shuffling, secure sums, or local randomisation."""
    local = disclosure.release(LocalWords)
    if part.how == "noise" or local is None:
        return "noise"
    if part.how == "local":
        return f"{local.messages_per_device} of {up(local.epsilon0)} each, against any collector"
    hidden = "secure sums" if part.how == "summed" else "shuffled"
    return f"{hidden}, with {percent(local.honest_share)} of the other devices of a layer honest, worst layer"


def confidence(value: float) -> str:
    """Confidence of an interval in percent, with three significant digits of the error probability."""
    digits = max(0, 2 - math.floor(math.log10(max(100 * (1 - value), 1e-9)) + 1e-9))
    shown = f"{100 * value:.{digits}f}"
    return (shown.rstrip("0").rstrip(".") if "." in shown else shown) + "%"


def number(value: float | str | None) -> str:
    """A count or a plain figure; text is returned unchanged."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:.4g}"


def at_least(value: int | None) -> str:
    """A count of devices, rounded down to tens; zero means fewer than ten."""
    return f"{value:,} or more" if value else "fewer than 10"


def metric_name(name: str) -> str:
    """A metric in words."""
    return METRICS.get(name, name)


def card_metric(name: str) -> str:
    """A metric as model cards name it: top-1 recall of the next word is the accuracy of next words."""
    return "accuracy" if name == "top1_recall" else name


def arm_name(name: str) -> str:
    """An arm in words; features may have different current models."""
    arm, _, feature = name.partition("champion_")
    return f"{ARMS['champion']} for {FEATURES[feature]}" if feature in FEATURES and not arm else ARMS.get(name, name)


def feature_name(name: str) -> str:
    """A launch feature in words."""
    return f"{FEATURES[name]} ({name})" if name in FEATURES else name


def features(disclosure: Disclosure) -> list[tuple[str, tuple[str, ...]]]:
    """Features and their metrics, the launch's own first."""
    by_feature = disclosure.utility.features if disclosure.utility else {}
    listed = disclosure.launch.features
    return sorted(by_feature.items(), key=lambda item: listed.index(item[0]) if item[0] in listed else len(listed))


def arms(utility: Utility) -> list[str]:
    """Every arm once, in order."""
    return list(dict.fromkeys(row.arm for row in utility.arms))


def metric_value(value: float, metric: str) -> str:
    """A metric in its own unit."""
    if metric == "words_per_minute":
        return f"{value:.2f}"
    return f"{value:.3f}" if metric == "cross_entropy" else percent(value)


def metric_change(value: float, metric: str) -> str:
    """A difference with its sign: nats, or percentage points."""
    return f"{value:+.3f}" if metric in ("cross_entropy", "words_per_minute") else f"{100 * value:+.2f} pp"


class Cell(NamedTuple):
    """An arm's value with half its interval, and a mark if this launch is better (▲) or worse (▼) than that arm."""

    value: Markup | str
    verdict: Markup | str = ""


def shown_arms(utility: Utility) -> list[str]:
    """At most six arms for a table that fits a page: this launch, the current models, then the usual baselines."""
    every = arms(utility)
    first = [arm for arm in _FIRST_ARMS if arm in every]
    had = [arm for arm in every if arm.startswith("champion")]
    return list(dict.fromkeys((*first[:1], *had, *first[1:], *every)))[:_MOST_ARMS]


def compared_metrics(disclosure: Disclosure) -> list[str]:
    """Metrics that this launch has a value of: both recalls, then those of its features, the main one first."""
    utility = disclosure.utility
    if utility is None:
        return []
    wanted = ("top1_recall", "top3_recall", *(metric for _, each in features(disclosure) for metric in each))
    return [metric for metric in dict.fromkeys(wanted) if utility.value("private", metric)]


def compared(disclosure: Disclosure) -> list[tuple[str, list[Cell]]]:
    """Rows of the table of arms: name, and a cell for each of ``shown_arms``."""
    utility = disclosure.utility
    if utility is None:
        return []
    shown = shown_arms(utility)
    against = {(row.baseline, row.metric): verdict(row) for row in utility.differences if row.candidate == "private"}

    def said(arm: str, metric: str) -> Markup | str:
        return _SAID.get(against.get((arm, metric), ""), "")

    rows = []
    for metric in compared_metrics(disclosure):
        name = f"{metric_name(metric)} ↓" if metric in LOWER_IS_BETTER else metric_name(metric)
        rows.append((name, [_cell(utility.value(arm, metric), metric, said(arm, metric)) for arm in shown]))
    for part in ("rare_words", "new_words"):
        found = [utility.part(part, arm, "top3_recall") for arm in shown]
        if any(found):
            rows.append((f"top-3 recall, {PARTS[part]}", [_cell(row, "top3_recall") for row in found]))
    if utility.variety:
        varied = [utility.variety.get(arm) for arm in shown]
        rows.append(("different right words in 300", [Cell("–" if n is None else f"{n:.1f}") for n in varied]))
    return rows + _not_inferior(utility, shown)


def _cell(row: ArmMetric | SliceMetric | None, metric: str, said: Markup | str = "") -> Cell:
    if row is None:
        return Cell("–")
    error = metric_value((row.high - row.low) / 2, metric).removesuffix("%")
    return Cell(Markup(f"{metric_value(row.value, metric)}{_SPACE}±{_SPACE}{error}"), said)


def _not_inferior(utility: Utility, shown: list[str]) -> list[tuple[str, list[Cell]]]:
    """Verdicts on non-inferiority of this launch, a row for each feature."""
    judged = [row for row in utility.verdicts if row.candidate == "private"]
    rows = []
    for feature in dict.fromkeys(row.feature for row in judged):
        of = {row.baseline: row for row in judged if row.feature == feature}
        said = {arm: Markup("*yes*") if row.passes else "not shown" for arm, row in of.items()}
        named = f"{FEATURES[feature]} " if feature in FEATURES else ""
        rows.append((f"{named}not inferior".capitalize(), [Cell(said.get(arm, "")) for arm in shown]))
    return rows


class Change(NamedTuple):
    """A difference with one interval in one unit, which every table and figure shows.

    Attributes:
      relative: a share of the baseline; otherwise points, nats or words.
    """

    metric: str
    value: float
    low: float
    high: float
    relative: bool

    def shown(self, value: float) -> str:
        """One of the numbers with its sign and unit."""
        return f"{100 * value:+.2f}%" if self.relative else metric_change(value, self.metric)

    def told(self) -> str:
        """The change with its interval."""
        return f"{self.shown(self.value)} ({self.shown(self.low)} to {self.shown(self.high)})"


class ChangedTerm(NamedTuple):
    """One term of a release, in this launch and in the current model's; None where a launch lacks the release."""

    release: str
    name: str
    now: float | str | None
    before: float | str | None


def changes(disclosure: Disclosure) -> list[ChangedTerm]:
    """Terms in which this launch's releases differ from the current model's; empty if users have no model yet."""
    had = disclosure.utility.champion if disclosure.utility else None
    if had is None or had.earlier is None:
        return []
    before, now = had.earlier.releases, {release.name: release.terms for release in disclosure.releases}
    return [
        ChangedTerm(name.replace("_", " "), term, *each)
        for name in dict.fromkeys((*now, *before))
        for term in dict.fromkeys((*now.get(name, {}), *before.get(name, {})))
        if len(set(each := (now.get(name, {}).get(term), before.get(name, {}).get(term)))) > 1
    ]


def change(row: Difference) -> Change:
    """Shown form of a difference: relative for simulated typing, in points for scored words."""
    if row.metric in _IN_POINTS or row.relative is None:
        return Change(row.metric, row.value, row.low, row.high, relative=False)
    return Change(row.metric, row.relative["value"], row.relative["low"], row.relative["high"], relative=True)


def verdict(row: Difference) -> str:
    """Verdict that the shown interval gives; none for metrics of known words, which depend on the vocabulary."""
    if row.metric in ("invocab_accuracy", "cross_entropy"):
        return "–"
    interval = change(row)
    if interval.low <= 0 <= interval.high:
        return "no clear difference"
    return "better" if (interval.low > 0) != (row.metric in LOWER_IS_BETTER) else "worse"


def canaries_held(audit: AuditBlock) -> str:
    """Canaries in the launched model, in words."""
    words = {"compliant": "the canaries of devices that obey the timer", "stress": "those of devices under stress"}
    held = [words[population] for population in audit.in_launch or ()]
    return " and ".join(held) + (" and no others" if audit.twin else "") if held else "none of these canaries"


def canaries_trained(audit: AuditBlock) -> str:
    """Number of canaries that trained, which alone count in figures and gates, as a sentence."""
    trained, planted = sum(bool(row.participations) for row in audit.canaries), len(audit.canaries)
    if trained == planted:
        return f"All {planted} canaries trained."
    return f"{trained} of {planted} canaries trained; the others count in no figure and no gate."


def most_exposed(audit: AuditBlock) -> str:
    """The most exposed canary of devices that obey the timer, as a sentence; empty if none trained."""
    trained = [row for row in audit.canaries if row.population == "compliant" and row.participations]
    if not trained:
        return ""
    row = max(trained, key=lambda each: each.exposure_bits)
    devices, copies = f"{row.n_u} device{'s' * (row.n_u > 1)}", f"{row.n_e} cop{'ies' if row.n_e > 1 else 'y'}"
    return f"Most exposed: {row.exposure_bits:.2f} bits, on {devices} with {copies}."


def on_fewest(audit: AuditBlock) -> str:
    """Devices of the positive control's canaries, in words."""
    fewest = min(row.n_u for row in audit.canaries)
    return "on one device" if fewest == 1 else f"on {fewest} devices each"


def bits_allowed(ceiling_bits: float | None, random_continuations: int) -> str:
    """A ceiling on exposure, in bits; ``says nothing`` if it exceeds the largest exposure that ranks can show."""
    if ceiling_bits is None:
        return "none"
    return "says nothing" if ceiling_bits >= math.log2(random_continuations) else f"{ceiling_bits:.1f}"


class PageWarning(NamedTuple):
    """Warning that a reader must not miss; ``severe`` if the numbers below do not hold or nothing was published.

    Attributes:
      key: selects its translation on the front page.
    """

    key: str
    text: str
    severe: bool


def warnings(disclosure: Disclosure) -> list[PageWarning]:
    """Warnings that a reader must not miss, worst first."""
    launch, accounting, trained = disclosure.launch, disclosure.accounting, disclosure.release(Training)
    said = []
    if disclosure.decision.decision == "hold":
        said.append(PageWarning("hold", "This launch is on hold. Nothing was published.", True))
    if launch.seeded_randomness:
        said.append(
            PageWarning(
                "seeded",
                "The noise is seeded. Anyone with the launch file can subtract it: this launch protects nobody. The "
                "losses below would hold only with secret noise.",
                True,
            )
        )
    if not accounting.agree:
        said.append(PageWarning("accountants", "The two accountants do not agree. Do not rely on either.", True))
    if trained is not None and (violations := trained.participation.violations):
        said.append(
            PageWarning(
                "violations", f"The enforced participation limits were violated; violations: {violations:,}.", True
            )
        )
    if launch.synthetic_population:
        said.append(
            PageWarning(
                "synthetic",
                "The population is synthetic: no real person's text was used, and no figure here predicts results "
                "for real people.",
                False,
            )
        )
    if (disclosure.tool.git_commit or "").endswith("-dirty"):
        said.append(
            PageWarning(
                "dirty", "Made from source code with uncommitted changes: nobody else can run the same code.", False
            )
        )
    return said


def light(disclosure: Disclosure) -> str:
    """The front sheet's lamp: red on hold, amber with a warning or a weak guarantee, else green."""
    if disclosure.decision.decision == "hold":
        return "red"
    return "amber" if warnings(disclosure) or strength(disclosure.accounting.bound) == "weak" else "green"
