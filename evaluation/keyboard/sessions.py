"""Typing sessions under one arm: the strip, Smart Compose, autocorrection, and the reactions of users.

Shape legend: P words, S sentences, B sentences in step, D devices, V vocabulary.

Sentences run in step and the language model reads them all at once; its context is the committed
text, including remaining mistakes. A phrase of Smart Compose is the next two likeliest
words; its sureness is the smaller of the first word's log-probability and the mean of both, and it
is shown if that reaches a threshold (set by the comparison). Simulated rates are
proxies: they compare arms and do not forecast what people do.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from evaluation.arms.arm import NextWord
from evaluation.arms.held_out import HeldOut, Ratio
from evaluation.counts import metrics
from evaluation.keyboard import strip
from evaluation.keyboard.script import Script
from pretrain import progress

PHRASE_WORDS = 2
# Weight of the language model relative to the touches.
WEIGHT = 1.0
_NOTHING = 0


@dataclass(frozen=True)
class Session:
    """Events at each word of a session, all ``[P]``. Private.

    Attributes:
      device_P: int64. letters_P: int64, of the intended word.
      how_P: 0 as part of an accepted phrase, 2 picked before typing, 3 completed, 4 typed to the end.
      in_strip_P: the strip held the word before its first key.
      pick_chance_P: float64, probability of a pick there, if the strip holds the word.
      committed_P: int64, the remaining text: the vocabulary's word, or ``<unk>``.
      right_P: committed as intended. noticed_P: committed wrong, then repaired.
      corrected_P: bool, the keyboard changed the typed word. modified_P: bool, the user did, while or after typing.
      backspaces_P: int64, among the keystrokes.
      keystrokes_P: int64. seconds_P: float64. dark_keystrokes_P, dark_seconds_P: the same with a dark strip.
      triggered_P, accepted_P: a phrase was shown before the word, and accepted.
      devices: number of devices.
    """

    device_P: np.ndarray
    letters_P: np.ndarray
    how_P: np.ndarray
    in_strip_P: np.ndarray
    pick_chance_P: np.ndarray
    committed_P: np.ndarray
    right_P: np.ndarray
    noticed_P: np.ndarray
    corrected_P: np.ndarray
    modified_P: np.ndarray
    backspaces_P: np.ndarray
    keystrokes_P: np.ndarray
    seconds_P: np.ndarray
    dark_keystrokes_P: np.ndarray
    dark_seconds_P: np.ndarray
    triggered_P: np.ndarray
    accepted_P: np.ndarray
    devices: int

    def ratios(self) -> dict[str, Ratio]:
        """Numerator and denominator of each metric by device.

        A pick counts as its probability wherever the strip held the word: the random outcome of a look is independent
        of the difference between arms (Rao and Blackwell), and averaging it out would take three times the words.
        ``words_per_minute`` counts committed words; ``keystroke_savings`` is the share of saved keystrokes,
        relative to the same touches for the same words with a dark strip, including corrections and repairs
        (Trnka and McCoy 2008 divide by keystrokes without prediction); ``words_modified`` were changed by the
        user while or after typing them (Xu et al. 2023, section 3); ``errors_left`` were committed wrong and
        stayed. Every word outside a phrase is one event of the strip, with three candidates.
        """
        shared, dark_D = metrics(self.counts()), self._total(self.dark_keystrokes_P)
        speed = shared.pop("words_per_minute")
        return shared | {
            "errors_left": (self._total(~self.right_P & ~self.noticed_P), shared["words_modified"][1]),
            "words_per_minute": speed,
            "keystroke_savings": (dark_D - self._total(self.keystrokes_P), dark_D),
        }

    def counts(self) -> dict[str, np.ndarray]:
        """Counts for ``evaluation.counts``, by device ``[D]``; a pick counts as its probability."""
        events_P = self.how_P != _NOTHING
        values = {
            "shown": events_P,
            "picked": (events_P & self.in_strip_P) * self.pick_chance_P,
            "correct": events_P & self.in_strip_P,
            "triggered": self.triggered_P,
            "accepted": self.accepted_P,
            "committed": np.ones(len(self.device_P)),
            "modified": self.modified_P,
            "seconds": self.seconds_P,
        }
        return {name: self._total(values_P) for name, values_P in values.items()}

    def _total(self, values_P: np.ndarray) -> np.ndarray:
        return np.bincount(self.device_P, weights=values_P, minlength=self.devices)


def simulate(
    script: Script,
    text: HeldOut,
    arm: NextWord,
    *,
    compose_threshold: float | None = None,
    weight: float = WEIGHT,
    batch_sentences: int = 256,
    workers: int = 1,
    advance: Callable[[float], None] = progress.nothing,
) -> Session:
    """Replay a script under an arm.

    Args:
      text: source text of the script.
      compose_threshold: sureness (nats) from which a phrase is shown; None turns Smart Compose off.
      weight: of the language model in readings and completions (OTF).
      batch_sentences, workers: sentences in step, and threads; they change memory and time, not the result.
      advance: progress callback, called with the number of newly typed words.

    Raises:
      ValueError: the arm speaks another vocabulary than the script was prepared with.
      ArithmeticError: the arm's numbers are not finite.
    """
    if arm.vocabulary_size != len(script.place_V):
        raise ValueError(
            f"arm: speaks {arm.vocabulary_size} words, the script {len(script.place_V)}; prepare the script with the "
            "comparison's largest vocabulary and give it to every arm"
        )
    words = len(script.id_P)
    answer_PC, seconds_P2 = np.zeros((words, len(strip.COLUMNS)), dtype=np.int64), np.zeros((words, 2))
    compose_P2 = np.zeros((words, 2), dtype=bool)

    def run(batch_B: np.ndarray) -> None:
        _in_step(script, text, arm, batch_B, compose_threshold, weight, answer_PC, seconds_P2, compose_P2)
        advance(float(text.lengths_S[batch_B].sum()))

    for_all(batches(text.lengths_S, batch_sentences), run, workers)
    column = dict(zip(strip.COLUMNS, answer_PC.T, strict=True))
    return Session(
        device_P=text.device_P,
        letters_P=np.diff(script.letters_P1),
        how_P=column["how"],
        in_strip_P=column["in_strip"].astype(bool),
        pick_chance_P=script.pick_chance_P,
        committed_P=column["committed"],
        right_P=column["right"].astype(bool),
        noticed_P=column["noticed"].astype(bool),
        corrected_P=column["corrected"].astype(bool),
        modified_P=column["modified"].astype(bool),
        backspaces_P=column["backspaces"],
        keystrokes_P=column["keystrokes"],
        seconds_P=seconds_P2[:, 0],
        dark_keystrokes_P=column["dark_keystrokes"],
        dark_seconds_P=seconds_P2[:, 1],
        triggered_P=compose_P2[:, 0],
        accepted_P=compose_P2[:, 1],
        devices=text.devices,
    )


def batches(lengths_S: np.ndarray, size: int) -> list[np.ndarray]:
    """Sentences, longest first, ``size`` at a time: unfinished ones are always the first rows."""
    order_S = np.argsort(-lengths_S, kind="stable")
    return [order_S[start : start + size] for start in range(0, len(order_S), size)]


def for_all(parts: list[np.ndarray], work: Callable[[np.ndarray], None], workers: int) -> None:
    """Run ``work`` on every part, on threads if there is more than one worker, and raise the first failure."""
    if workers == 1:
        for part in parts:
            work(part)
        return
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, parts))


def earlier(ids_P: np.ndarray, text: HeldOut, batch_B: np.ndarray) -> list[np.ndarray]:
    """Earlier text of each sentence's device."""
    first_of_device = np.searchsorted(text.device_S, text.device_S[batch_B])
    begins = text.starts_S[first_of_device]
    return [ids_P[low:high] for low, high in zip(begins, text.starts_S[batch_B], strict=True)]


def _in_step(
    script: Script,
    text: HeldOut,
    arm: NextWord,
    batch_B: np.ndarray,
    compose_threshold: float | None,
    weight: float,
    answer_PC: np.ndarray,
    seconds_P2: np.ndarray,
    compose_P2: np.ndarray,
) -> None:
    lengths_B, starts_B = text.lengths_S[batch_B], text.starts_S[batch_B]
    log_probs_BV, state = arm.start(earlier(script.id_P, text, batch_B))
    given_B = np.zeros(len(batch_B), dtype=np.int64)  # words of an accepted phrase still to come
    for place in range(int(lengths_B.max())):
        going = int(np.count_nonzero(lengths_B > place))
        if going < len(log_probs_BV):
            keep = np.arange(going)
            log_probs_BV, state, given_B = log_probs_BV[:going], arm.rows(state, keep), given_B[:going]
        word_B = starts_B[:going] + place
        if compose_threshold is not None:
            left_B = lengths_B[:going] - place
            ask = np.flatnonzero((given_B == 0) & (left_B >= PHRASE_WORDS))
            sure, phrase = sureness(arm, log_probs_BV[ask], arm.rows(state, ask), compose_threshold)
            shown = np.flatnonzero(sure >= compose_threshold)
            asked = word_B[ask[shown]]
            meant = np.stack([script.id_P[asked], script.id_P[asked + 1]], axis=1)
            taken = (phrase[shown] == meant).all(axis=1) & script.accept_P[asked]
            compose_P2[asked, 0], compose_P2[asked, 1] = True, taken
            given_B[ask[shown[taken]]] = PHRASE_WORDS
            seconds_P2[asked, 0] += script.inspect_seconds
            seconds_P2[asked[taken], 0] += script.key_seconds_P[asked[taken]]
        answer_BC, second_B2 = np.zeros((going, len(strip.COLUMNS)), dtype=np.int64), np.zeros((going, 2))
        strip.step(log_probs_BV, word_B, script, weight, answer_BC, second_B2)
        # For the words of an accepted phrase, only the cost without the phrase is kept.
        accepted = np.flatnonzero(given_B > 0)
        answer_BC[accepted, : strip.COLUMNS.index("dark_keystrokes")] = 0
        answer_BC[accepted, strip.COLUMNS.index("committed")] = script.id_P[word_B[accepted]]
        answer_BC[accepted, strip.COLUMNS.index("right")] = 1
        answer_BC[accepted, strip.COLUMNS.index("keystrokes")] = given_B[accepted] == PHRASE_WORDS
        second_B2[accepted, 0] = 0.0
        answer_PC[word_B], committed_B = answer_BC, answer_BC[:, strip.COLUMNS.index("committed")]
        seconds_P2[word_B] += second_B2
        given_B = np.maximum(given_B - 1, 0)
        if np.any(lengths_B > place + 1):
            log_probs_BV, state = arm.step(committed_B, state)


def sureness(arm: NextWord, log_probs_BV: np.ndarray, state: object, floor: float) -> tuple[np.ndarray, np.ndarray]:
    """Sureness (nats) of each row's two likeliest next words and their ids; ``-inf`` and -1 below the floor."""
    first_B = strip.first(log_probs_BV)
    first_log_B = log_probs_BV[np.arange(len(first_B)), first_B]
    sure_B, phrase_B2 = np.full(len(first_B), -np.inf), np.full((len(first_B), PHRASE_WORDS), -1)
    hopeful = np.flatnonzero(first_log_B >= floor)
    if len(hopeful):
        next_BV, _ = arm.step(first_B[hopeful], arm.rows(state, hopeful))
        second_B = strip.first(next_BV)
        second_log_B = next_BV[np.arange(len(hopeful)), second_B]
        phrase_B2[hopeful] = np.stack([first_B[hopeful], second_B], axis=1)
        sure_B[hopeful] = np.minimum(first_log_B[hopeful], (first_log_B[hopeful] + second_log_B) / 2)
    # Below the floor the search is incomplete, so no phrase counts: a threshold there would be biased.
    sure_B[sure_B < floor] = -np.inf
    return sure_B, phrase_B2
