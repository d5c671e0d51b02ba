"""From text to words: normalisation, sentences and words, per locale.

What becomes of each kind of token:

- a word is letters and marks, with apostrophes, hyphens and the joiners some scripts need inside it;
- punctuation and symbols vanish: the words around a comma or an emoji are neighbours;
- whatever stands in a word's place without being one (a number, URL, e-mail address, ``@mention``,
  ``<placeholder>``, ``snake_case`` name, token with digits, dotted abbreviation, very long token)
  ends the sentence, so that no false pair of neighbours is ever learnt and none of it becomes a word.
"""

import html
import string
import unicodedata
from collections import defaultdict
from functools import cache

import langcodes
import regex

MAX_WORD_CHARACTERS = 40

# Scripts written without spaces between words (UAX #14 class SA, Han, kana, and their relatives).
_UNSPACED_SCRIPTS = frozenset(
    (
        *("Hani", "Hans", "Hant", "Bopo", "Hira", "Kana", "Hrkt", "Jpan", "Yiii", "Tang", "Nkgb"),
        *("Thai", "Laoo", "Khmr", "Mymr", "Tibt", "Lana", "Talu", "Tavt", "Cham", "Java", "Bali"),
    )
)

_DOTTED_I_LANGUAGES = frozenset({"tr", "az", "crh", "gag", "tt", "ba"})

_FOLD = str.maketrans(
    {
        **dict.fromkeys("\u2019\u2018\u201b\u02bc\uff07\u00b4\u0060", "'"),
        **dict.fromkeys("\u2010\u2011", "-"),
        # Soft hyphen, zero-width space, byte order mark, direction marks, tatweel: no letter is lost.
        **dict.fromkeys("\u00ad\u200b\ufeff\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u0640"),
    }
)
_NEEDS_FOLD = regex.compile(
    "[\u2019\u2018\u201b\u02bc\uff07\u00b4`\u2010\u2011\u00ad\u200b\ufeff\u200e\u200f\u202a-\u202e\u2066-\u2069\u0640]"
)
_ENTITY = regex.compile(r"&(?:#\d+|#x[0-9a-fA-F]+|[a-zA-Z]+);")

# Inside a word only: apostrophe, hyphen, Catalan middle dot, Persian and Indic joiners, Hebrew marks.
_JOINER = r"['\-\u00b7\u200c\u200d\u05f3\u05f4]"
_WORD = regex.compile(rf"\p{{L}}[\p{{L}}\p{{M}}]*+(?:{_JOINER}\p{{L}}[\p{{L}}\p{{M}}]*+)*+")

_TOP_DOMAINS = "com|org|net|edu|gov|info|io|co|me|tv|ly|uk|us|de|fr|es|it|br|pt|mx|ar|ru|pl|nl|tr|in|jp|cn|eu"
# Every repetition is bounded or starts where no longer run could: hostile text costs linear time.
_NOT_A_WORD = regex.compile(
    rf"""
      (?:(?<!\w)\w{{1,20}}+://|www\.)\S++                              # URL
    | (?<![\w.+-])[\w.+-]{{1,64}}+@[\w-]++(?:\.[\w-]++)++              # e-mail address
    | @[\w.-]++                                                        # mention
    | </?[^<>\s]{{1,40}}/?>                                            # placeholder or mark-up
    | (?<![\w-])[\w-]++(?:\.[\w-]++){{0,4}}?\.(?:{_TOP_DOMAINS})\b(?:/\S*+)?   # bare domain
    | (?<![\w.])\p{{L}}(?:\.\p{{L}})++(?!\w)\.?                        # e.g., u.s.
    | (?<!\w)(?:[\p{{L}}\p{{M}}]++{_JOINER}?){{0,8}}+[\p{{N}}_]        # digits, names_like_this
      (?:[\p{{L}}\p{{M}}\p{{N}}_]|[.,:'/-](?=\w))*+
    """,
    regex.VERBOSE,
)
# Cheap necessary condition for _NOT_A_WORD; most lines of running text fail it.
_MAY_NOT_BE_WORD = regex.compile(r"[\p{N}_@<]|://|\w\.\w")
_TITLES = "mr|mrs|ms|dr|prof|sr|sra|dra|jr|st|vs|mme|mlle"
# A full stop after an initial or a title ends nothing.
_SENTENCE_END = regex.compile(rf"[\n\r\v\f\u2028\u2029!?…。؟۔।॥։።፧፨]|\.(?<!\b(?:{_TITLES}|\p{{L}})\.(?=\s+\w))")
_GREEK_SENTENCE_END = regex.compile(rf"{_SENTENCE_END.pattern}|;")


def require_spaced_script(locale: str) -> None:
    """Refuse a locale whose script puts no spaces between words.

    Raises:
      ValueError: unknown tag, or a script such as Hans, Jpan, Thai, Laoo, Khmr, Mymr, Tibt.
    """
    script = _script(locale)
    if script in _UNSPACED_SCRIPTS:
        raise ValueError(
            f"locale: {locale!r} is written in script {script}, which puts no spaces between words, and the model "
            f"predicts whole words; choose a locale with spaced words, or name a spaced script in the tag "
            f"(such as '{langcodes.Language.get(locale).language}-Latn' for romanised text)"
        )


def normalise(text: str, locale: str) -> str:
    """Lower-cased NFC text with straight apostrophes and plain hyphens.

    Upper-case I is dotless in Turkic locales; a final capital sigma becomes the final small one.
    ``ftfy`` is not used: over 930,000 words of typed chat and 88,000 of German web text it changed
    none of the words that these rules leave.
    """
    if "&" in text:
        text = _ENTITY.sub(lambda entity: html.unescape(entity.group()), text)
    if text.isascii():
        if "`" in text:
            text = text.replace("`", "'")
    else:
        if _NEEDS_FOLD.search(text):
            text = text.translate(_FOLD)
        text = unicodedata.normalize("NFC", text)
    if _language(locale) in _DOTTED_I_LANGUAGES:
        text = text.replace("I", "ı").replace("İ", "i")
    # Python lower-cases İ to i and a loose dot, which only Turkic keyboards can type.
    return text.lower().replace("i̇", "i")


def sentences(text: str, locale: str) -> list[list[str]]:
    """Words of each sentence, in order; sentences without a word are left out.

    A sentence ends at a line break, at ``. ! ? …`` and their kin in other scripts, and at whatever
    is not a word (see the module's docstring).
    """
    text = normalise(text, locale)
    end = _GREEK_SENTENCE_END if _language(locale) == "el" else _SENTENCE_END
    result = []
    for line in text.split("\n"):
        if _MAY_NOT_BE_WORD.search(line):
            line = _NOT_A_WORD.sub("\n", line)
        for span in end.split(line):
            words = _WORD.findall(span)
            if not words:
                continue
            if max(map(len, words)) > MAX_WORD_CHARACTERS:
                result.extend(_without_long(words))
            else:
                result.append(words)
    return result


def _without_long(words: list[str]) -> list[list[str]]:
    pieces: list[list[str]] = [[]]
    for word in words:
        if len(word) <= MAX_WORD_CHARACTERS:
            pieces[-1].append(word)
        else:
            pieces.append([])
    return [piece for piece in pieces if piece]


# A character rarer than this share of running letters is foreign to the locale.
_RAREST_SHARE = 3e-5
# Letters the word lists lack (they are case-folded, which spells ß as ss and ς as σ), and whole sets
# where no list exists.
_MORE_LETTERS = {
    "de": "ß",
    "el": "ς",
    "es": "ü",
    "ca": "·",
    "af": "áâèéêëîïôöû",
    "az": "çəğıöşü",
    "cy": "âêîôûŵŷ",
    "et": "äõöüšž",
    "eu": "çñ",
    "ga": "áéíóú",
    "gl": "áéíñóúü",
    "nn": "åæøéèêòóô",
    "sq": "çë",
    "sr": "абвгдђежзијклљмнњопрстћуфхцчџш",
    "sw": "",
    "xh": "",
    "zu": "",
}


@cache
def alphabet(locale: str) -> str:
    """Characters a word of the locale may hold: sorted, each once, apostrophe and hyphen included.

    Derived from public word frequencies (``wordfreq``): the letters and marks of the locale's script
    that make up at least 3 in 100,000 of running letters. English keeps a to z only, Spanish adds
    á é í ñ ó ú ü. Every Latin locale has all of a to z. No private text is read.

    Raises:
      ValueError: nothing public is known about this language in this script.
    """
    language, script = _language(locale), _script(locale)
    shares = _letter_shares(locale)
    in_script = regex.compile(rf"\p{{Script_Extensions={'Hang' if script == 'Kore' else script}}}")
    # A compatibility form (such as the ordinal ª) is a letter to Unicode but not to a speller.
    letters = {
        character: share
        for character, share in shares.items()
        if in_script.match(character)
        and unicodedata.category(character)[0] in "LM"
        and unicodedata.is_normalized("NFKC", character)
    }
    total = sum(letters.values())
    usual = {character for character, share in letters.items() if share >= _RAREST_SHARE * total}
    usual |= {letter for letter in _MORE_LETTERS.get(language, "") if letter == "·" or in_script.match(letter)}
    if not usual and language not in _MORE_LETTERS:
        raise ValueError(
            f"locale: no public word list for {locale!r} in script {script}, so its alphabet is not known; "
            "choose a locale whose language has one (the package wordfreq lists them)"
        )
    if script == "Latn":
        usual |= set(string.ascii_lowercase)
    return "".join(sorted(usual | {"'", "-"}))


def _letter_shares(locale: str) -> dict[str, float]:
    """Weight of each character in public running text of the locale's language; empty if there is no list."""
    import wordfreq  # Slow to import, and needed here only.

    language = langcodes.Language.make(_language(locale))
    nearest, distance = langcodes.closest_match(language, list(wordfreq.available_languages("small")), max_distance=9)
    shares: dict[str, float] = defaultdict(float)
    if distance <= 9:
        for word, frequency in wordfreq.get_frequency_dict(nearest, wordlist="small").items():
            for character in normalise(word, locale):
                shares[character] += frequency
    return shares


@cache
def _language(locale: str) -> str:
    return langcodes.Language.get(locale).language or ""


@cache
def _script(locale: str) -> str:
    try:
        language = langcodes.Language.get(locale)
    except langcodes.LanguageTagError as error:
        raise ValueError(f"locale: {locale!r} is not a BCP 47 tag: {error}; write it as in 'en-US'") from error
    if not language.is_valid():
        raise ValueError(f"locale: {locale!r} is no known language and region; write it as in 'en-US'")
    return language.maximize().script or "Zyyy"
