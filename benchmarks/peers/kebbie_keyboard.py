"""A published bundle as a keyboard that FleksySDK's kebbie can test.

kebbie is no dependency of this project (it pins an old numpy, OpenCV and Appium). In an environment
of its own, at the root of the repository,

    pip install kebbie "pyarrow<20" numba onnxruntime langcodes wordfreq pydantic
    python -m benchmarks.peers.kebbie_keyboard runs/LAUNCH/public/publish/bundle

Nothing here imports torch. Gestures are not read, so kebbie's swipe score is 0; positions of its own
layout are not used either, because it also gives the letters that were hit.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from evaluation.keyboard import decoder, layouts, lexicon
from evaluation.keyboard.touch import Touches
from pretrain.text import vocabulary as vocabularies
from pretrain.text.tokenise import normalise, sentences
from pretrain.text.vocabulary import BOS, SPECIALS, UNK

try:
    import kebbie
except ModuleNotFoundError:
    kebbie = None

CANDIDATES = 3
_SENTENCE_ENDS = tuple(".!?…\n")
_SPELLING_NATS = 2.5
Position = tuple[float, float]


class BundleKeyboard:
    """Suggestions and corrections from a bundle. Pickles as its path, as worker processes want it."""

    def __init__(self, bundle: Path) -> None:
        """Open a bundle.

        Raises:
          ValueError: the folder is not a bundle, or its locale has no keyboard layout.
        """
        missing = [name for name in ("model.onnx", "vocabulary.json", "bundle.json") if not (bundle / name).is_file()]
        if missing:
            raise ValueError(f"bundle: {bundle} lacks {', '.join(missing)}; give the folder that 'publish' wrote")
        import onnxruntime  # Slow to import.

        self.bundle = bundle
        self.locale = json.loads((bundle / "bundle.json").read_text(encoding="utf-8"))["locale"]
        self.vocabulary = vocabularies.load(bundle / "vocabulary.json")
        self.keys = layouts.keyboard(self.locale, "".join(self.vocabulary.words[len(SPECIALS) :]))
        self.lexicon = lexicon.build(self.vocabulary, self.keys)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            str(bundle / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )

    def __reduce__(self) -> tuple[type, tuple[Path]]:
        return BundleKeyboard, (self.bundle,)

    def next_words(self, context: str) -> list[str]:
        """The likeliest words after a text."""
        words_V = self._after(context)[len(SPECIALS) :]
        return self._spelled(len(SPECIALS) + np.argsort(-words_V, kind="stable")[:CANDIDATES], context, "")

    def complete(self, context: str, typed: str) -> list[str]:
        """The likeliest words that begin as typed, with letters next to the ones hit allowed for."""
        letters = self._letters(typed, context)
        if not letters:
            return self.next_words(context)
        word_E, key_E = np.array([0]), np.array([len(letters)])
        node_EW, fit_EW = decoder.prefixes(_touches(letters, self.keys), word_E, key_E, self.keys, self.lexicon)
        log_probs_V = self._after(context)
        scores: dict[int, float] = {}
        for node, fit in zip(node_EW[0], fit_EW[0], strict=True):
            if node >= 0:
                for word in self.lexicon.id_W[self.lexicon.first_N[node] : self.lexicon.last_N[node]]:
                    scores[int(word)] = float(fit + log_probs_V[word])
        return self._spelled(sorted(scores, key=lambda word: (-scores[word], word))[:CANDIDATES], context, typed)

    def correct(self, context: str, typed: str) -> list[str]:
        """Readings of a typed word, best first; what was typed is one of them."""
        letters = self._letters(typed, context)
        if not letters:
            return [typed]
        readings = decoder.read(_touches(letters, self.keys), [letters], self.keys, self.lexicon, 14.0)
        log_probs_V = self._after(context)
        scores = {
            int(word): float(score + log_probs_V[word])
            for word, score in zip(readings.id_C, readings.score_C, strict=True)
        }
        if readings.literal_id_P[0] < 0:
            scores[UNK] = float(readings.literal_P[0] + log_probs_V[UNK] - _SPELLING_NATS * len(letters))
        best = sorted(scores, key=lambda word: (-scores[word], word))[:CANDIDATES]
        return self._spelled(best, context, typed)

    def _after(self, context: str) -> np.ndarray:
        """Log-probabilities ``[V]`` after the last sentence."""
        words = self._sentence(context)
        shapes = {entry.name: entry.shape[-1] for entry in self._session.get_inputs()}
        state = {name: np.zeros((1, shapes[name]), np.float32) for name in ("cell", "out")}
        for token in (BOS, *self.vocabulary.ids(words)):
            logits_1V, cell, out = self._session.run(
                ["logits", "next_cell", "next_out"], {"token": np.array([token], np.int64), **state}
            )
            state = {"cell": cell, "out": out}
        logits_V = logits_1V[0].astype(np.float64)
        return logits_V - np.logaddexp.reduce(logits_V)

    def _sentence(self, context: str) -> list[str]:
        before = sentences(context, self.locale)
        return [] if not before or context.rstrip(" \t").endswith(_SENTENCE_ENDS) else before[-1]

    def _letters(self, typed: str, context: str) -> list[int]:
        """Keys of a typed word; none if it holds what this keyboard has no key for."""
        word = normalise(typed, self.locale)
        return [self.keys.index[c] for c in word] if word and set(word) <= self.keys.index.keys() else []

    def _spelled(self, ids: Iterable[int], context: str, typed: str) -> list[str]:
        """Words as the user would write them here: the model knows small letters only."""
        capital = typed[:1].isupper() or (not typed and not self._sentence(context))
        words = [typed if word == UNK else self.vocabulary.words[word] for word in ids]
        return [word[:1].upper() + word[1:] if capital else word for word in words]


class BundleCorrector(kebbie.Corrector if kebbie else object):
    """A bundle behind the interface that kebbie tests."""

    def __init__(self, bundle: Path) -> None:
        """Open a bundle; ValueError if it is none."""
        self.keyboard = BundleKeyboard(bundle)

    def auto_correct(self, context: str, keystrokes: list[Position | None], word: str) -> list[str]:
        """Candidates for a typed word."""
        return self.keyboard.correct(context, word)

    def auto_complete(self, context: str, keystrokes: list[Position | None], partial_word: str) -> list[str]:
        """Candidates for a word that is not finished."""
        return self.keyboard.complete(context, partial_word)

    def predict_next_word(self, context: str) -> list[str]:
        """Candidates for the next word."""
        return self.keyboard.next_words(context)


def _touches(letters: list[int], keys: layouts.Keyboard) -> Touches:
    """A word typed on the middle of its keys."""
    number = np.array(letters, dtype=np.int64)
    return Touches(
        offsets_P1=np.array([0, len(letters)]),
        x_T=keys.x_A[number],
        y_T=keys.y_A[number],
        held_T=np.where(keys.held_A[number], number, -1),
        seconds_T=np.ones(len(letters)),
        back_T=np.zeros(len(letters), dtype=bool),
        letters_P=np.array([len(letters)]),
    )


if __name__ == "__main__":
    if kebbie is None:
        sys.exit("kebbie: not installed; it needs an environment of its own, see the top of this file")
    print(json.dumps(kebbie.evaluate(BundleCorrector(Path(sys.argv[1]))), indent=1))
