"""Comparison of arms on held-out devices under a budget: one release of noisy sums, and its post-processing.

Shape legend: P words, D devices, M cells.

The release holds the figures of gates and headlines: recall of this launch, its paired differences from the baselines,
its results on discovered words, and the share of OOV tokens that these words cover. Nothing else about held-out devices
leaves: no slice, no simulated typing, no histogram. Variety is measured on public text.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from evaluation.arms.held_out import HeldOut, held_out
from evaluation.comparison import phrases, scoring, slices, verdicts
from evaluation.comparison.compare import Entrants, Rules
from evaluation.comparison.intervals import AbResult, ArmMetric, Difference, Estimate, half_widths
from evaluation.comparison.results import Comparison, ComposeSetting, SliceRow
from evaluation.features import UNTYPED
from evaluation.noisy.estimates import estimate, stands, unknown
from evaluation.noisy.questions import (
    CLIP_NORM,
    FINE,
    MOST_WORDS,
    RARE,
    SOME,
    WORDS,
    Layout,
    Question,
    Sums,
    difference,
    vectors,
)
from pretrain import progress
from pretrain.vocabulary import UNK
from pretrain.words import WordStore

RECALLS = ("top1_recall", "top3_recall")
OURS, NEW, UNKNOWN = "private", "new_words", "unknown_words"
# Arms with memory of their user's text are compared in simulations only.
_REMEMBER = frozenset({"private_history", "ngram_history"})
# Number of public words on which variety is measured.
PUBLIC_WORDS = 20_000

# Number of cells and maker of each device's vector -> noisy sums.
Release = Callable[[int, Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]], np.ndarray]


@dataclass(frozen=True)
class EvaluationData:
    """Held-out devices to evaluate on, or public text where they may not be read.

    Attributes:
      words: the store of held-out devices. Private.
      devices: its owners for the comparison.
      public: text outside the training text of every arm.
    """

    words: WordStore
    devices: np.ndarray
    public: WordStore


def baselines(entrants: Entrants) -> list[str]:
    """Baselines with which this launch is compared."""
    return [baseline for candidate, baseline in entrants.pairs if candidate == OURS and baseline not in _REMEMBER]


def layout(entrants: Entrants) -> Layout:
    """Layout of the questions, which follows from the arms."""
    levels = [Question(metric) for metric in RECALLS]
    paired = [Question(difference(metric, other), above=FINE) for other in baselines(entrants) for metric in RECALLS]
    new = [_of_new(metric) for metric in RECALLS]
    return Layout((*levels, *paired, *new, coverage()))


def coverage() -> Question:
    """Question about coverage: the share of tokens outside the public vocabulary that discovery found."""
    return Question(NEW, UNKNOWN, above=SOME, below=FINE)


def _of_new(metric: str) -> Question:
    return Question(f"{metric} of {NEW}", NEW, above=RARE, below=SOME)


def compare(
    entrants: Entrants, data: EvaluationData, rules: Rules, release: Release, noise_multiplier: float, workers: int = 1
) -> tuple[Comparison, Estimate | None]:
    """Score every arm on the held-out devices, release the sums, and decide each pair and the coverage by them.

    Guarantee: the result depends on the devices only through the output of ``release`` and their number, and the cells
    follow from the names of the arms.

    The amount of the devices' text is unknown before the release, which spends the budget: if the noise exceeds it,
    every interval holds every possible value, and nothing is refused.

    Args:
      noise_multiplier: of the release, in ``questions.CLIP_NORM``.
    """
    wanted = layout(entrants)

    def made() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return vectors(wanted, parts(entrants, held_out(data.words, data.devices), workers))

    sums = wanted.read(release(len(wanted), made), noise_multiplier * CLIP_NORM)
    table = _table(entrants, sums, rules.confidence, len(data.devices))
    text = held_out(data.public, np.arange(len(data.public)), PUBLIC_WORDS)
    compared = Comparison(
        table=table,
        verdicts=tuple(
            verdicts.verdict(table, OURS, other, UNTYPED, verdicts.guardrails(other, typed=False), name)
            for other in baselines(entrants)
            for name in entrants.features(other, rules.features)
        ),
        second_opinions=(),
        slices=tuple(_of_discovered(sums, rules.confidence)),
        head_words=(),
        variety={
            arm: slices.variety(_scored(entrants, arm, text, workers))
            for arm in ("start", "ngram", OURS)
            if arm in entrants.arms
        },
        compose=_phrases(entrants, text, rules, workers) if "SC" in rules.features else (),
        signs=(),
        session_words=0,
        judged_words=0,
    )
    covered = estimate(coverage(), sums, rules.confidence)
    return compared, None if covered is None else share(covered)


def _phrases(entrants: Entrants, text: HeldOut, rules: Rules, workers: int) -> tuple[ComposeSetting, ...]:
    """Thresholds of Smart Compose from public text, without any device."""
    arms = {name: entrants.arms[name] for name in entrants.pairs[0][::-1]}
    return phrases.settings(arms, arms, phrases.Tuning(text, entrants.vocabulary, rules.compose_rate), workers)


def parts(entrants: Entrants, text: HeldOut, workers: int = 1) -> dict[str, np.ndarray]:
    """Contribution of each device to each sum, in words, ``[D]`` by name. Private."""
    advance = progress.along("scoring arms", float((1 + len(baselines(entrants))) * text.lengths_S.sum()))
    ours = _scored(entrants, OURS, text, workers, advance)
    new_P = (ours.id_P >= entrants.base_size) & (ours.id_P < entrants.launch_size)
    unknown_P = new_P | (ours.id_P == UNK) | (ours.id_P >= entrants.launch_size)
    of_all, of_new, of_unknown = ours.ratios(), ours.ratios(new_P), ours.ratios(unknown_P)
    added = {WORDS: of_all[RECALLS[0]][1], NEW: of_new[RECALLS[0]][1], UNKNOWN: of_unknown[RECALLS[0]][1]}
    added |= {metric: of_all[metric][0] for metric in RECALLS}
    added |= {_of_new(metric).numerator: of_new[metric][0] for metric in RECALLS}
    for other in baselines(entrants):
        theirs = _scored(entrants, other, text, workers, advance).ratios()
        added |= {difference(metric, other): of_all[metric][0] - theirs[metric][0] for metric in RECALLS}
    return added


def _scored(
    entrants: Entrants, arm: str, text: HeldOut, workers: int, advance: Callable[[float], None] = progress.nothing
) -> scoring.Scores:
    return scoring.score(entrants.arms[arm], text, text.ids(entrants.vocabulary), workers=workers, advance=advance)


def _table(entrants: Entrants, sums: Sums, confidence: float, devices: int) -> AbResult:
    """Every metric of the questions."""
    rows, differences, words = [], [], max(sums.value[WORDS], 0.0)
    drowned = not stands(WORDS, sums)
    for metric in RECALLS:
        asked = Question(metric)
        level = estimate(asked, sums, confidence) or unknown(asked, sums, 0.0, 1.0)
        rows.append(_row(OURS, metric, level, words))
        for other in baselines(entrants):
            asked = Question(difference(metric, other), above=FINE)
            gain = estimate(asked, sums, confidence) or unknown(asked, sums, -1.0, 1.0)
            theirs = share(_less(level, gain, confidence)) if drowned else _less(level, gain, confidence)
            rows.append(_row(other, metric, theirs, words))
            differences.append(Difference(OURS, other, metric, gain, _relative(gain, theirs, level)))
    return AbResult(
        devices_at_least=devices // 10 * 10,
        confidence=confidence,
        arms=tuple(rows),
        differences=tuple(differences),
        differentially_private=True,
        drowned=drowned,
    )


def _row(arm: str, metric: str, value: Estimate, words: float) -> ArmMetric:
    denominator = words * MOST_WORDS
    return ArmMetric(arm, metric, value.value * denominator, denominator, value)


def _less(level: Estimate, gain: Estimate, confidence: float) -> Estimate:
    """A baseline's recall, which has no sum of its own: this launch's recall minus its gain.

    The correlation of the two is unknown, so their errors are added.
    """
    value, error = level.value - gain.value, level.standard_error + gain.standard_error
    degrees = min(level.degrees, gain.degrees)
    reach = max(half_widths(confidence, degrees) * error, (level.high - level.low + gain.high - gain.low) / 2)
    return Estimate(value, value - reach, value + reach, error, degrees)


def _relative(gain: Estimate, theirs: Estimate, level: Estimate) -> Estimate | None:
    """The gain relative to the baseline, whose own error is added; None if noise exceeds the baseline."""
    if not theirs.low > 0:
        return None
    value = gain.value / theirs.value
    stretch = math.hypot(1.0, value * level.standard_error / max(gain.standard_error, 1e-300))
    down, up = ((gain.value - gain.low) * stretch / theirs.value, (gain.high - gain.value) * stretch / theirs.value)
    return Estimate(value, value - down, value + up, gain.standard_error * stretch / theirs.value, gain.degrees)


def _of_discovered(sums: Sums, confidence: float) -> Iterator[SliceRow]:
    for metric in RECALLS:
        made = estimate(_of_new(metric), sums, confidence)
        if made is not None:
            yield SliceRow(NEW, OURS, None, metric, share(made))


def share(made: Estimate) -> Estimate:
    """An estimate cut to [0, 1], where shares lie; the coverage of its interval does not change."""
    value, low, high = (min(max(end, 0.0), 1.0) for end in (made.value, made.low, made.high))
    return replace(made, value=value, low=low, high=high)
