"""The whole offline comparison: every arm on the same held-out devices, by word, by session, by slice.

Shape legend: P words, D devices.

Launches, benchmarks and notebooks make this one call. Next-word metrics come from all held-out words. The arms that
decide have session metrics too: enough words for short intervals are typed again by the median calibration, once for
the strip and the corrections and, where Smart Compose is a feature of the launch, once more for its phrases. The other
calibrations type the first ``session_words`` of them and must not contradict. Nothing here is differentially private.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from evaluation.arms.arm import NextWord
from evaluation.arms.held_out import HeldOut, Ratio, held_out
from evaluation.comparison import intervals, phrases, scoring, slices, verdicts
from evaluation.comparison.intervals import AbResult
from evaluation.comparison.results import Comparison, ComposeSetting, SliceRow
from evaluation.config import COMPOSE_RATE, CONFIDENCE, MOST_TYPED, RARE_AFTER
from evaluation.features import FEATURES
from evaluation.keyboard import script, sessions, typist
from pretrain import progress
from pretrain.text.vocabulary import Vocabulary
from pretrain.text.words import WordStore

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
      arms: by name, all in ``vocabulary``; the first of those that decide sets the rate of Smart Compose.
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
        """Pairs that decide the launch: people of every calibration type under their arms alone."""
        return (self.pairs[0], *self.also_decisive)

    @property
    def deciding(self) -> list[str]:
        """Arms of the decisive pairs, in the order of ``arms``."""
        return [arm for arm in self.arms if any(arm in pair for pair in self.decisive)]


@dataclass(frozen=True)
class Rules:
    """Rules of a comparison; the same for every arm.

    Attributes:
      features: of the launch; each has a primary metric of its own (``evaluation.features``).
      locale: of the simulated keyboard.
      salt: of the buckets.
      seed: of the simulated typists.
      buckets: least number of devices.
      session_words: least number of words typed again under the deciding arms; 0 for none.
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
    result = intervals.compare(tables, rules.salt, rules.buckets, pairs, rules.confidence)
    settings: tuple[ComposeSetting, ...] = ()
    signs: list[verdicts.SignCheck] = []
    session_words = judged_words = 0
    if "SC" in rules.features:
        settings = _thresholds(entrants, devices, rules, workers)
    if rules.session_words:
        thresholds = {row.arm: np.inf if row.threshold_nats is None else row.threshold_nats for row in settings}
        long = held_out(devices.words, devices.test, _words_to_type(result, entrants, rules))
        judged_words = len(long.word_P)
        typed = _typed_again(entrants, long, rules, thresholds, workers)
        short = held_out(devices.words, devices.test, rules.session_words)
        session_words = len(short.word_P)
        signs = _signs(entrants, short, rules, typed, workers)
        by_typing = intervals.compare(typed, rules.salt, rules.buckets, entrants.decisive, rules.confidence)
        result = intervals.joined(result, by_typing)
        tables |= {arm: tables[arm] | table for arm, table in typed.items()}
    deciding = entrants.decisive if rules.session_words else ()
    equal_rate = any(row.equal == "rate" for row in settings)
    shown = [row.metric for row in result.differences if (row.candidate, row.baseline) == pairs[0]]
    return Comparison(
        table=result,
        verdicts=tuple(
            verdicts.verdict(
                result,
                *pair,
                FEATURES[name].decides(typed=pair in deciding, equal_rate=equal_rate),
                verdicts.guardrails(pair[1], typed=pair in deciding),
                name,
            )
            for pair in pairs
            for name in entrants.features(pair[1], rules.features)
        ),
        second_opinions=tuple(verdicts.second_opinions(tables, result, *pairs[0], shown, rules.seed)),
        slices=tuple(_slices(scored, text, entrants, rules)),
        head_words=tuple(row for arm, each in scored.items() for row in slices.head_words(arm, each)),
        variety={arm: slices.variety(each) for arm, each in scored.items()},
        compose=settings,
        signs=tuple(signs),
        session_words=session_words,
        judged_words=judged_words,
    )


def _thresholds(entrants: Entrants, devices: Devices, rules: Rules, workers: int) -> tuple[ComposeSetting, ...]:
    """Smart Compose thresholds of the deciding arms, from devices outside the comparison."""
    # Twice the words of the sessions, since the noise of a threshold depends on its sample.
    text = held_out(devices.words, devices.tuning, 2 * rules.session_words or MOST_TYPED)
    if not len(text.word_P):
        raise ValueError(
            "devices.tuning: no word to set thresholds on; bring more devices or set ab_test.session_words to 0"
        )
    arms = {arm: entrants.arms[arm] for arm in entrants.deciding}
    return phrases.settings(arms, phrases.Tuning(text, entrants.vocabulary, rules.compose_rate), workers)


def _words_to_type(result: AbResult, entrants: Entrants, rules: Rules) -> int:
    """Number of words for the planned standard error of decisive pairs, if there are enough.

    The scores of all held-out words are known before typing, so the length needs no pilot session.
    """
    wanted = rules.session_words
    for pair in entrants.decisive:
        relative = result.difference(*pair, "top3_recall").relative
        words = int(result.arm(pair[0], "top3_recall").denominator)
        # A baseline that is never right gives no estimate of the length.
        wanted = max(wanted, MOST_TYPED if relative is None else verdicts.planned_words(relative, words))
    return max(min(wanted, MOST_TYPED), rules.session_words)


def _typed_again(
    entrants: Entrants, text: HeldOut, rules: Rules, thresholds: Mapping[str, float], workers: int
) -> dict[str, dict[str, Ratio]]:
    """Session metrics of the deciding arms.

    Metrics of Smart Compose come from sessions with phrases, all others from sessions without: phrases cost attention,
    and a fault of one feature must not affect another.

    Args:
      thresholds: of Smart Compose by arm; empty where it is no feature of the launch, and no phrase is offered.
    """
    arms, ways = entrants.deciding, (False, True) if thresholds else (False,)
    prepared = script.prepare(text, entrants.vocabulary, rules.locale, typist.MEDIAN, rules.seed)
    words = float(len(ways) * len(arms) * text.lengths_S.sum())
    advance = progress.along(f"typing again under {len(arms)} arms", words)

    def ratios(arm: str, offers: bool) -> Iterator[tuple[str, Ratio]]:
        threshold = thresholds[arm] if offers else None
        session = sessions.simulate(
            prepared, text, entrants.arms[arm], compose_threshold=threshold, workers=workers, advance=advance
        )
        return ((name, each) for name, each in session.ratios().items() if (name in FEATURES["SC"].metrics) == offers)

    return {arm: dict(row for offers in ways for row in ratios(arm, offers)) for arm in arms}


def _signs(
    entrants: Entrants,
    text: HeldOut,
    rules: Rules,
    typed: Mapping[str, Mapping[str, Ratio]],
    workers: int,
) -> list[verdicts.SignCheck]:
    """The decisive pairs under every calibration: the median on all words, the others on ``session_words`` of them."""
    tables = {typist.MEDIAN.name: typed}
    others = len(typist.CALIBRATIONS) - 1
    advance = progress.along(f"{others} other kinds of typists", float(others * len(typed) * text.lengths_S.sum()))
    for calibration in typist.CALIBRATIONS:
        if calibration is not typist.MEDIAN:
            prepared = script.prepare(text, entrants.vocabulary, rules.locale, calibration, rules.seed)
            tables[calibration.name] = {
                arm: sessions.simulate(prepared, text, entrants.arms[arm], workers=workers, advance=advance).ratios()
                for arm in typed
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
