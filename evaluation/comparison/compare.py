"""The whole offline comparison: every arm on the same held-out devices, by word, by session, by slice.

Shape legend: P words, D devices.

One call for a launch, a benchmark or a notebook. Next-word metrics come from all held-out words,
session metrics from ``session_words`` of them typed again by the median calibration, once for the
strip and the corrections and once more for Smart Compose; the other calibrations only have to agree
on the sign. Nothing here is differentially private.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from evaluation.arms.arm import NextWord
from evaluation.arms.held_out import HeldOut, Ratio, held_out
from evaluation.comparison import intervals, scoring, slices, verdicts
from evaluation.comparison.results import Comparison, ComposeSetting, SignCheck, SliceRow
from evaluation.config import COMPOSE_RATE, RARE_AFTER
from evaluation.keyboard import script, sessions, typist
from pretrain.vocabulary import Vocabulary
from pretrain.words import WordStore

# What a slice is judged by, and what must keep its sign over the calibrations.
SLICE_METRICS = ("top1_recall", "top3_recall")
SIGN_METRICS = ("prate", "words_modified", "words_per_minute", "keystroke_savings")
# Phrases less sure than this are never looked for: a quarter of a chance for the first word.
_COMPOSE_FLOOR = float(np.log(0.1))


@dataclass(frozen=True)
class Devices:
    """Held-out devices of a store. Private.

    Attributes:
      words: the store.
      test: owners that arms are compared on.
      tuning: other owners, to set thresholds on.
    """

    words: WordStore
    test: np.ndarray
    tuning: np.ndarray


@dataclass(frozen=True)
class Entrants:
    """The arms of a comparison, the pairs that are tested, and their common vocabulary.

    Attributes:
      arms: by name, all in ``vocabulary``; the first is the baseline that sets how often Smart Compose speaks.
      pairs: ``(candidate, baseline)``; each gets a verdict.
      vocabulary: the largest of all arms: ``base_size`` public words by frequency, then words of the launch,
        ``launch_size`` in all, then words that only an arm such as the champion brings.
    """

    arms: Mapping[str, NextWord]
    pairs: tuple[tuple[str, str], ...]
    vocabulary: Vocabulary
    base_size: int
    launch_size: int


@dataclass(frozen=True)
class Rules:
    """How arms are compared; the same for every arm.

    Attributes:
      feature: ``NWP``, ``SC`` or ``OTF``; decides the primary metric.
      locale: of the keyboard that words are typed again on.
      salt: of the buckets.
      seed: of the simulated typists.
      buckets: of the jackknife.
      session_words: typed again by each calibration; 0 for none.
      compose_rate: share of words before which the baseline may offer a phrase.
      rare_after: public words beyond this many are rare.
    """

    feature: str
    locale: str
    salt: str
    seed: int
    buckets: int
    session_words: int
    compose_rate: float = COMPOSE_RATE
    rare_after: int = RARE_AFTER


def run(entrants: Entrants, devices: Devices, rules: Rules, workers: int = 1) -> Comparison:
    """Score every arm on the held-out devices and decide each pair.

    Raises:
      ValueError: too few devices for the buckets, no keyboard for the locale, arms of other vocabularies.
    """
    arms, pairs, vocabulary = entrants.arms, entrants.pairs, entrants.vocabulary
    text = held_out(devices.words, devices.test)
    id_P = text.ids(vocabulary)
    scored = {arm: scoring.score(model, text, id_P, workers=workers) for arm, model in arms.items()}
    tables = {arm: each.ratios() for arm, each in scored.items()}
    settings: list[ComposeSetting] = []
    signs: list[SignCheck] = []
    if rules.session_words:
        # Twice the sessions' words: a threshold is as noisy as what it is set on.
        tuning = held_out(devices.words, devices.tuning, 2 * rules.session_words)
        if not len(tuning.word_P):
            raise ValueError(
                "devices.tuning: no word to set thresholds on; bring more devices or set ab_test.session_words to 0"
            )
        thresholds, settings = _compose_settings(arms, tuning, vocabulary, rules.compose_rate, workers)
        short = held_out(devices.words, devices.test, rules.session_words)
        typed, offered = _sessions(entrants, short, rules, thresholds, workers)
        for arm, table in tables.items():
            table |= _session_ratios(typed[typist.MEDIAN.name][arm], offered[arm])
        signs = [_sign(typed, pair, metric) for pair in pairs for metric in SIGN_METRICS]
    result = intervals.compare(tables, rules.salt, rules.buckets, pairs)
    primary = verdicts.PRIMARY[rules.feature] if rules.session_words else "top1_recall"
    typed_again = rules.session_words > 0
    shown = [row.metric for row in result.differences if (row.candidate, row.baseline) == tuple(pairs[0])]
    return Comparison(
        table=result,
        verdicts=tuple(
            verdicts.verdict(result, *pair, primary, verdicts.guardrails(pair[1], typed=typed_again)) for pair in pairs
        ),
        second_opinions=tuple(verdicts.second_opinions(tables, result, *pairs[0], shown, rules.seed)),
        slices=tuple(_slices(scored, text, entrants, rules)),
        head_words=tuple(row for arm, each in scored.items() for row in slices.head_words(arm, each)),
        distinct_first_words={arm: slices.distinct_words(each) for arm, each in scored.items()},
        compose=tuple(settings),
        signs=tuple(signs),
        session_words=min(rules.session_words, len(text.word_P)),
    )


def _compose_settings(
    arms: Mapping[str, NextWord], tuning: HeldOut, vocabulary: Vocabulary, rate: float, workers: int
) -> tuple[dict[str, float], list[ComposeSetting]]:
    """Thresholds at which all arms' phrases are right as often as the first arm's."""
    id_P = tuning.ids(vocabulary)
    thresholds, settings, wanted = {}, [], None
    for arm, model in arms.items():
        scored = scoring.score(model, tuning, id_P, compose_floor=_COMPOSE_FLOOR, workers=workers)
        if wanted is None:
            threshold = scoring.threshold_at_rate(scored, rate)
            wanted = scoring.right_share(scored, threshold)
        else:
            # Where the baseline's phrases are never right there is no rate to be equal at.
            threshold = scoring.threshold_at_share(scored, wanted) if wanted > 0 else np.inf
        thresholds[arm] = threshold
        share = scoring.right_share(scored, threshold)
        settings.append(
            ComposeSetting(
                arm=arm,
                threshold_nats=threshold if np.isfinite(threshold) else None,
                right_share=share if np.isfinite(share) else None,
                trigger_rate=float(np.mean(scored.sure_P >= threshold)),
            )
        )
    return thresholds, settings


def _sessions(
    entrants: Entrants, text: HeldOut, rules: Rules, thresholds: Mapping[str, float], workers: int
) -> tuple[dict[str, dict[str, sessions.Session]], dict[str, sessions.Session]]:
    """Sessions without Smart Compose by calibration and arm, and sessions with it by arm.

    Apart, because phrases cost attention: one feature's faults must not be another's.
    """
    typed, offered = {}, {}
    for calibration in typist.CALIBRATIONS:
        prepared = script.prepare(text, entrants.vocabulary, rules.locale, calibration, rules.seed)
        typed[calibration.name] = {
            arm: sessions.simulate(prepared, text, model, workers=workers) for arm, model in entrants.arms.items()
        }
        if calibration is typist.MEDIAN:
            offered = {
                arm: sessions.simulate(prepared, text, model, compose_threshold=thresholds[arm], workers=workers)
                for arm, model in entrants.arms.items()
            }
    return typed, offered


def _session_ratios(typed: sessions.Session, offered: sessions.Session) -> dict[str, Ratio]:
    """What is about Smart Compose from the session that offered it, everything else from the one that did not."""
    compose, plain = verdicts.FEATURE_METRICS["SC"], typed.ratios()
    return {metric: ratio for metric, ratio in plain.items() if metric not in compose} | {
        metric: ratio for metric, ratio in offered.ratios().items() if metric in compose
    }


def _sign(typed: Mapping[str, Mapping[str, sessions.Session]], pair: tuple[str, str], metric: str) -> SignCheck:
    changes = {}
    for calibration, by_arm in typed.items():
        new, old = (by_arm[arm].ratios()[metric] for arm in pair)
        changes[calibration] = float(new[0].sum() / new[1].sum() - old[0].sum() / old[1].sum())
    return SignCheck(
        candidate=pair[0],
        baseline=pair[1],
        metric=metric,
        changes=changes,
        stable=verdicts.sign_stable(changes.values()),
    )


def _slices(
    scored: Mapping[str, scoring.Scored], text: HeldOut, entrants: Entrants, rules: Rules
) -> Iterator[SliceRow]:
    first = next(iter(scored.values()))
    sizes = entrants.base_size, entrants.launch_size
    for part, mask_P in slices.masks(first.id_P, text.device_P, text.devices, *sizes, rules.rare_after).items():
        speaking = len(np.unique(text.device_P[mask_P]))
        if part == "unknown_words" or speaking < rules.buckets:
            continue
        tables = {arm: each.ratios(mask_P) for arm, each in scored.items()}
        result = intervals.compare(tables, rules.salt, rules.buckets, entrants.pairs)
        for row in result.arms:
            if row.metric in SLICE_METRICS:
                yield SliceRow(part, row.arm, None, row.metric, row.estimate)
        for difference in result.differences:
            if difference.metric in SLICE_METRICS:
                pair = difference.candidate, difference.baseline
                yield SliceRow(part, *pair, difference.metric, difference.absolute)
