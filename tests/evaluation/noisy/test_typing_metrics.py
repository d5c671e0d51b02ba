"""Typing metrics under a budget: exact without noise, bounded for any device, and covered by their intervals."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evaluation.arms.arm import PublicNGram
from evaluation.arms.held_out import HeldOut, Ratio, held_out
from evaluation.comparison import intervals
from evaluation.comparison.compare import Entrants, Rules
from evaluation.comparison.verdicts import delta_error
from evaluation.keyboard import script, sessions, typist
from evaluation.noisy import compare as noisy
from evaluation.noisy import typing_metrics
from evaluation.noisy.estimates import estimate
from evaluation.noisy.questions import (
    MOST_WORDS,
    TYPED,
    TYPING_CLIP_NORM,
    Layout,
    Sums,
    difference,
    vectors,
)
from federated.counts.bounded_sum import released_sum
from pretrain.ngrams.ngram import NGram
from pretrain.randomness.noise import seeded_key
from pretrain.text.words import WordStore, write_words
from tests.helpers.text.typed_text import UNKNOWN, stream, vocabulary
from tests.helpers.text.typed_text import WORDS as POOL

RULES = Rules(("OTF", "NWP"), "en-US", "salt", 1, buckets=10, session_words=100)
PHRASES = replace(RULES, features=("SC",), compose_rate=0.2)
DEVICES = 60
KEY = seeded_key(5)
METRICS = ("prate", "click_through_rate", "words_modified", "errors_left", "words_per_minute")
Vectors = Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]
Table = dict[str, dict[str, Ratio]]


def people(most_sentences: int, seed: int = 0) -> list[list[list[str]]]:
    """Devices of one to ``most_sentences`` sentences, whose next word is often the pool's next."""
    rng, pool = np.random.default_rng(seed), POOL + UNKNOWN

    def sentence() -> list[str]:
        places = [int(rng.integers(len(pool)))]
        for _ in range(5):
            places.append((places[-1] + 1) % len(pool) if rng.random() < 0.7 else int(rng.integers(len(pool))))
        return [pool[place] for place in places]

    return [[sentence() for _ in range(count)] for count in rng.integers(1, most_sentences + 1, size=DEVICES + 30)]


def store_of(tmp_path: Path, owners: list[list[list[str]]]) -> WordStore:
    return write_words(tmp_path, owners)


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> WordStore:
    """Nobody types more words than count, so that every device has the weight of its words."""
    return store_of(tmp_path_factory.mktemp("light"), people(8))


@pytest.fixture(scope="module")
def entrants(light: WordStore) -> Entrants:
    text = stream(held_out(light, np.arange(DEVICES, DEVICES + 30)), vocabulary())
    other = stream(held_out(light, np.arange(DEVICES, DEVICES + 10)), vocabulary())
    arms = {"start": (text, 2), "private": (text, 3), "champion": (other, 2), "ngram": (text, 2)}
    models = {arm: PublicNGram(NGram.fit(seen, vocabulary(), order)) for arm, (seen, order) in arms.items()}
    pairs = (("private", "start"), ("private", "ngram"), ("private", "champion"))
    return Entrants(models, pairs, vocabulary(), 30, len(vocabulary()), (("private", "champion"),))


def data(words: WordStore, devices: np.ndarray | None = None) -> noisy.EvaluationData:
    return noisy.EvaluationData(words, np.arange(DEVICES) if devices is None else devices, words)


def unbounded(size: int, made: Vectors) -> np.ndarray:
    """Sums without bound and noise."""
    total = np.sum([values for _, values in made()], axis=0)
    assert total.shape == (size,)
    return total


def at_noise(noise_multiplier: float) -> noisy.Release:
    def release(size: int, made: Vectors) -> np.ndarray:
        return released_sum(made(), size, noise_multiplier, KEY, "evaluation", TYPING_CLIP_NORM)

    return release


def exactly(entrants: Entrants, text: HeldOut, threshold: dict[str, float] | None = None) -> Table:
    """The sessions of this text as the comparison without a budget has them: the oracle."""
    prepared = script.prepare(text, entrants.vocabulary, RULES.locale, typist.MEDIAN, RULES.seed)
    return {
        arm: sessions.simulate(
            prepared, text, entrants.arms[arm], compose_threshold=None if threshold is None else threshold[arm]
        ).ratios()
        for arm in ("private", "start", "champion")
    }


@pytest.mark.slow
def test_without_noise_metrics_and_differences_are_those_of_the_sessions(light: WordStore, entrants: Entrants) -> None:
    compared, _ = noisy.compare(entrants, data(light), RULES, unbounded, 1e-12)
    tables = exactly(entrants, held_out(light, np.arange(DEVICES)))
    kept = {arm: {metric: table[metric] for metric in METRICS} for arm, table in tables.items()}
    pairs = [("private", "start"), ("private", "champion")]
    exact = intervals.compare(kept, RULES.salt, RULES.buckets, pairs)
    for arm in tables:
        for metric in METRICS:
            found, wanted = compared.table.arm(arm, metric), exact.arm(arm, metric)
            assert found.estimate.value == pytest.approx(wanted.estimate.value)
            assert found.numerator / found.denominator == pytest.approx(wanted.estimate.value)
            assert found.denominator == pytest.approx(wanted.denominator)
    for _, other in pairs:
        for metric in METRICS:
            found, wanted = (table.difference("private", other, metric) for table in (compared.table, exact))
            assert found.absolute.value == pytest.approx(wanted.absolute.value, abs=1e-12)
            assert found.relative.value == pytest.approx(wanted.relative.value, abs=1e-12)
            # The jackknife is another estimate of the same error.
            assert found.absolute.standard_error == pytest.approx(wanted.absolute.standard_error, rel=0.1)
            assert found.relative.low <= found.relative.value <= found.relative.high
    assert compared.judged_words == len(held_out(light, np.arange(DEVICES)).word_P)
    assert compared.table.difference("private", "champion", "prate").absolute.value != 0


@pytest.mark.slow
def test_without_noise_phrases_are_those_of_the_sessions(light: WordStore, entrants: Entrants) -> None:
    compared, _ = noisy.compare(entrants, data(light), PHRASES, unbounded, 1e-12)
    thresholds = {row.arm: math.inf if row.threshold_nats is None else row.threshold_nats for row in compared.compose}
    assert thresholds.keys() == {"start", "private", "champion"}
    tables = exactly(entrants, held_out(light, np.arange(DEVICES)), thresholds)
    for metric in ("compose_trigger_rate", "compose_prate"):
        above, below = tables["private"][metric]
        assert compared.table.arm("private", metric).estimate.value == pytest.approx(above.sum() / below.sum())
        for other in ("start", "champion"):
            ours, theirs = tables["private"][metric], tables[other][metric]
            if not theirs[1].sum():
                continue
            found = compared.table.difference("private", other, metric).absolute
            assert found.value == pytest.approx(ours[0].sum() / ours[1].sum() - theirs[0].sum() / theirs[1].sum())
            assert found.standard_error == pytest.approx(delta_error(ours, theirs), rel=0.05)
    # Errors and speed come from sessions without phrases.
    plain = exactly(entrants, held_out(light, np.arange(DEVICES)))["private"]["words_per_minute"]
    assert compared.table.arm("private", "words_per_minute").estimate.value == pytest.approx(
        plain[0].sum() / plain[1].sum()
    )


@pytest.mark.slow
def test_released_metrics_approach_the_exact_ones_as_the_noise_goes_to_zero(
    light: WordStore, entrants: Entrants
) -> None:
    exact = noisy.compare(entrants, data(light), RULES, unbounded, 1e-12)[0].table.arm("private", "words_modified")
    quiet = noisy.compare(entrants, data(light), RULES, at_noise(1e-6), 1e-6)[0].table
    loud = noisy.compare(entrants, data(light), RULES, at_noise(0.2), 0.2)[0].table
    found = {name: table.arm("private", "words_modified").estimate for name, table in (("q", quiet), ("l", loud))}
    # Some devices are scaled down as a whole, at the same rates.
    assert found["q"].value == pytest.approx(exact.estimate.value, rel=0.15)
    assert found["l"].value != found["q"].value
    assert found["l"].standard_error > found["q"].standard_error
    assert found["l"].low < exact.estimate.value < found["l"].high


def test_typing_decides_pairs_that_decide_and_recall_the_others(light: WordStore, entrants: Entrants) -> None:
    compared, _ = noisy.compare(entrants, data(light), RULES, unbounded, 1e-12)
    judged = {(row.baseline, row.feature): row for row in compared.verdicts}
    assert {key: row.primary for key, row in judged.items()} == {
        (other, feature): primary if other != "ngram" else "top1_recall"
        for other in ("start", "ngram", "champion")
        for feature, primary in (("OTF", "words_modified"), ("NWP", "prate"))
    }
    checked = {check.metric for check in judged["champion", "OTF"].checks}
    assert checked == {"words_modified", "words_per_minute", "errors_left", "top1_recall", "top3_recall"}
    assert not any(row.missing for row in compared.verdicts)
    assert not [row for row in compared.table.arms if row.arm == "ngram" and row.metric == "prate"]


def test_a_metric_that_noise_exceeds_is_missing_and_does_not_pass(light: WordStore, entrants: Entrants) -> None:
    compared, _ = noisy.compare(entrants, data(light), RULES, at_noise(50.0), 50.0)
    verdict = next(row for row in compared.verdicts if (row.baseline, row.feature) == ("start", "OTF"))
    assert {"words_modified", "words_per_minute", "errors_left"} <= set(verdict.missing)
    assert not verdict.passes
    assert compared.judged_words > 0


def test_nothing_but_the_release_leaves(light: WordStore, entrants: Entrants) -> None:
    """Whatever the devices typed: with the same noisy sums the comparison is the same, to the last digit."""
    released = np.abs(np.random.default_rng(5).normal(60, 2, len(noisy.layout(entrants, RULES))))
    told = [
        noisy.compare(entrants, data(light, devices), RULES, lambda size, made: released, 0.1)[0].to_json()
        for devices in (np.arange(DEVICES), np.arange(30, 30 + DEVICES))
    ]
    assert told[0] == told[1]


# Texts of one device that might move what others add, or more than its share of a sum.
ADVERSARIAL = {
    "silent": [],
    "one endless sentence": [["the"] * 600],
    "one endless word": [["a" * 400]] * 30,
    "characters of no key": [["né", "ñandú", "1984", "🙂", "ß", "čeština"]] * 20,
    "only words of no vocabulary": [[word] * 9 for word in UNKNOWN] * 9,
    "a thousand sentences of a word": [["to"]] * 1000,
}


def of_all(words: WordStore, entrants: Entrants, rules: Rules) -> dict[str, np.ndarray]:
    settings = noisy.phrase_settings(entrants, held_out(words, np.arange(DEVICES, DEVICES + 30)), rules, 1)
    return noisy.parts(entrants, held_out(words, np.arange(DEVICES)), rules, settings)


@pytest.mark.slow
@pytest.mark.parametrize("name", ADVERSARIAL)
def test_no_device_changes_a_bit_of_what_another_adds(tmp_path: Path, entrants: Entrants, name: str) -> None:
    """The sum's sensitivity is one device's bound only if a device moves its own vector alone."""
    owners, changed = people(8), 7
    there = of_all(store_of(tmp_path / "there", owners), entrants, PHRASES)
    owners[changed] = ADVERSARIAL[name]
    other = of_all(store_of(tmp_path / "other", owners), entrants, PHRASES)
    assert there.keys() == other.keys()
    rest = np.arange(DEVICES) != changed
    for sum_name in there:
        np.testing.assert_array_equal(there[sum_name][rest], other[sum_name][rest], err_msg=sum_name)
    assert other[TYPED][changed] != there[TYPED][changed]


@pytest.mark.slow
def test_no_device_moves_the_release_by_more_than_its_bound(tmp_path: Path, entrants: Entrants) -> None:
    """Neighbours with the same noise: the largest difference is the bound, and adversaries reach it."""
    owners, layout, moved = people(8), noisy.layout(entrants, PHRASES), {}
    for name, text in ADVERSARIAL.items():
        sums = []
        for place, typed in enumerate((text, [])):
            owners[7] = typed
            added = of_all(store_of(tmp_path / f"{name}-{place}", owners), entrants, PHRASES)
            sums.append(
                released_sum(vectors(layout, added), len(layout), 2.0**-24, KEY, "evaluation", layout.clip_norm)
            )
        moved[name] = float(np.linalg.norm(sums[0] - sums[1])) / layout.clip_norm
    assert max(moved.values()) <= 1 + 1e-9
    assert max(moved.values()) > 0.99
    assert moved["silent"] == 0


def test_any_counts_of_a_device_are_bounded() -> None:
    """Counts that no session gives: negative, huge, not finite; alone they are clipped, or count as nothing."""
    layout = Layout(typing_metrics.questions(["start", "champion"], ("SC",)))
    rng = np.random.default_rng(0)
    for scale in (1e-9, 1.0, 50.0, 1e6, 1e200, np.inf, np.nan):
        added = {name: scale * rng.normal(size=3) for name in layout.weights}
        sums = [
            released_sum(rows, len(layout), 2.0**-24, KEY, "evaluation", layout.clip_norm)
            for rows in (vectors(layout, added), [])
        ]
        assert np.linalg.norm(sums[0] - sums[1]) <= 3 * layout.clip_norm * (1 + 1e-9)


def test_devices_and_words_to_type_are_chosen_without_looking(
    light: WordStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typing_metrics, "MOST_DEVICES", 20)
    chosen = []
    for words in (light, store_of(tmp_path, people(40, seed=3))):
        text = held_out(words, np.arange(DEVICES))
        again = text.only(typing_metrics.typed_again(text, seed=1))
        chosen.append(set(again.device_S.tolist()))
        words_D = np.bincount(again.device_P, minlength=DEVICES)
        assert words_D.max() < MOST_WORDS + 6, "a sentence has six words"
        all_D = np.bincount(text.device_P, minlength=DEVICES)
        held = np.isin(np.arange(DEVICES), again.device_S)
        np.testing.assert_array_equal(words_D[held] >= np.minimum(all_D[held], MOST_WORDS), True)
        # The first sentences of each.
        np.testing.assert_array_equal(
            again.number_S,
            text.number_S[np.isin(text.device_S, again.device_S)][
                typing_metrics.typed_again(text, 1)[text.starts_S][np.isin(text.device_S, again.device_S)]
            ],
        )
    assert chosen[0] == chosen[1]
    assert len(chosen[0]) == 20


def test_where_nobody_typed_the_release_is_made_all_the_same(tmp_path: Path, entrants: Entrants) -> None:
    """Noise has been drawn by then, so an error would tell."""
    silent = store_of(tmp_path, [[] for _ in range(DEVICES)])
    text = held_out(silent, np.arange(DEVICES))
    added = noisy.parts(entrants, text, PHRASES)
    layout = noisy.layout(entrants, PHRASES)
    assert layout.weights.keys() <= added.keys()
    assert not any(values.any() for values in added.values())


def pool(seed: int, devices: int = 20_000) -> dict[str, np.ndarray]:
    """Events of many devices: heavy and light ones, each with rates of its own, under two arms."""
    rng = np.random.default_rng(seed)
    words = np.minimum(np.exp(rng.normal(4.0, 1.0, devices)).astype(int) + 1, 60)
    added = {TYPED: words.astype(float)}
    for name, rate, change in (("prate", 0.1, 0.15), ("words_modified", 0.2, 0.1), ("errors_left", 0.02, 0.2)):
        ours = rng.binomial(words, rng.beta(20 * rate, 20 * (1 - rate), devices))
        added |= {name: ours, difference(name, "start"): ours - rng.binomial(ours, 1 - change)}
    time = words * rng.gamma(20, 0.04, devices)
    added |= {"typing_time": time, difference("typing_time", "start"): -0.04 * time * rng.gamma(2, 0.5, devices)}
    ours, theirs = (rng.binomial(words, rng.beta(4, 36, devices)) for _ in range(2))
    both = np.minimum(ours, theirs)
    taken, theirs_taken = rng.binomial(ours, 0.3), rng.binomial(both, 0.25)
    added |= {"compose_trigger_rate": ours, difference("compose_trigger_rate", "start"): ours - both}
    added |= {"compose_prate": taken, difference("compose_prate", "start"): taken - theirs_taken}
    return {name: np.asarray(values, dtype=float) for name, values in added.items()} | {"words": added[TYPED]}


@pytest.mark.parametrize("name", ["prate", "words_per_minute", "compose_trigger_rate", "compose_prate"])
def test_figures_about_a_baseline_have_the_errors_of_the_delta_method(name: str) -> None:
    added, metric = pool(1, 300), typing_metrics.metrics(("SC",))[name]
    layout = Layout(typing_metrics.questions(["start"], ("SC",)))
    sums = layout.read(np.sum([row for _, row in vectors(layout, added)], axis=0), 0.0)
    capped = {key: values / np.maximum(added[TYPED], MOST_WORDS) for key, values in added.items()}
    sides = metric.ratio.numerator, metric.ratio.denominator
    ours = tuple(capped[side] for side in sides)
    theirs = tuple(capped[side] - capped.get(difference(side, "start"), 0.0) for side in sides)
    new, old = (above.sum() / below.sum() for above, below in (ours, theirs))
    nothing = (np.zeros(300), ours[1])
    # Of a quotient: the influence of one ratio minus that of the other, which is multiplied by the quotient.
    relative = delta_error((ours[0] / old, ours[1]), (theirs[0] * new / old**2, theirs[1]))
    for figure, value, error in (
        ("level", old, delta_error(theirs, nothing)),
        ("gain", new - old, delta_error(ours, theirs)),
        ("relative", new / old - 1, relative),
    ):
        made = estimate(metric.against("start", figure), sums, 0.95)
        assert made.value == pytest.approx(value)
        assert made.standard_error == pytest.approx(error, rel=0.01)


def test_noise_of_typing_is_in_its_intervals() -> None:
    layout = Layout(typing_metrics.questions(["start"], ("SC", "OTF")))
    total = np.sum([row for _, row in vectors(layout, pool(1, 300))], axis=0)
    rows = {}
    for z in (1e-9, 1.0):
        arms, gains = typing_metrics.rows(layout.read(total, z * layout.clip_norm), "private", ["start"], PHRASES)
        rows[z] = {(row.arm, row.metric): row.estimate for row in arms} | {row.metric: row.absolute for row in gains}
    assert rows[1e-9].keys() == rows[1.0].keys()
    for name, quiet in rows[1e-9].items():
        loud = rows[1.0][name]
        assert loud.value == pytest.approx(quiet.value)
        assert loud.standard_error > quiet.standard_error
        assert loud.high - loud.low > quiet.high - quiet.low


def coverage(noise_multiplier: float, devices: int, launches: int) -> dict[tuple[str, str], tuple[int, float]]:
    """Launches with an interval, and the share of these that covers, by figure and metric; devices are drawn from many.

    It makes the table of benchmarks/results/2026-11-25-noisy-typing.md.
    """
    rng, layout = np.random.default_rng(2), Layout(typing_metrics.questions(["start"], PHRASES.features))
    people_DM = np.stack([row for _, row in vectors(layout, pool(3))])
    people_DM *= np.minimum(1, layout.clip_norm / np.linalg.norm(people_DM, axis=1))[:, None]

    def of(sums: Sums) -> dict[tuple[str, str], intervals.Estimate]:
        arms, gains = typing_metrics.rows(sums, "private", ["start"], PHRASES)
        found = {("level", row.metric): row.estimate for row in arms if row.arm == "private"}
        found |= {("gain", row.metric): row.absolute for row in gains}
        return found | {("relative", row.metric): row.relative for row in gains if row.relative is not None}

    truth = {name: made.value for name, made in of(layout.read(people_DM.sum(axis=0), 1e-12)).items()}
    covered, made_of = dict.fromkeys(truth, 0), dict.fromkeys(truth, 0)
    deviation = noise_multiplier * layout.clip_norm
    for _ in range(launches):
        total = people_DM[rng.integers(len(people_DM), size=devices)].sum(axis=0)
        for name, made in of(layout.read(total + deviation * rng.normal(size=len(total)), deviation)).items():
            made_of[name] += 1
            covered[name] += made.low <= truth[name] <= made.high
    return {name: (made_of[name], covered[name] / max(made_of[name], 1)) for name in truth}


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("noise_multiplier", [0.5, 2.0])
def test_intervals_of_typing_cover(noise_multiplier: float) -> None:
    launches = 400
    shares = {
        name: share for name, (made, share) in coverage(noise_multiplier, 600, launches).items() if made > launches / 2
    }
    assert {name[1] for name in shares} >= {*METRICS, "compose_trigger_rate"}
    # 95%, and three and a half standard deviations of 400 launches.
    assert min(shares.values()) >= 0.95 - 0.038, shares
    assert max(share for name, share in shares.items() if not name[1].startswith("compose")) <= 0.95 + 0.038, shares
