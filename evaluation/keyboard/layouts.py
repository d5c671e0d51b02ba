"""Touch keyboard layouts: the place of each key, by locale.

Shape legend: A characters.

One unit is a key's width, and rows are one unit apart. A letter without a key of its own (é on
most layouts) is typed by holding the key of its base letter; so is the apostrophe where the layout
has no key for it (held ``l``, hyphen: held ``p``). Layouts are the first letter page of common
phone keyboards; they are data for a simulation and make no claim about any one product.
"""

import unicodedata
from dataclasses import dataclass
from functools import cached_property

import langcodes
import numpy as np

_QWERTY = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_SPANISH = ("qwertyuiop", "asdfghjklñ", "zxcvbnm")
_AZERTY = ("azertyuiop", "qsdfghjklm", "wxcvbn'")
_QWERTZ = ("qwertzuiopü", "asdfghjklöä", "yxcvbnm")
_NORDIC = ("qwertyuiopå", "asdfghjklöä", "zxcvbnm")
_DANISH = ("qwertyuiopå", "asdfghjklæø", "zxcvbnm")
_TURKISH = ("qwertyuıopğü", "asdfghjklşi", "zxcvbnmöç")
_LAYOUTS = {
    "fr": _AZERTY,
    "de": _QWERTZ,
    "es": _SPANISH,
    "gl": _SPANISH,
    "sv": _NORDIC,
    "fi": _NORDIC,
    "da": _DANISH,
    "nb": _DANISH,
    "no": _DANISH,
    "tr": _TURKISH,
}
# Left offset of each row: rows are centred, the third has a shift key before it.
_THIRD_ROW = 1.5
# Letters without a Unicode decomposition.
_BASES = {
    "ß": "s",
    "ł": "l",
    "ø": "o",
    "æ": "a",
    "œ": "o",
    "đ": "d",
    "ð": "d",
    "þ": "t",
    "ı": "i",
    "ħ": "h",
    "ŋ": "n",
    "'": "l",
    "-": "p",
    "·": "l",
}
# Characters of other pages are placed far from all keys and from each other, so no touch hits them by mistake. A
# character's place does not depend on the others: one device's text moves no touch of another device.
_AWAY = 50.0


@dataclass(frozen=True)
class Keyboard:
    """Characters and their keys.

    Attributes:
      characters: each once.
      x_A, y_A: float64, centres of their keys in key widths.
      held_A: bool, typed by holding the key.
    """

    characters: tuple[str, ...]
    x_A: np.ndarray
    y_A: np.ndarray
    held_A: np.ndarray

    @cached_property
    def index(self) -> dict[str, int]:
        """Number of each character."""
        return {character: number for number, character in enumerate(self.characters)}

    def spell(self, word: str) -> list[int]:
        """Numbers of a word's characters; ValueError for a character without a key."""
        missing = sorted(set(word) - self.index.keys())
        if missing:
            raise ValueError(f"word: no key for {missing}; give keyboard() all characters of the words to be typed")
        return [self.index[character] for character in word]


def has_keyboard(locale: str) -> bool:
    """Return whether sessions can be simulated for a locale."""
    return langcodes.Language.get(locale).maximize().script == "Latn"


def rows(locale: str) -> tuple[str, ...]:
    """Letters of a locale's keys, row by row; none where no layout is known."""
    language = langcodes.Language.get(locale).language or ""
    return _LAYOUTS.get(language, _QWERTY) if has_keyboard(locale) else ()


def keyboard(locale: str, characters: str) -> Keyboard:
    """The keyboard of a locale.

    Args:
      characters: all characters of the words to be typed.

    Raises:
      ValueError: the locale's script has no layout here.
    """
    language = langcodes.Language.get(locale)
    if not has_keyboard(locale):
        script = language.maximize().script or "unknown"
        raise ValueError(
            f"locale: no keyboard for {locale!r} (script {script}); only Latin layouts are known, "
            "set ab_test.session_words to 0"
        )
    keys = _keys(rows(locale))
    every = sorted(set(characters) | set(keys))
    places, held = [], []
    for character in every:
        base = character if character in keys else _base(character)
        places.append(keys.get(base, (_AWAY * (2 + ord(character)), _AWAY)))
        held.append(base != character and base in keys)
    x_A, y_A = np.array(places, dtype=np.float64).T
    return Keyboard(tuple(every), x_A, y_A, np.array(held))


def _keys(layout: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    width = max(len(row) for row in layout)
    places = {}
    for number, row in enumerate(layout):
        start = _THIRD_ROW if number == 2 and len(row) < width - 1 else (width - len(row)) / 2
        places.update({letter: (start + place + 0.5, number + 0.5) for place, letter in enumerate(row)})
    return places


def _base(character: str) -> str:
    if character in _BASES:
        return _BASES[character]
    return unicodedata.normalize("NFD", character)[0]
