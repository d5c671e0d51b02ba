"""The class that kebbie tests; apart from ``evaluation.kebbie``, because it needs kebbie to be defined."""

from pathlib import Path

import kebbie

from evaluation.kebbie import BundleKeyboard

Position = tuple[float, float]


class BundleCorrector(kebbie.Corrector):
    """A bundle behind kebbie's interface."""

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
