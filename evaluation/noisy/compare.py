"""Comparison of arms on held-out devices under a budget: one release of noisy sums, and its post-processing.

Shape legend: P words, D devices, M cells.

The release holds the figures of gates and headlines: recall of this launch, its paired differences from the baselines,
its results on discovered words, the share of OOV tokens that these words cover, and the typing metrics of the pairs
that decide. Nothing else about held-out devices leaves: no slice, no histogram, no other kind of typist. Variety and
the thresholds of Smart Compose are measured on public text.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from evaluation.arms.held_out import HeldOut, held_out
from evaluation.comparison import phrases, scoring, slices, verdicts
from evaluation.comparison.compare import Entrants, Rules
from evaluation.comparison.intervals import AbResult, Difference, Estimate, share
from evaluation.comparison.results import Comparison, ComposeSetting, SliceRow
from evaluation.features import FEATURES
from evaluation.noisy import typing_metrics
from evaluation.noisy.estimates import estimate, less, relative, unknown
from evaluation.noisy.questions import (
    FINE,
    MOST_WORDS,
    RARE,
    SOME,
    TYPED,
    WORDS,
    Layout,
    Question,
    Sums,
    difference,
    vectors,
)
from pretrain import progress
from pretrain.text.vocabulary import UNK
from pretrain.text.words import WordStore

RECALLS = ("top1_recall", "top3_recall")
OURS, CHAMPION, NEW, UNKNOWN = "private", "champion", "new_words", "unknown_words"
# Arms with memory of their user's text are compared in simulations only.
_REMEMBER = frozenset({"private_history", "ngram_history"})
# Number of public words on which variety is measured.
PUBLIC_WORDS = 20_000
# Words scored of all devices together, unless so many devices have ``MOST_WORDS`` each: beyond it, what a device adds
# narrows no interval that noise and the number of devices leave (docs/evaluation.md), and would take days.
SCORED_WORDS = 2_000_000

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


def decisive(entrants: Entrants, rules: Rules) -> list[str]:
    """Baselines that this launch is compared with by typing; none if no session is simulated."""
    deciding = {baseline for _, baseline in entrants.decisive} if rules.session_words else set[str]()
    return [baseline for baseline in baselines(entrants) if baseline in deciding]


def layout(entrants: Entrants, rules: Rules) -> Layout:
    """Layout of the questions, which follows from the arms and the features."""
    levels = [Question(metric) for metric in RECALLS]
    paired = [Question(difference(metric, other), above=FINE) for other in baselines(entrants) for metric in RECALLS]
    new = [_of_new(metric) for metric in RECALLS]
    typed = typing_metrics.questions(decisive(entrants, rules), rules.features) if rules.session_words else ()
    return Layout((*levels, *paired, *new, coverage(), *typed))


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
    follow from the names of the arms and the features. Which of a device's words count follows from its own text and
    the number of devices.

    The amount of the devices' text is unknown before the release, which spends the budget: if the noise exceeds it,
    every interval holds every possible value, and nothing is refused.

    Args:
      noise_multiplier: of the release, in clip norms of ``Layout``.
    """
    wanted = layout(entrants, rules)
    text = held_out(data.public, np.arange(len(data.public)), PUBLIC_WORDS)
    settings = phrase_settings(entrants, text, rules, workers) if "SC" in rules.features else ()

    def made() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        text = held_out(data.words, data.devices)
        scored = text.only(text.begins_P(max(MOST_WORDS, SCORED_WORDS / max(len(data.devices), 1))))
        return vectors(wanted, parts(entrants, scored, rules, settings, workers))

    sums = wanted.read(release(len(wanted), made), noise_multiplier * wanted.clip_norm)
    variety = {
        arm: slices.variety(_scored(entrants, arm, text, workers))
        for arm in ("start", "ngram", OURS)
        if arm in entrants.arms
    }
    return judged(entrants, sums, rules, len(data.devices), settings, variety)


def judged(
    entrants: Entrants,
    sums: Sums,
    rules: Rules,
    devices: int,
    settings: tuple[ComposeSetting, ...],
    variety: dict[str, float],
) -> tuple[Comparison, Estimate | None]:
    """Decide each pair and the coverage by released sums.

    Guarantee: a function of released sums, public figures and the names of the arms; it opens no device and no model.

    Args:
      settings, variety: measured on public text.
    """
    by_typing, equal_rate = decisive(entrants, rules), any(row.equal == "rate" for row in settings)
    table = _table(entrants, sums, rules, devices)
    compared = Comparison(
        table=table,
        verdicts=tuple(
            verdicts.verdict(
                table,
                OURS,
                other,
                FEATURES[name].decides(typed=other in by_typing, equal_rate=equal_rate),
                verdicts.guardrails(other, typed=other in by_typing),
                name,
            )
            for other in baselines(entrants)
            for name in entrants.features(other, rules.features)
        ),
        second_opinions=(),
        slices=tuple(_of_discovered(sums, rules.confidence)),
        head_words=(),
        variety=variety,
        compose=settings,
        signs=(),
        session_words=0,
        judged_words=max(round(sums.value[TYPED] * MOST_WORDS), 1) if by_typing else 0,
    )
    covered = estimate(coverage(), sums, rules.confidence)
    return compared, None if covered is None else share(covered)


def phrase_settings(entrants: Entrants, text: HeldOut, rules: Rules, workers: int) -> tuple[ComposeSetting, ...]:
    """Thresholds of Smart Compose of the deciding arms, from public text, without any device."""
    names = dict.fromkeys((*entrants.pairs[0][::-1], *decisive(entrants, rules)))
    arms = {name: entrants.arms[name] for name in names}
    return phrases.settings(arms, phrases.Tuning(text, entrants.vocabulary, rules.compose_rate), workers)


def parts(
    entrants: Entrants, text: HeldOut, rules: Rules, settings: tuple[ComposeSetting, ...] = (), workers: int = 1
) -> dict[str, np.ndarray]:
    """Contribution of each device to each sum, in words, ``[D]`` by name. Private.

    Guarantee: what a device contributes depends on its own text and its number, and on no other device's text.
    """
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
    if rules.session_words:
        added |= typing_metrics.parts(entrants, (OURS, *decisive(entrants, rules)), text, rules, settings, workers)
    return added


def _scored(
    entrants: Entrants, arm: str, text: HeldOut, workers: int, advance: Callable[[float], None] = progress.nothing
) -> scoring.Scores:
    return scoring.score(entrants.arms[arm], text, text.ids(entrants.vocabulary), workers=workers, advance=advance)


def _table(entrants: Entrants, sums: Sums, rules: Rules, devices: int) -> AbResult:
    """Every metric of the questions; a metric of typing that noise exceeds has no row."""
    rows, differences, words = [], [], max(sums.value[WORDS], 0.0) * MOST_WORDS
    drowned, confidence = Question(RECALLS[0]).is_drowned(sums), rules.confidence
    for metric in RECALLS:
        asked = Question(metric)
        level = estimate(asked, sums, confidence) or unknown(asked, sums, 0.0, 1.0)
        rows.append(typing_metrics.row(OURS, metric, words, level))
        for other in baselines(entrants):
            asked = Question(difference(metric, other), above=FINE)
            gain = estimate(asked, sums, confidence) or unknown(asked, sums, -1.0, 1.0)
            theirs = share(less(level, gain, confidence)) if drowned else less(level, gain, confidence)
            rows.append(typing_metrics.row(other, metric, words, theirs))
            differences.append(Difference(OURS, other, metric, gain, relative(gain, theirs, level)))
    typed = typing_metrics.rows(sums, OURS, decisive(entrants, rules), rules) if rules.session_words else ((), ())
    return AbResult(
        devices_at_least=devices // 10 * 10,
        confidence=confidence,
        arms=(*rows, *typed[0]),
        differences=(*differences, *typed[1]),
        differentially_private=True,
        drowned=drowned,
    )


def _of_discovered(sums: Sums, confidence: float) -> Iterator[SliceRow]:
    for metric in RECALLS:
        made = estimate(_of_new(metric), sums, confidence)
        if made is not None:
            yield SliceRow(NEW, OURS, None, metric, share(made))
