"""Languages of the first page: which of them a launch has, their numbers, and the words of the picture."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from reports.disclosure.document import Disclosure

ENGLISH = "en"
_SPACE = "\N{NO-BREAK SPACE}"


class _Digits(NamedTuple):
    """Number format of a language: thousands separator, number of digits that needs one, and the space before %."""

    thousands: str
    least: int
    apart: bool


_DIGITS = {
    "de": _Digits(".", 4, True),
    "es": _Digits(".", 5, True),
    "fr": _Digits("\N{NARROW NO-BREAK SPACE}", 4, True),
    "pt": _Digits(".", 4, False),
}
LANGUAGES = (ENGLISH, *_DIGITS)
# Words of the picture: its title, which is its caption too, and the model of each bar.
PICTURES: Mapping[str, Mapping[str, str]] = {
    "en": {
        "title": "Share of typed words, on held-out devices, that are the first suggestion",
        "start": "before: public model",
        "champion": "before: current model",
        "private": "after: this launch",
        "simulated": "without privacy (simulation only)",
        "forecast": "without privacy (forecast)",
    },
    "de": {
        "title": "Anteil der getippten Wörter auf zurückgehaltenen Geräten, die der erste Vorschlag sind",
        "start": "vorher: öffentliches Modell",
        "champion": "vorher: bisheriges Modell",
        "private": "nachher: dieses Modell",
        "simulated": "ohne Datenschutz (nur simuliert)",
        "forecast": "ohne Datenschutz (Prognose)",
    },
    "es": {
        "title": "Proporción de palabras tecleadas en dispositivos reservados que son la primera sugerencia",
        "start": "antes: modelo público",
        "champion": "antes: modelo actual",
        "private": "después: este modelo",
        "simulated": "sin privacidad (solo simulado)",
        "forecast": "sin privacidad (previsión)",
    },
    "fr": {
        "title": "Part des mots tapés, sur des appareils mis à l'écart, qui sont la première suggestion",
        "start": "avant : modèle public",
        "champion": "avant : modèle actuel",
        "private": "après : ce modèle",
        "simulated": "sans confidentialité (simulé)",
        "forecast": "sans confidentialité (prévision)",
    },
    "pt": {
        "title": "Parcela das palavras digitadas, em aparelhos reservados, que são a primeira sugestão",
        "start": "antes: modelo público",
        "champion": "antes: modelo atual",
        "private": "depois: este modelo",
        "simulated": "sem privacidade (só simulado)",
        "forecast": "sem privacidade (previsão)",
    },
}


def languages(disclosure: Disclosure) -> tuple[str, ...]:
    """Languages of the first page: English, and the language of the launch's locale if there is a template for it."""
    spoken = disclosure.launch.locale.split("-")[0]
    return (ENGLISH, spoken) if spoken in _DIGITS else (ENGLISH,)


def in_digits_of(language: str, shown: str) -> str:
    """An English number in the notation of another language; only separators change, never digits."""
    if language == ENGLISH:
        return shown
    how = _DIGITS[language]

    def written(match: re.Match[str]) -> str:
        whole, _, fraction = match[0].partition(".")
        digits = whole.replace(",", "")
        grouped = whole.replace(",", how.thousands) if len(digits) >= how.least else digits
        return grouped + ("," + fraction if fraction else "")

    text = re.sub(r"\d[\d,]*(?:\.\d+)?", written, shown)
    return text.replace("%", f"{_SPACE}%") if how.apart else text
