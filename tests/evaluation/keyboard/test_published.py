"""Simulated typists against studies of people, and keystrokes saved by models of known quality."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation.arms.arm import PublicNGram
from evaluation.arms.held_out import HeldOut, held_out
from evaluation.comparison import scoring
from evaluation.keyboard import script, sessions, typist
from evaluation.keyboard.strip import COMPLETED, PICKED
from federated.config.population import ChitchatPopulation
from federated.devices import store as population
from pretrain.ngrams.ngram import NGram
from pretrain.text.packaged import documents, packaged_texts
from pretrain.text.tokenise import sentences
from pretrain.text.vocabulary import SPECIALS, UNK, Vocabulary, from_counts
from pretrain.text.words import write_words
from tests.helpers.typing import published_ranges

LOCALE, WORDS, DEVICES = "en-US", 2000, 100
DOCUMENT = Path(__file__).resolve().parents[3] / "benchmarks" / "results" / "typist.md"
# Share of words that each arm knows in advance; three in ten beyond is what a strip can hold.
SHARES = {"hopeless": 0.0, "poor": 0.08, "good": 0.2, "excellent": 0.35}


@dataclass(frozen=True)
class Knowing:
    """An arm of any accuracy: of some words it knows that they come next, the others it takes as they come.

    All sentences must run in step, in the order that ``sessions.batches`` gives: that is how it knows where it is.

    Attributes:
      known_SP: the word to come at each place of each sentence, ``<unk>`` where the arm does not know.
    """

    log_probs_V: np.ndarray
    known_SP: np.ndarray
    order_S: np.ndarray

    @property
    def vocabulary_size(self) -> int:
        """Words of its vocabulary."""
        return len(self.log_probs_V)

    def start(self, earlier_B: Sequence[np.ndarray]) -> tuple[np.ndarray, Any]:
        """See ``NextWord``."""
        assert len(earlier_B) == len(self.order_S)
        return self._at(self.order_S, 0)

    def step(self, words_B: np.ndarray, state: Any) -> tuple[np.ndarray, Any]:
        """See ``NextWord``."""
        return self._at(state[0], min(state[1] + 1, self.known_SP.shape[1] - 1))

    def rows(self, state: Any, rows_B: np.ndarray) -> Any:
        """See ``NextWord``."""
        return state[0][rows_B], state[1]

    def _at(self, sentence_B: np.ndarray, place: int) -> tuple[np.ndarray, Any]:
        log_probs_BV = np.tile(self.log_probs_V, (len(sentence_B), 1))
        known_B = self.known_SP[sentence_B, place]
        sure = np.flatnonzero(known_B != UNK)
        log_probs_BV[sure] += np.log(0.5)
        log_probs_BV[sure, known_B[sure]] = np.log(0.5)
        return log_probs_BV, (sentence_B, place)


Typed = tuple[HeldOut, Vocabulary]


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Typed:
    """Packaged text, one sentence after another to each device, and its most frequent words."""
    spoken = itertools.islice(_sentences(), 1500)
    owners: list[list[list[str]]] = [[] for _ in range(DEVICES)]
    for number, sentence in enumerate(spoken):
        owners[number % DEVICES].append(sentence)
    store = write_words(tmp_path_factory.mktemp("typed"), owners)
    return held_out(store, np.arange(DEVICES), WORDS), from_counts(store.word_counts(), 1000)


def _sentences() -> Iterator[list[str]]:
    for _, document in documents(packaged_texts(LOCALE)):
        yield from (sentence for sentence in sentences(document, LOCALE) if 3 <= len(sentence) <= 20)


def knowing(typed: Typed, share: float, *, ordered: bool = True) -> Knowing:
    """An arm that knows this share of the words to come, those of a smaller share among them."""
    text, vocabulary = typed
    ids_P = text.ids(vocabulary)
    known_P = np.where(np.random.default_rng(0).random(len(ids_P)) < share, ids_P, UNK)
    known_SP = np.full((len(text.lengths_S), int(text.lengths_S.max())), UNK)
    known_SP[text.sentence_P, text.place_P] = known_P
    chance_V = 1 / np.arange(5, len(vocabulary) + 5)
    if not ordered:
        # As likely as each other, and words that nobody types a hair before the others.
        chance_V = np.ones(len(vocabulary)) + 1e-6 * (np.bincount(ids_P, minlength=len(vocabulary)) == 0)
    (order_S,) = sessions.batches(text.lengths_S, len(text.lengths_S))
    return Knowing(np.log(chance_V / chance_V.sum()), known_SP, order_S)


def run(typed: Typed, prepared: script.Script, arm: Knowing) -> sessions.Session:
    return sessions.simulate(prepared, typed[0], arm, batch_sentences=len(typed[0].lengths_S))


def prepare(typed: Typed, calibration: typist.Calibration = typist.MEDIAN) -> script.Script:
    return script.prepare(*typed, LOCALE, calibration, 1)


def changed(prepared: script.Script, **fields: np.ndarray) -> script.Script:
    return script.Script(**{name: fields.get(name, getattr(prepared, name)) for name in script.Script.__annotations__})


def rates(session: sessions.Session) -> dict[str, float]:
    return {name: float(n.sum() / d.sum()) for name, (n, d) in session.ratios().items() if d.sum()}


def first_documents(words: int) -> Iterator[list[list[str]]]:
    """Sentences of public documents, until there are so many words."""
    for _, document in documents(packaged_texts(LOCALE)):
        cut = sentences(document, LOCALE)
        words -= sum(map(len, cut))
        yield cut
        if words <= 0:
            return


@pytest.mark.slow
@pytest.mark.statistical
def test_what_follows_lies_where_studies_found_people(tmp_path: Path) -> None:
    """With a public trigram, whose top-3 recall is nearest to the 18 to 19% of Ramaswamy et al. 2020."""
    public = write_words(tmp_path / "public", first_documents(400_000))
    vocabulary = from_counts(public.word_counts(), 8000)
    model = PublicNGram(NGram.fit(public.encode(vocabulary), vocabulary, 3))
    config = ChitchatPopulation(source="chitchat", name="typed", max_words_per_device=400, test_fraction=0.2)
    population.build_store(config, LOCALE, 1, tmp_path / "store")
    store = population.open_store(tmp_path / "store")
    text = held_out(store.words, store.devices("test"), 12_000)
    outside = {}
    for calibration in typist.CALIBRATIONS:
        prepared = script.prepare(text, vocabulary, LOCALE, calibration, 1)
        run = sessions.simulate(prepared, text, model)
        found = published_ranges.measure(run, prepared, text)
        assert found.keys() == {each.name for each in published_ranges.RANGES}
        for each in published_ranges.RANGES:
            if not each.holds(found[each.name], calibration.name):
                outside[calibration.name, each.name] = found[each.name]
    assert not outside


@pytest.mark.slow
@pytest.mark.parametrize("calibration", typist.CALIBRATIONS, ids=lambda each: each.name)
def test_a_better_model_is_picked_more_saves_more_and_is_not_slower(
    typed: Typed, calibration: typist.Calibration
) -> None:
    prepared = prepare(typed, calibration)
    arms = [knowing(typed, share) for share in SHARES.values()]
    recall = [
        np.mean(scoring.score(arm, typed[0], typed[0].ids(typed[1]), batch_sentences=10**6).rank_P < 3) for arm in arms
    ]
    assert recall == sorted(recall)
    by_arm = [rates(run(typed, prepared, arm)) for arm in arms]
    for metric in ("strip_accuracy", "prate", "keystroke_savings", "words_per_minute"):
        assert all(worse[metric] < better[metric] for worse, better in itertools.pairwise(by_arm)), metric
    for metric in ("words_modified", "errors_left"):
        assert all(worse[metric] >= better[metric] for worse, better in itertools.pairwise(by_arm)), metric


def test_a_model_that_is_always_right_saves_all_but_one_key_a_word(typed: Typed) -> None:
    text, vocabulary = typed
    known = text.ids(vocabulary) != UNK
    eager = {"look_P": np.ones(len(known), dtype=bool), "pick_P": np.ones(len(known), dtype=bool)}
    flawless = typist.MEDIAN.model_copy(
        update={"touch_std": 1e-9, "offset_std": 1e-9, "slip": 1e-12, "hold": 1 - 1e-12}
    )
    got = run(typed, changed(prepare(typed, flawless), **eager), knowing(typed, 1.0))
    np.testing.assert_array_equal(got.keystrokes_P[known], 1)
    np.testing.assert_array_equal(got.how_P[known], PICKED)
    # Flawless fingers: a key a letter and one for the space.
    np.testing.assert_array_equal(got.dark_keystrokes_P[known], got.letters_P[known] + 1)
    numerator_D, denominator_D = replace(got, device_P=np.where(known, 0, 1), devices=2).ratios()["keystroke_savings"]
    assert numerator_D[0] / denominator_D[0] == pytest.approx(1 - 1 / np.mean(got.letters_P[known] + 1), rel=1e-12)
    # Fingers that err: what is saved is all but one of the keys that they would need.
    erring = run(typed, changed(prepare(typed), **eager), knowing(typed, 1.0))
    assert erring.dark_keystrokes_P[known].sum() > got.dark_keystrokes_P[known].sum()
    np.testing.assert_array_equal(erring.keystrokes_P[known], 1)


def test_a_model_that_knows_nothing_is_never_picked(typed: Typed) -> None:
    got = run(typed, prepare(typed), knowing(typed, 0.0, ordered=False))
    assert not got.in_strip_P.any()
    assert rates(got)["prate"] == 0
    # The dictionary alone still completes long words whose beginning says it all.
    assert 0 <= rates(got)["keystroke_savings"] < 0.05


def test_a_strip_that_nobody_looks_at_saves_exactly_nothing(typed: Typed) -> None:
    prepared = prepare(typed)
    names = ("look_P", "pick_chance_P", "looks_P1")
    nobody = {name: np.zeros_like(getattr(prepared, name)) for name in names}
    for share in SHARES.values():
        got = run(typed, changed(prepared, **nobody), knowing(typed, share))
        np.testing.assert_array_equal(got.keystrokes_P, got.dark_keystrokes_P)
        np.testing.assert_array_equal(got.seconds_P, got.dark_seconds_P)
        assert rates(got)["keystroke_savings"] == 0
        assert rates(got)["prate"] == 0


def test_every_pick_saves_and_no_other_word_does(typed: Typed) -> None:
    got = run(typed, prepare(typed, typist.SLOPPY), knowing(typed, SHARES["good"]))
    chosen = (got.how_P == PICKED) | (got.how_P == COMPLETED)
    assert chosen.any()
    assert (got.keystrokes_P[chosen] < got.dark_keystrokes_P[chosen]).all()
    np.testing.assert_array_equal(got.keystrokes_P[~chosen], got.dark_keystrokes_P[~chosen])


def test_measures_by_hand(tmp_path: Path) -> None:
    text = held_out(write_words(tmp_path, [[["help", "the", "word", "too"]]]), np.arange(1))
    vocabulary = Vocabulary((*SPECIALS, "help", "the", "word", "too", "then"))
    flawless = typist.MEDIAN.model_copy(update={"touch_std": 1e-9, "offset_std": 1e-9, "slip": 1e-12})
    prepared = script.prepare(text, vocabulary, LOCALE, flawless, 1)
    got = sessions.Session(
        device_P=np.zeros(4, dtype=np.int64),
        letters_P=np.array([4, 3, 4, 3]),
        how_P=np.array([PICKED, 4, COMPLETED, 4]),
        in_strip_P=np.array([True, True, False, False]),
        pick_chance_P=np.full(4, 0.3),
        committed_P=np.array([4, 8, 6, UNK]),
        right_P=np.array([True, False, True, False]),
        noticed_P=np.array([False, False, False, True]),
        corrected_P=np.array([False, True, False, False]),
        modified_P=np.array([False, False, False, True]),
        backspaces_P=np.array([0, 0, 0, 2]),
        keystrokes_P=np.array([1, 5, 4, 8]),
        seconds_P=np.array([1.0, 2.0, 1.0, 2.0]),
        dark_keystrokes_P=np.array([5, 5, 5, 8]),
        dark_seconds_P=np.array([1.5, 1.5, 1.0, 1.5]),
        triggered_P=np.zeros(4, dtype=bool),
        accepted_P=np.zeros(4, dtype=bool),
        devices=1,
    )
    assert published_ranges.measure(got, prepared, text) == pytest.approx(
        {
            "standard_words_per_minute": 18 / 5 / 0.1,
            "errors_left_per_character": 1 / 18,  # "then" for "the"; "too" was repaired
            "backspaces_per_character": 2 / 18,
            "dark_keystrokes_per_character": 23 / 18,
            "keystrokes_per_character": 1.0,
            "corrected_words": 0.25,
            "corrections_wrong": 1.0,
            "completed_words": 0.25,
            "completed_length": 4 / 3.5,
            "picks_of_hits": 0.5,
            "keystroke_savings": 5 / 23,
            "speed_change": 5.5 / 6 - 1,
        }
    )


@pytest.mark.parametrize(
    ("one", "other", "edits"),
    [("", "abc", 3), ("abc", "abc", 0), ("kitten", "sitting", 3), ("ab", "ba", 2), ("a", "", 1)],
)
def test_edit_distance(one: str, other: str, edits: int) -> None:
    assert published_ranges.distance([*map(ord, one)], [*map(ord, other)]) == edits


def test_every_number_has_its_source_in_code_and_document() -> None:
    assert published_ranges.FIELDS.keys() == typist.Calibration.model_fields.keys() - {"name"}
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    for field, source in published_ranges.FIELDS.items():
        values = [f"{getattr(calibration, field):g}" for calibration in typist.CALIBRATIONS]
        assert f"| {field} | {' | '.join(values)} | {source} |" in lines
    for each in published_ranges.RANGES:
        ranges = f"{each.low:g} to {each.high:g} | {each.person_low:g} to {each.person_high:g}"
        assert f"| {each.name} | {ranges} | {each.source} |" in lines
    assert all(each.person_low <= each.low <= each.high <= each.person_high for each in published_ranges.RANGES)
    assert {field.name for field in fields(published_ranges.Range)} == {
        *("name", "low", "high", "person_low", "person_high", "source")
    }
