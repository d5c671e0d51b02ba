"""The whole offline comparison: every arm on the same held-out devices, by word, by session, by slice.

Shape legend: P words, D devices.

Launches, benchmarks and notebooks make this one call. Next-word metrics come from all held-out words, session metrics
from ``session_words`` of them typed again by the median calibration, once for the strip and the corrections and, where
Smart Compose is a feature of the launch, once more for its phrases. Decisive pairs are typed on more words, for short
intervals, and also by the other calibrations, which must not contradict. Nothing here is differentially private.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from evaluation.arms.arm import NextWord
from evaluation.arms.held_out import HeldOut, Ratio, held_out
from evaluation.comparison import intervals, phrases, scoring, slices, verdicts
from evaluation.comparison.results import Comparison, ComposeSetting, SliceRow
from evaluation.config import COMPOSE_RATE, CONFIDENCE, MOST_TYPED, RARE_AFTER
from evaluation.features import FEATURES
from evaluation.keyboard import script, sessions, typist
from pretrain import progress
from pretrain.vocabulary import Vocabulary
from pretrain.words import WordStore

# The metric of slices, and the metrics in which calibrations must not contradict each other.
SLICE_METRICS = ("top1_recall", "top3_recall")
SIGN_METRICS = ("prate", "words_modified", "words_per_minute", "keystroke_savings", "errors_left")


@dataclass(frozen=True)
class Devices:
    """Held-out devices of a store. Private.

    Attributes:
      words: the store.
      test: owners for the comparison.
      tuning: other owners, for setting thresholds.
    """

    words: WordStore
    test: np.ndarray
    tuning: np.ndarray


@dataclass(frozen=True)
class Entrants:
    """The arms of a comparison, the pairs that are tested, and their common vocabulary.

    Attributes:
      arms: by name, all in ``vocabulary``; the first is the baseline that sets the rate of Smart Compose.
      pairs: ``(candidate, baseline)``; each gets a verdict.
      vocabulary: the largest of all arms: ``base_size`` public words by frequency, then words of the launch,
        ``launch_size`` in all, then words that only another arm holds, such as the champion.
      also_decisive: pairs that decide the launch in addition to the first.
      only: features for which a baseline is compared with the launch; a baseline without an entry, for all.
    """

    arms: Mapping[str, NextWord]
    pairs: tuple[tuple[str, str], ...]
    vocabulary: Vocabulary
    base_size: int
    launch_size: int
    also_decisive: tuple[tuple[str, str], ...] = ()
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def features(self, baseline: str, of: tuple[str, ...]) -> Iterator[str]:
        """The launch's features to which a baseline applies."""
        return (name for name in of if name in self.only.get(baseline, of))

    @property
    def decisive(self) -> tuple[tuple[str, str], ...]:
        """Pairs that decide the launch: typed on more words, and by every calibration."""
        return (self.pairs[0], *self.also_decisive)


@dataclass(frozen=True)
class Rules:
    """Rules of a comparison; the same for every arm.

    Attributes:
      features: of the launch; each has a primary metric of its own (``evaluation.features``).
      locale: of the simulated keyboard.
      salt: of the buckets.
      seed: of the simulated typists.
      buckets: least number of devices.
      session_words: words typed again under every arm; 0 for none.
      compose_rate: share of words before which the baseline may offer a phrase.
      rare_after: public words beyond this many are rare.
      confidence: of each interval.
    """

    features: tuple[str, ...]
    locale: str
    salt: str
    seed: int
    buckets: int
    session_words: int
    compose_rate: float = COMPOSE_RATE
    rare_after: int = RARE_AFTER
    confidence: float = CONFIDENCE


def run(entrants: Entrants, devices: Devices, rules: Rules, workers: int = 1) -> Comparison:
    """Score every arm on the held-out devices and decide each pair.

    Raises:
      ValueError: too few devices for the buckets, no keyboard for the locale, arms of other vocabularies.
    """
    arms, pairs, vocabulary = entrants.arms, entrants.pairs, entrants.vocabulary
    text = held_out(devices.words, devices.test)
    id_P = text.ids(vocabulary)
    advance = progress.along(f"scoring {len(arms)} arms", float(len(arms) * text.lengths_S.sum()))
    scored = {arm: scoring.score(model, text, id_P, workers=workers, advance=advance) for arm, model in arms.items()}
    tables: dict[str, dict[str, Ratio]] = {arm: each.ratios() for arm, each in scored.items()}
    settings: tuple[ComposeSetting, ...] = ()
    signs: list[verdicts.SignCheck] = []
    at_length: dict[str, dict[str, Ratio]] = {}
    judged_words = 0
    if "SC" in rules.features:
        settings = _thresholds(entrants, devices, rules, workers)
    if rules.session_words:
        thresholds = {row.arm: np.inf if row.threshold_nats is None else row.threshold_nats for row in settings}
        long = held_out(devices.words, devices.test, _words_at_length(tables, entrants, rules))
        judged_words, first_P = len(long.word_P), long.first(rules.session_words)
        typed, at_length = _typed_again(entrants, (long, first_P), rules, thresholds, workers)
        for arm, table in tables.items():
            table |= typed[arm]
        signs = _signs(entrants, long.only(first_P), rules, at_length, workers)
    result = intervals.compare(tables, rules.salt, rules.buckets, pairs, rules.confidence)
    if at_length:
        better = intervals.compare(at_length, rules.salt, rules.buckets, entrants.decisive, rules.confidence)
        result = intervals.replaced(result, better)
    typed_again = rules.session_words > 0
    at_rate = {row.arm for row in settings if row.equal == "rate"}
    shown = [row.metric for row in result.differences if (row.candidate, row.baseline) == tuple(pairs[0])]
    longest = {arm: tables[arm] | at_length.get(arm, {}) for arm in pairs[0]}
    return Comparison(
        table=result,
        verdicts=tuple(
            verdicts.verdict(
                result,
                *pair,
                FEATURES[name].decides(typed=typed_again, equal_rate=not at_rate.isdisjoint(pair)),
                verdicts.guardrails(pair[1], typed=typed_again),
                name,
            )
            for pair in pairs
            for name in entrants.features(pair[1], rules.features)
        ),
        second_opinions=tuple(verdicts.second_opinions(longest, result, *pairs[0], shown, rules.seed)),
        slices=tuple(_slices(scored, text, entrants, rules)),
        head_words=tuple(row for arm, each in scored.items() for row in slices.head_words(arm, each)),
        variety={arm: slices.variety(each) for arm, each in scored.items()},
        compose=settings,
        signs=tuple(signs),
        session_words=min(rules.session_words, len(text.word_P)),
        judged_words=judged_words,
    )


def _thresholds(entrants: Entrants, devices: Devices, rules: Rules, workers: int) -> tuple[ComposeSetting, ...]:
    """Smart Compose thresholds of each arm, from devices outside the comparison."""
    # Twice the words of the sessions, since the noise of a threshold depends on its sample.
    text = held_out(devices.words, devices.tuning, 2 * rules.session_words or MOST_TYPED)
    if not len(text.word_P):
        raise ValueError(
            "devices.tuning: no word to set thresholds on; bring more devices or set ab_test.session_words to 0"
        )
    decisive = {arm for pair in entrants.decisive for arm in pair}
    return phrases.settings(
        entrants.arms, decisive, phrases.Tuning(text, entrants.vocabulary, rules.compose_rate), workers
    )


def _words_at_length(tables: Mapping[str, Mapping[str, Ratio]], entrants: Entrants, rules: Rules) -> int:
    """Number of words on which decisive pairs are typed, for the planned standard error if there are enough.

    The scores of all held-out words are known before typing, so the length needs no pilot session.
    """
    result = intervals.compare(tables, rules.salt, rules.buckets, entrants.decisive)
    wanted = rules.session_words
    for pair in entrants.decisive:
        relative = result.difference(*pair, "top3_recall").relative
        words = int(result.arm(pair[0], "top3_recall").denominator)
        # A baseline that is never right gives no estimate of the length.
        wanted = max(wanted, MOST_TYPED if relative is None else verdicts.planned_words(relative, words))
    return max(min(wanted, MOST_TYPED), rules.session_words)


def _typed_again(
    entrants: Entrants,
    texts: tuple[HeldOut, np.ndarray],
    rules: Rules,
    thresholds: Mapping[str, float],
    workers: int,
) -> tuple[dict[str, dict[str, Ratio]], dict[str, dict[str, Ratio]]]:
    """Session metrics of every arm on the first words of a text, and of the decisive pairs' arms on all of it.

    Metrics of Smart Compose come from sessions with phrases, all others from sessions without: phrases cost attention,
    and a fault of one feature must not affect another.

    Args:
      thresholds: of Smart Compose by arm; empty where it is no feature of the launch, and no phrase is offered.
      texts: a text, and a mask ``[P]`` of its first words.
    """
    long, first_P = texts
    short = long.only(first_P)
    of_compose, decisive = FEATURES["SC"].metrics, {arm for pair in entrants.decisive for arm in pair}
    long_script, short_script = (
        script.prepare(each, entrants.vocabulary, rules.locale, typist.MEDIAN, rules.seed) for each in (long, short)
    )
    typed: dict[str, dict[str, Ratio]] = {arm: {} for arm in entrants.arms}
    at_length: dict[str, dict[str, Ratio]] = {arm: {} for arm in entrants.arms if arm in decisive}

    ways = (False, True) if thresholds else (False,)
    words = len(ways) * sum(float((long if arm in decisive else short).lengths_S.sum()) for arm in entrants.arms)
    advance = progress.along(f"typing again under {len(entrants.arms)} arms", words)
    for arm, model in entrants.arms.items():
        at_full = arm in decisive
        text, prepared = (long, long_script) if at_full else (short, short_script)
        for offers in ways:
            threshold = thresholds[arm] if offers else None
            session = sessions.simulate(
                prepared, text, model, compose_threshold=threshold, workers=workers, advance=advance
            )
            first = session.ratios(first_P) if at_full else session.ratios()
            if at_full:
                whole = session.ratios()
                at_length[arm] |= {metric: whole[metric] for metric in whole if (metric in of_compose) == offers}
            typed[arm] |= {metric: first[metric] for metric in first if (metric in of_compose) == offers}
    return typed, at_length


def _signs(
    entrants: Entrants,
    text: HeldOut,
    rules: Rules,
    at_length: Mapping[str, Mapping[str, Ratio]],
    workers: int,
) -> list[verdicts.SignCheck]:
    """The decisive pairs under every calibration: the median on more words, the others on ``session_words``."""
    tables = {typist.MEDIAN.name: at_length}
    others = len(typist.CALIBRATIONS) - 1
    advance = progress.along(f"{others} other kinds of typists", float(others * len(at_length) * text.lengths_S.sum()))
    for calibration in typist.CALIBRATIONS:
        if calibration is not typist.MEDIAN:
            prepared = script.prepare(text, entrants.vocabulary, rules.locale, calibration, rules.seed)
            tables[calibration.name] = {
                arm: sessions.simulate(prepared, text, entrants.arms[arm], workers=workers, advance=advance).ratios()
                for arm in at_length
            }
    by_calibration = {
        name: intervals.compare(
            {arm: {metric: table[metric] for metric in SIGN_METRICS} for arm, table in by_arm.items()},
            rules.salt,
            rules.buckets,
            entrants.decisive,
            rules.confidence,
        )
        for name, by_arm in tables.items()
    }
    return [
        verdicts.sign_check(
            {name: result.difference(*pair, metric) for name, result in by_calibration.items()},
            rules.confidence,
            others * len(SIGN_METRICS),
        )
        for pair in entrants.decisive
        for metric in SIGN_METRICS
        if all(metric not in result.undefined for result in by_calibration.values())
    ]


def _slices(
    scored: Mapping[str, scoring.Scores], text: HeldOut, entrants: Entrants, rules: Rules
) -> Iterator[SliceRow]:
    first = next(iter(scored.values()))
    sizes = entrants.base_size, entrants.launch_size
    for part, mask_P in slices.masks(first.id_P, text.device_P, text.devices, *sizes, rules.rare_after).items():
        speaking = len(np.unique(text.device_P[mask_P]))
        if part == "unknown_words" or speaking < rules.buckets:
            continue
        tables = {arm: each.ratios(mask_P) for arm, each in scored.items()}
        result = intervals.compare(tables, rules.salt, rules.buckets, entrants.pairs, rules.confidence)
        for row in result.arms:
            if row.metric in SLICE_METRICS:
                yield SliceRow(part, row.arm, None, row.metric, row.estimate)
        for difference in result.differences:
            if difference.metric in SLICE_METRICS:
                pair = difference.candidate, difference.baseline
                yield SliceRow(part, *pair, difference.metric, difference.absolute)
