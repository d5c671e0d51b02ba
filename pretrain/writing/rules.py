"""Typing rules beyond plain letters: one frozen value per locale, and the place of each class of text.

| class | examples | place |
|---|---|---|
| elided word | *l'homme*, *dell'acqua* | two words, cut after the apostrophe |
| apostrophe at an edge | *po'*, *'em*, *'n'* | part of the word, for the words listed; else a quotation mark |
| word with a symbol | *AT&T*, *C++*, *R$* | a word of the model, if listed |
| letters and digits | *gr8*, *2nite*, *covid-19* | a word of the model, if short (``LETTERS_AND_DIGITS``) |
| emoticon | *:)*, *:-P*, *<3* | a word of the model, if listed; spellings of one face count as one |
| emoji | one grapheme cluster: skin tones, joined people, flags | a word of the model |
| number, URL, e-mail address, mention | *2026*, *a@b.org* | a break: never a word |

A word of the model enters a vocabulary if public text has it often enough. Words with a symbol, emoticons and
emoji are none of local discovery: its letters are the locale's alphabet (``pretrain.text.tokenise.alphabet``) and
digits, and words with any other character stay on the device. Emoji and emoticons are words because keyboards suggest
them; a break would also hide that sentences go on after them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

# Moves when the same text is cut into other words: a corpus that was begun before is not gone on with.
RULES_VERSION = 3

DOTTED_I_LANGUAGES = frozenset({"tr", "az", "crh", "gag", "tt", "ba"})

# At most 8 characters with one run of digits: two at an edge, a single one inside. Years, telephone and house
# numbers, plates (ab12cde) and codes with more of them break.
LETTERS_AND_DIGITS = r"(?:\p{L}[\p{L}\p{M}]*+(?:-?[0-9]{1,2}|[0-9]\p{L}[\p{L}\p{M}]*+)|[0-9]{1,2}\p{L}[\p{L}\p{M}]*+)"
MOST_LETTERS_AND_DIGITS = 8

# Each face, then how else it is typed. Lower-cased, as all words are.
_FACES = (
    (":)", ":-)", "=)", ":o)", ":-]"),
    (":(", ":-(", "=("),
    (";)", ";-)"),
    (":d", ":-d", "=d"),
    (";d", ";-d"),
    (":p", ":-p", "=p"),
    (";p", ";-p"),
    (":o", ":-o", "=o"),
    (":s", ":-s"),
    (":/", ":-/", "=/", ":\\", ":-\\"),
    (":|", ":-|"),
    (":*", ":-*"),
    (":$", ":-$"),
    (":'(", ":'-("),
    (":')", ":'-)"),
    (">:(", ">:-("),
    ("<3",),
    ("</3",),
    ("^^", "^_^"),
    ("-_-",),
    ("o_o",),
    (">_<", "><"),
)
_SYMBOLS = ("at&t", "b&b", "c#", "c++", "d&d", "f#", "h&m", "m&m", "m&ms", "q&a", "r&b", "r&d", "us$")


@dataclass(frozen=True)
class TypingRules:
    """A locale's typed forms beyond plain letters. Everything lower-cased.

    Attributes:
      elisions: letters before an apostrophe that ends a word: ``l`` cuts *l'homme* into *l'* and *homme*.
      apostrophes: words that begin or end with an apostrophe.
      symbols: words with a character that is not a letter.
      faces: emoticons, each followed by its other spellings.
      folds: signs of other keyboards, and in their order the locale's own.
      joiners: signs inside a word beyond those of every locale.
    """

    elisions: tuple[str, ...] = ()
    apostrophes: tuple[str, ...] = ()
    symbols: tuple[str, ...] = _SYMBOLS
    faces: tuple[tuple[str, ...], ...] = _FACES
    folds: tuple[str, str] = ("", "")
    joiners: str = ""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


PLAIN = TypingRules()
# Keyboards of Arabic and of Persian have other codes for one Kaf and one Yeh.
_OF_PERSIAN = TypingRules(folds=("كيى", "کیی"))
# Phones type quotation marks for gershayim: צה"ל is one word.
_HEBREW = TypingRules(folds=("\u05f3\u05f4", "'\""), joiners='"')
# By language; a tag with a region comes first where a region needs its own.
RULES: Mapping[str, TypingRules] = MappingProxyType(
    {
        "af": TypingRules(apostrophes=_words("'n 't 'k")),
        "ar": TypingRules(folds=("کی", "كي")),
        "ca": TypingRules(elisions=_words("l d m n s t")),
        "de": TypingRules(
            apostrophes=_words("'n 'ne 'nem 'nen 'ner 's 'ran 'raus 'rein 'rum is' hab' nich' könnt' wär' hätt' würd'")
        ),
        # The semicolon is the question mark.
        "el": TypingRules(faces=tuple(face for face in _FACES if face[0][0] != ";")),
        "en": TypingRules(
            apostrophes=_words(
                "'cause 'em 'til 'bout 'kay 'tis 'twas 'cuz 'coz 'n' 'n ol' o' goin' doin' nothin' somethin' talkin' "
                "lookin' comin' gettin' tryin' feelin' workin' thinkin' makin' sayin' playin' livin' lovin' havin'"
            )
        ),
        "es": TypingRules(apostrophes=_words("pa' na' to'")),
        "fa": _OF_PERSIAN,
        # aujourd'hui, quelqu'un, presqu'île, grand'mère stay whole: what stands before their apostrophe is no entry.
        "fr": TypingRules(
            elisions=_words("c d j l m n s t y qu jusqu lorsqu puisqu quoiqu"),
            apostrophes=_words("'fin 'tain"),
            faces=(*_FACES, ("x)",)),
        ),
        "he": _HEBREW,
        "it": TypingRules(
            elisions=_words(
                "c ch d l m n s t v un gl all dall dell nell sull coll anch neanch com cos dov quand quant quest quell "
                "bell sant tutt mezz senz altr pover buon grand nessun ciascun qualcun ognun qual"
            ),
            apostrophes=_words("po' mo' be' vabbe' va' fa' di' sta' da' to' e' piu' perche' puo' cosi' gia' pero'"),
        ),
        "nl": TypingRules(apostrophes=_words("'t 's 'n 'k 'm 'r 'ns")),
        "pt": TypingRules(apostrophes=_words("'tá 'tou 'tava 'bora"), symbols=(*_SYMBOLS, "r$")),
        "ur": _OF_PERSIAN,
        "yi": _HEBREW,
    }
)


def rules_of(locale: str, language: str) -> TypingRules:
    """The rules of a locale, or else of its language, or else plain ones."""
    return RULES.get(locale) or RULES.get(language) or PLAIN
