"""Typing metrics under a budget: counts of simulated sessions in the same release, and the figures that they give.

Shape legend: P words, D devices.

Some test devices, chosen without looking at their text, have their first words typed again by the median calibration
under this launch and under the baselines that decide. Each of these devices adds its events to the vector of
``evaluation.noisy.questions``: words typed, time, picks, words modified, errors left and, with Smart
Compose, phrases; and the differences of the same events from each baseline.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from evaluation.arms.held_out import HeldOut
from evaluation.comparison.compare import Entrants, Rules
from evaluation.comparison.intervals import ArmMetric, Difference, Estimate
from evaluation.comparison.results import ComposeSetting
from evaluation.config import MOST_TYPED
from evaluation.counts import SHOWN
from evaluation.keyboard import script, sessions, typist
from evaluation.keyboard.randomness import uniform
from evaluation.noisy.estimates import estimate
from evaluation.noisy.questions import (
    COMMON,
    EVERY,
    FINE,
    MOST_WORDS,
    PAIRED,
    TYPED,
    Paired,
    Question,
    Sums,
    difference,
)
from pretrain import progress

# Devices whose words are typed again.
MOST_DEVICES = int(MOST_TYPED / MOST_WORDS)
# Seconds that count as much as a word, about the time that typing one takes.
SECONDS_A_WORD = 2.0
_TIME, _TRIGGERED, _ACCEPTED = "typing_time", "compose_trigger_rate", "compose_prate"


@dataclass(frozen=True)
class Metric:
    """A metric of simulated typing as a ratio of sums over devices.

    Attributes:
      ratio: under this launch.
      differs: its sums that depend on the arm.
      apart: kind of the differences of these.
      factor: from the ratio to the metric's unit.
    """

    ratio: Question
    differs: tuple[str, ...]
    apart: float = PAIRED
    factor: float = 1.0

    def against(self, baseline: str, figure: Literal["level", "gain", "relative"] = "gain") -> Paired:
        """A figure about a baseline."""
        return Paired(**vars(self.ratio), baseline=baseline, differs=self.differs, apart=self.apart, figure=figure)


def _per_word(name: str, kind: float, apart: float = PAIRED, factor: float = 1.0) -> Metric:
    return Metric(Question(name, TYPED, kind, EVERY, TYPED), (name,), apart, factor)


# A click-through rate is of three candidates for each word. The accuracy of the strip is left out: it is about top-3
# recall, and its cells would be longer than all others together.
_METRICS = {
    "prate": _per_word("prate", COMMON),
    "click_through_rate": _per_word("prate", COMMON, factor=1 / SHOWN),
    "words_modified": _per_word("words_modified", COMMON),
    "errors_left": _per_word("errors_left", FINE),
    "words_per_minute": Metric(Question(TYPED, _TIME, EVERY, EVERY, TYPED), (_TIME,), factor=60 / SECONDS_A_WORD),
}
# Arms differ in the number of phrases by as much as either offers.
_PHRASES = {
    "compose_trigger_rate": _per_word(_TRIGGERED, COMMON, COMMON),
    "compose_prate": Metric(Question(_ACCEPTED, _TRIGGERED, COMMON, COMMON, TYPED), (_ACCEPTED, _TRIGGERED), COMMON),
}


def metrics(features: Iterable[str]) -> dict[str, Metric]:
    """Metrics by name; Smart Compose adds those of its phrases.

    Args:
      features: of the launch.
    """
    return _METRICS | (_PHRASES if "SC" in features else {})


def questions(baselines: Sequence[str], features: Iterable[str]) -> tuple[Question, ...]:
    """Questions about typing under this launch, and about its differences from the baselines."""
    asked = metrics(features).values()
    return (
        *(metric.ratio for metric in asked),
        *(metric.against(baseline) for baseline in baselines for metric in asked),
    )


def parts(
    entrants: Entrants,
    arms: Sequence[str],
    text: HeldOut,
    rules: Rules,
    settings: Iterable[ComposeSetting],
    workers: int = 1,
) -> dict[str, np.ndarray]:
    """Contribution of each device to each sum, in words, ``[D]`` by name. Private.

    Guarantee: what a device contributes depends on its own text and its number, and on no other device's text.

    Args:
      arms: this launch, then the baselines.
      settings: thresholds of Smart Compose; needed if it is a feature of the launch.
    """
    typed = text.only(typed_again(text, rules.seed))
    first, *others = _events(entrants, arms, typed, rules, settings, workers)
    added = dict(first)
    for other, theirs in zip(arms[1:], others, strict=True):
        added |= {difference(name, other): first[name] - theirs[name] for name in first if name != TYPED}
    return added


def typed_again(text: HeldOut, seed: int) -> np.ndarray:
    """``[P]`` bool: words to type again, whole sentences from the beginning of a device until ``MOST_WORDS``.

    Guarantee: the devices are chosen by their numbers alone, and the words of each by its own sentences.
    """
    chosen_D = np.argsort(uniform(seed, "typing devices", np.arange(text.devices)))[:MOST_DEVICES]
    return np.isin(text.device_P, chosen_D) & text.begins_P(MOST_WORDS)


def _events(
    entrants: Entrants,
    arms: Sequence[str],
    text: HeldOut,
    rules: Rules,
    settings: Iterable[ComposeSetting],
    workers: int,
) -> Iterator[dict[str, np.ndarray]]:
    """Events of each device under each arm, ``[D]`` by name; seconds as words."""
    compose = "SC" in rules.features
    counted, phrases = ("prate", "words_modified", "errors_left"), (_TRIGGERED, _ACCEPTED) if compose else ()
    if not len(text.word_P):  # an error would reveal that nobody typed
        yield from ({name: np.zeros(text.devices) for name in (TYPED, _TIME, *counted, *phrases)} for _ in arms)
        return
    thresholds = {row.arm: math.inf if row.threshold_nats is None else row.threshold_nats for row in settings}
    prepared = script.prepare(text, entrants.vocabulary, rules.locale, typist.MEDIAN, rules.seed)
    advance = progress.along("typing again", float((1 + compose) * len(arms) * text.lengths_S.sum()))
    for arm in arms:
        model = entrants.arms[arm]
        ratios = sessions.simulate(prepared, text, model, workers=workers, advance=advance).ratios()
        words_D, minutes_D = ratios["words_per_minute"]
        events = {TYPED: words_D, _TIME: minutes_D * 60 / SECONDS_A_WORD}
        events |= {name: ratios[name][0] for name in counted}
        if compose:
            offered = sessions.simulate(
                prepared, text, model, compose_threshold=thresholds[arm], workers=workers, advance=advance
            ).ratios()
            events |= {name: offered[name][0] for name in phrases}
        yield events


def rows(
    sums: Sums, launch: str, baselines: Sequence[str], rules: Rules
) -> tuple[tuple[ArmMetric, ...], tuple[Difference, ...]]:
    """Typing metrics of the arms, and differences from the baselines; none for a metric that noise exceeds.

    Guarantee: a function of noisy sums and of numbers from the launch file, so it is as private as they are.

    Args:
      launch: name of this launch's arm.
    """
    arms: list[ArmMetric] = []
    differences: list[Difference] = []
    for name, metric in metrics(rules.features).items():
        unit, below = MOST_WORDS / metric.factor, metric.ratio.denominator
        level = estimate(metric.ratio, sums, rules.confidence)
        if level is None:
            continue
        arms.append(row(launch, name, unit * sums.value[below], scaled(level, metric.factor)))
        for other in baselines:
            gain = metric.against(other)
            theirs, absolute = (
                estimate(asked, sums, rules.confidence) for asked in (metric.against(other, "level"), gain)
            )
            if theirs is None or absolute is None:
                continue
            relative = estimate(metric.against(other, "relative"), sums, rules.confidence)
            arms.append(row(other, name, unit * gain.theirs(below, sums), scaled(theirs, metric.factor)))
            differences.append(Difference(launch, other, name, scaled(absolute, metric.factor), relative))
    return tuple(arms), tuple(differences)


def row(arm: str, metric: str, denominator: float, level: Estimate) -> ArmMetric:
    """A metric of an arm from its ratio and its noisy denominator."""
    return ArmMetric(arm, metric, level.value * denominator, denominator, level)


def scaled(made: Estimate, factor: float) -> Estimate:
    """An estimate in another unit."""
    ends = {name: factor * getattr(made, name) for name in ("value", "low", "high", "standard_error")}
    return replace(made, **ends)
