"""Sessions: against a slow replay word by word, arm against itself, batches and workers, direction of effects."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from evaluation.arms import arm as arms
from evaluation.arms.held_out import HeldOut
from evaluation.arms.history import WithHistory
from evaluation.comparison import intervals, scoring
from evaluation.keyboard import layouts as geometry
from evaluation.keyboard import script as keystrokes
from evaluation.keyboard import sessions, typist
from pretrain.config import ModelConfig
from pretrain.model.keyboard_lm import build_model
from pretrain.ngrams.ngram import NGram
from pretrain.text.vocabulary import UNK
from tests.helpers.text.typed_text import WORDS, stream, text, vocabulary

LOCALE = "en-US"


@pytest.fixture
def words(tmp_path: Path) -> HeldOut:
    return text(tmp_path, devices=40)


@pytest.fixture
def script(words: HeldOut) -> keystrokes.Script:
    return keystrokes.prepare(words, vocabulary(), LOCALE, typist.SLOPPY, 3)


def neural(seed: int = 0, scale: float = 6.0) -> arms.Neural:
    model = build_model(ModelConfig(embedding_dim=8, hidden_dim=12, tied=False), len(vocabulary()), seed)
    # An untrained model is unsure of everything; this one has opinions.
    model.output.data *= scale
    return arms.neural(model)


def taught(words: HeldOut, order: int = 3) -> arms.PublicNGram:
    """An n-gram that has seen the very text: the best arm there is."""
    return arms.PublicNGram(NGram.fit(stream(words, vocabulary()), vocabulary(), order))


def order_of(scores: dict[int, float]) -> list[int]:
    return sorted(scores, key=lambda word: (-scores[word], word))


def slow(
    script: keystrokes.Script, words: HeldOut, arm: arms.NextWord, tau: float, weight: float
) -> dict[str, np.ndarray]:
    """Every column of a session, word by word from the description."""
    known = range(4, arm.vocabulary_size)
    keys = geometry.keyboard(LOCALE, "".join({*"".join(words.spellings), *"".join(WORDS)}))
    literals = np.array([keys.characters[c] for c in script.literal_T])
    rows = []
    for start, length in zip(words.starts_S, words.lengths_S, strict=True):
        log_probs, state = arm.start([np.empty(0, np.int64)])
        given = 0
        for p in range(start, start + length):
            meant, logs = int(script.id_P[p]), log_probs[0]
            scores = {w: float(logs[w]) for w in known}
            best = order_of(scores)
            triggered = accepted = False
            waited = 0.0
            if not given and p + 1 < start + length:
                following, _ = arm.step(np.array([best[0]]), state)
                second = order_of({w: float(following[0, w]) for w in known})[0]
                sure = min(scores[best[0]], (scores[best[0]] + following[0, second]) / 2)
                if sure >= tau:
                    triggered, waited = True, script.inspect_seconds
                    if (best[0], second) == (meant, script.id_P[p + 1]) and script.accept_P[p]:
                        given, accepted, waited = 2, True, waited + script.key_seconds_P[p]
            literal = "".join(literals[script.touches_P1[p] : script.touches_P1[p + 1]])
            dark = _typed(script, p, literal, words.spellings[words.word_P[p]], logs, scores, weight)
            row = dark | {"dark_keystrokes": dark["keystrokes"], "dark_seconds": dark["seconds"], "in_strip": False}
            if given:
                row |= _without_an_error(meant) | {"how": 0, "keystrokes": int(accepted), "seconds": 0.0}
                given -= 1
            else:
                row |= {"in_strip": meant in best[:3]} | _chosen(
                    script, p, meant, scores, best, weight, dark["seconds"]
                )
            row |= {"triggered": triggered, "accepted": accepted, "seconds": row["seconds"] + waited}
            rows.append(row)
            log_probs, state = arm.step(np.array([row["committed"]]), state)
    return {f"{name}_P": np.array([row[name] for row in rows]) for name in rows[0]}


def _without_an_error(meant: int) -> dict:
    return {"committed": meant, "right": True, "noticed": False, "corrected": False, "modified": False, "backspaces": 0}


def _chosen(script, p, meant, scores, best, weight, typed_seconds) -> dict:
    key, seconds = script.key_seconds_P[p], script.inspect_seconds * script.look_P[p]
    if meant in best[:3] and script.look_P[p] and script.pick_P[p]:
        return _without_an_error(meant) | {"how": 2, "keystrokes": 1, "seconds": seconds + key}
    for e in range(script.looks_P1[p], script.looks_P1[p + 1]):
        seconds += script.inspect_seconds
        shown = {}
        for w in range(3):
            for place in range(script.first_EW[e, w], script.last_EW[e, w]):
                other = int(script.word_at[place])
                shown[other] = script.fit_EW[e, w] + weight * scores[other]
        if meant in order_of(shown)[:3] and script.look_pick_E[e]:
            backs = int(script.look_back_E[e])
            keys = {"keystrokes": script.look_key_E[e] + 2 * backs + 1, "backspaces": backs, "modified": backs > 0}
            seconds += script.look_seconds_E[e] + key
            return _without_an_error(meant) | keys | {"how": 3, "seconds": seconds}
    return {"seconds": seconds + typed_seconds}


def _typed(script, p, literal, spelled, logs, scores, weight) -> dict:
    part = slice(script.readings_P1[p], script.readings_P1[p + 1])
    read = {
        int(w): float(s) + weight * scores[int(w)]
        for w, s in zip(script.reading_id[part], script.reading_score[part], strict=True)
    }
    committed = order_of(read)[0] if read else -1
    if script.literal_id_P[p] < 0:
        as_typed = script.literal_P[p] + weight * (logs[UNK] - 2.5 * script.touches_P[p])
        if not read or as_typed > read[committed]:
            committed = -1
    stands = literal if committed < 0 else WORDS[committed - 4]
    right, meant = stands == spelled, int(script.id_P[p])
    noticed = not right and bool((script.notice_typed_P if committed < 0 else script.notice_P)[p])
    backs, key = int(script.taken_back_P[p]), script.key_seconds_P[p]
    row = {"how": 4, "right": right, "noticed": noticed, "modified": noticed or backs > 0, "backspaces": backs}
    row |= {"corrected": stands != literal, "keystrokes": len(literal) + 2 * backs + 1}
    row["seconds"] = script.seconds_P[p] + key
    if noticed:
        shared = next((i for i, (a, b) in enumerate(zip(stands, spelled, strict=False)) if a != b), None)
        shared = min(len(stands), len(spelled)) if shared is None else shared
        away, again = len(stands) - shared + 1, len(spelled) - shared + 1
        row["backspaces"] += away
        row["keystrokes"] += away + again
        row["seconds"] += 1.5 + (0.5 * away + again) * key
    row["committed"] = meant if right or noticed else UNK if committed < 0 else committed
    return row


@pytest.mark.slow
@pytest.mark.parametrize(("name", "weight"), [("neural", 1.0), ("ngram", 1.0), ("ngram", 0.0)])
def test_a_session_is_what_the_slow_replay_says(words, script, name, weight) -> None:
    arm = neural() if name == "neural" else taught(words)
    tau = float(np.log(0.12))
    got = sessions.simulate(script, words, arm, compose_threshold=tau, weight=weight, batch_sentences=7)
    expected = slow(script, words, arm, tau, weight)
    for column, values in expected.items():
        if column.endswith("seconds_P"):
            np.testing.assert_allclose(getattr(got, column), values, rtol=1e-12, err_msg=column)
        else:
            np.testing.assert_array_equal(getattr(got, column), values, err_msg=column)
    assert {field.name for field in fields(got)} == {*expected, "device_P", "letters_P", "pick_chance_P", "devices"}
    if name == "ngram":
        assert set(got.how_P) == {0, 2, 3, 4}, "every way of entering a word occurs"
        assert got.noticed_P.any()
        assert (~got.right_P & ~got.noticed_P).any()
        assert (got.corrected_P & got.right_P).any() == (weight > 0), "touches alone correct nothing"
        assert (got.modified_P & (got.how_P == 3)).any()


def test_an_arm_against_itself_is_exactly_zero_and_another_is_not(words, script) -> None:
    one, again, other = (
        sessions.simulate(script, words, arm, compose_threshold=-2.0).ratios()
        for arm in (neural(), neural(), taught(words))
    )
    result = intervals.compare({"a": one, "b": again, "c": other}, "salt", 10, [("b", "a"), ("c", "a"), ("c", "b")])
    same = [row for row in result.differences if (row.candidate, row.baseline) == ("b", "a")]
    assert len(same) >= 8
    for row in same:
        assert (row.absolute.value, row.absolute.low, row.absolute.high) == (0, 0, 0)
    better = result.difference("c", "a", "strip_accuracy").absolute
    assert better.low > 0
    assert result.difference("c", "a", "words_per_minute").absolute.value > 0
    assert result.difference("c", "a", "keystroke_savings").absolute.low > 0


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "workers"), [(1, 1), (3, 2), (1000, 3)])
def test_nothing_depends_on_batches_or_workers(words, script, batch, workers) -> None:
    for arm in (neural(), WithHistory(taught(words), 0.3)):
        plain = sessions.simulate(script, words, arm, compose_threshold=-2.0)
        other = sessions.simulate(script, words, arm, compose_threshold=-2.0, batch_sentences=batch, workers=workers)
        for name in ("how_P", "right_P", "keystrokes_P", "seconds_P", "triggered_P", "accepted_P", "in_strip_P"):
            np.testing.assert_array_equal(getattr(plain, name), getattr(other, name), err_msg=name)


@pytest.mark.slow
def test_equal_rows_of_a_model_are_no_lottery(words, script) -> None:
    model = build_model(ModelConfig(embedding_dim=8, hidden_dim=12, tied=False), len(vocabulary()), 0)
    model.output.data[10:20] = model.output.data[10]
    model.output_bias.data[10:20] = 3.0
    arm = arms.neural(model)
    runs = [sessions.simulate(script, words, arm, batch_sentences=size) for size in (1, 5, 300)]
    for run in runs[1:]:
        np.testing.assert_array_equal(run.in_strip_P, runs[0].in_strip_P)
        np.testing.assert_array_equal(run.how_P, runs[0].how_P)
    assert runs[0].in_strip_P.any()


def test_metrics_by_hand() -> None:
    run = sessions.Session(
        device_P=np.array([0, 0, 0, 2]),
        letters_P=np.array([3, 4, 2, 5]),
        how_P=np.array([0, 2, 4, 4]),
        in_strip_P=np.array([False, True, True, False]),
        pick_chance_P=np.array([0.3, 0.3, 0.3, 0.2]),
        committed_P=np.array([4, 5, 6, 7]),
        right_P=np.array([True, True, False, False]),
        noticed_P=np.array([False, False, True, False]),
        corrected_P=np.array([False, False, True, False]),
        modified_P=np.array([False, False, True, True]),
        backspaces_P=np.array([0, 0, 3, 1]),
        keystrokes_P=np.array([1, 1, 9, 8]),
        seconds_P=np.array([0.5, 1.0, 2.0, 2.5]),
        dark_keystrokes_P=np.array([4, 7, 9, 8]),
        dark_seconds_P=np.array([1.0, 1.0, 2.0, 2.5]),
        triggered_P=np.array([True, False, True, False]),
        accepted_P=np.array([True, False, False, False]),
        devices=3,
    )
    wanted = {
        "prate": ([0.6, 0, 0], [2, 0, 1]),
        "strip_accuracy": ([2, 0, 0], [2, 0, 1]),
        "click_through_rate": ([0.6, 0, 0], [6, 0, 3]),
        "compose_trigger_rate": ([2, 0, 0], [3, 0, 1]),
        "compose_prate": ([1, 0, 0], [2, 0, 0]),
        "words_modified": ([1, 0, 1], [3, 0, 1]),
        "errors_left": ([0, 0, 1], [3, 0, 1]),
        "words_per_minute": ([3, 0, 1], [3.5 / 60, 0, 2.5 / 60]),
        "keystroke_savings": ([9, 0, 0], [20, 0, 8]),
    }
    assert run.ratios().keys() == wanted.keys()
    for name, (numerator, denominator) in wanted.items():
        np.testing.assert_allclose(run.ratios()[name][0], numerator, err_msg=name)
        np.testing.assert_allclose(run.ratios()[name][1], denominator, err_msg=name)


def test_a_longer_text_begins_with_the_sessions_of_a_shorter_one(words, script) -> None:
    first_P = (words.starts_S < 60)[words.sentence_P]
    short = words.only(first_P)
    assert 60 <= len(short.word_P) < len(words.word_P) / 2
    for arm in (neural(), taught(words)):
        long = sessions.simulate(script, words, arm, compose_threshold=-2.0)
        prepared = keystrokes.prepare(short, vocabulary(), LOCALE, typist.SLOPPY, 3)
        alone = sessions.simulate(prepared, short, arm, compose_threshold=-2.0)
        for name in ("keystrokes_P", "committed_P", "seconds_P", "accepted_P"):
            np.testing.assert_allclose(getattr(long, name)[first_P], getattr(alone, name), rtol=1e-12, err_msg=name)


@pytest.mark.slow
@pytest.mark.statistical
def test_picks_by_their_chance_are_the_mean_of_picks_and_vary_less(words) -> None:
    arm = taught(words, 2)
    counted, by_chance = [], []
    for seed in range(60):
        prepared = keystrokes.prepare(words, vocabulary(), LOCALE, typist.MEDIAN, seed)
        run = sessions.simulate(prepared, words, arm)
        counted.append(np.mean(run.how_P == 2))
        picks_D, events_D = run.ratios()["prate"]
        by_chance.append(picks_D.sum() / events_D.sum())
    apart = np.array(counted) - np.array(by_chance)
    assert abs(apart.mean()) < 4 * apart.std() / np.sqrt(60)
    assert np.mean(by_chance) > 0.05
    assert np.std(by_chance) < 0.8 * np.std(counted)


def test_another_vocabulary_is_refused(words, script) -> None:
    small = build_model(ModelConfig(embedding_dim=8, hidden_dim=12, tied=False), 20, 0)
    with pytest.raises(ValueError, match="speaks 20 words, the script 34"):
        sessions.simulate(script, words, arms.neural(small))
    padded = sessions.simulate(script, words, arms.neural(small, len(vocabulary())))
    assert not padded.in_strip_P[script.id_P >= 20].any(), "a word the arm lacks is never in its strip"
    with pytest.raises(ValueError, match="below the model's 20"):
        arms.neural(small, 10)


def test_compose_thresholds_compare_like_with_like(words) -> None:
    ids = words.ids(vocabulary())
    scored = scoring.score(taught(words), words, ids, compose_floor=-50.0)
    tau = scoring.threshold_at_rate(scored, 0.1)
    assert np.mean(scored.sure_P >= tau) == pytest.approx(0.1, abs=0.01)
    share = scoring.right_share(scored, tau)
    found = scoring.threshold_at_share(scored, share)
    assert scoring.right_share(scored, found) >= share
    assert np.sum(scored.sure_P >= found) >= np.sum(scored.sure_P >= tau)
    looser = np.unique(scored.sure_P[(scored.sure_P < found) & np.isfinite(scored.sure_P)])
    assert all(scoring.right_share(scored, value) < share for value in looser), "the lowest that is right as often"
    assert scoring.threshold_at_share(scored, 1.01) == np.inf
    # Nothing between the floor and what was looked at: at any threshold both passes show the same phrases.
    floored = scoring.score(taught(words), words, ids, compose_floor=tau)
    np.testing.assert_array_equal(floored.sure_P >= tau, scored.sure_P >= tau)
    assert floored.sure_P[np.isfinite(floored.sure_P)].min() >= tau
    with pytest.raises(ValueError, match="compose_rate: 0"):
        scoring.threshold_at_rate(scored, 0)
