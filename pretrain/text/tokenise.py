"""From text to words: normalisation, sentences and words, per locale.

Treatment of each kind of token:

- a word is letters and marks, with apostrophes, hyphens and the joiners some scripts need inside it;
- what people type beyond that (*l'homme*, *'em*, *C++*, *gr8*, ``:-)``, emoji) has its place in ``writing.rules``;
- other punctuation and symbols vanish: the words around a comma are neighbours;
- whatever stands in a word's place without being one (a number, URL, e-mail address, ``@mention``,
  ``<placeholder>``, ``snake_case`` name, other token with digits, dotted abbreviation, very long token)
  ends the sentence, so that no false pair of neighbours is ever learnt and none of it becomes a word.
"""

import html
import string
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import langcodes
import regex

from pretrain.text.word_lists import word_frequencies
from pretrain.writing import javascript
from pretrain.writing.rules import DOTTED_I_LANGUAGES, LETTERS_AND_DIGITS, MOST_LETTERS_AND_DIGITS, rules_of

MAX_WORD_CHARACTERS = 40

# Scripts written without spaces between words (UAX #14 class SA, Han, kana, and their relatives).
_UNSPACED_SCRIPTS = frozenset(
    (
        *("Hani", "Hans", "Hant", "Bopo", "Hira", "Kana", "Hrkt", "Jpan", "Yiii", "Tang", "Nkgb"),
        *("Thai", "Laoo", "Khmr", "Mymr", "Tibt", "Lana", "Talu", "Tavt", "Cham", "Java", "Bali"),
    )
)

_FOLD = str.maketrans(
    {
        **dict.fromkeys("\u2019\u2018\u201b\u02bb\u02bc\uff07\u00b4\u0060", "'"),
        **dict.fromkeys("\u2010\u2011", "-"),
        # Soft hyphen, zero-width space, word joiner, byte order mark, direction marks, tatweel, Mongolian separator: no
        # letter is lost.
        **dict.fromkeys(
            "\u00ad\u200b\u2060\ufeff\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u0640\u180e"
        ),
        # Letters of full width, ligatures, and letters of mathematics that people decorate names and posts with.
        **{
            sign: unicodedata.normalize("NFKC", sign)
            for first, last in ("ﬀﬆ", "ＡＺ", "ａｚ", "\U0001d400\U0001d7cb")
            for sign in map(chr, range(ord(first), ord(last) + 1))
        },
    }
)
# Chats write *bold* and _slanted_: the marks are none of the word, as asterisks are not.
_SLANTED = regex.compile(r"(?<![\p{L}\p{M}\p{N}_])_(\p{L}(?:[^_\n]{0,200}[\p{L}\p{M}'.!?])?)_(?![\p{L}\p{M}\p{N}_])")
# A number of more digits names no character, and above 4,300 Python refuses to read it.
_ENTITY = regex.compile(r"&(?:#[0-9]{1,10}|#x[0-9a-fA-F]{1,10}|[a-zA-Z]{1,32});")
# Android writes a picture as two references, to the halves of its UTF-16.
_HALVES = regex.compile(r"&#(55[23]\d\d|56[0-2]\d\d|563[01]\d);&#(5[67]\d{3});")

# Inside a word only: apostrophe, hyphen, Catalan middle dot, Persian and Indic joiners, Hebrew marks.
_JOINERS = r"'\-\u00b7\u200c\u200d\u05f3\u05f4"

# People type hearts, smiles and hands also without the selector that makes a picture of them.
_PICTURE = r"""(?:(?![\p{Emoji_Modifier}\p{Regional_Indicator}])\p{Emoji_Presentation}\p{Emoji_Modifier}?+
    |\p{Extended_Pictographic}(?:\ufe0f|\p{Emoji_Modifier})|[\u2639\u263a\u2764\u2665\u261d\u270c\u270d])\ufe0f?+"""
_EMOJI = rf"""(?:\p{{Regional_Indicator}}{{2}}|\U0001f3f4[\U000e0020-\U000e007e]{{1,8}}+\U000e007f
    |{_PICTURE}(?:\u200d\p{{Extended_Pictographic}}[\ufe0f\p{{Emoji_Modifier}}]?+){{0,5}}+)"""
_LETTERS_AND_DIGITS = rf"""(?<![\w@./:\#&+\p{{Sc}}-])(?<!\w')
    (?=[\p{{L}}\p{{M}}0-9-]{{2,{MOST_LETTERS_AND_DIGITS}}}+(?![\w@\#%&+\p{{Sc}}-]|['.,:/](?=\w)))
    {LETTERS_AND_DIGITS}(?![\p{{L}}\p{{M}}0-9-])"""

_TOP_DOMAINS = "com|org|net|edu|gov|info|io|co|me|tv|ly|uk|us|de|fr|es|it|br|pt|mx|ar|ru|pl|nl|tr|in|jp|cn|eu"
# Every repetition is bounded or starts where no longer run could: hostile text costs linear time.
_NOT_A_WORD = rf"""
    (?<!\w)(?:
        \w{{1,20}}+://\S++                                             # URL
      | (?<![.+-])[\w.+-]{{1,64}}+@[\w-]++(?:\.[\w-]++)++              # e-mail address
      | (?<!-)[\w-]++(?:\.[\w-]++){{0,4}}?\.(?i:{_TOP_DOMAINS})\b(?:/\S*+)?   # bare domain
      | (?<!\.)\p{{L}}(?:\.\p{{L}})++(?!\w)\.?                         # e.g., u.s.
      | (?:[\p{{L}}\p{{M}}]++[{_JOINERS}]?){{0,8}}+[\p{{N}}_]             # digits, names_like_this
        (?:[\p{{L}}\p{{M}}\p{{N}}_]|[.,:'/-](?=\w))*+
    )
    | (?i:www)\.\S++                                                   # URL
    | @[\w.-]++                                                        # mention
    | </?[^<>\s]{{1,40}}/?>                                            # placeholder or mark-up
    """
# Nothing that is not a word begins here or runs on: most of a line is passed over at once.
_SURELY_A_WORD = r"(?<!\w)\p{L}++(?=[\s,;!?)\"]|$)"
# Cheap necessary conditions: for _NOT_A_WORD, and for a token beyond letters. Most running text fails both.
_MAY_NOT_BE_WORD = regex.compile(r"[\p{N}_@<]|\.(?<=\w\.)\w|:(?=//)")
_MAY_BE_MORE = regex.compile(r"[0-9:;=^<>_$&#+\u203c-\u3299\U0001f000-\U0001faff]|'(?!\w)|'(?<!\w')|x\)")
_BEGINS_MORE = r"[\p{L}0-9:;=^<>'\u203c-\u3299\U0001f000-\U0001faff-]"
_TITLES = "mr|mrs|ms|dr|prof|sr|sra|dra|jr|st|vs|mme|mlle"
# A full stop after an initial or a title ends nothing. Spanish marks where a question or an exclamation begins.
_SENTENCE_END = rf"[\n\r\v\f\u2028\u2029!?…。؟۔।॥։።፧፨¿¡]|\.(?<!\b(?:(?i:{_TITLES})|\p{{L}})\.(?=\s+\w))"


@dataclass(frozen=True)
class _Patterns:
    """Patterns that cut a locale's text; each takes any case.

    Attributes:
      breaks: pattern that becomes a line break.
      ends: pattern between two sentences.
      words: of a sentence in which ``_MAY_BE_MORE`` finds nothing; ``tokens``: of any.
      same: how else a word of ``tokens`` is typed -> the word.
      folds: sign -> what stands for it, or None; ``foreign``: any of these signs.
    """

    breaks: regex.Pattern
    ends: regex.Pattern
    words: regex.Pattern
    tokens: regex.Pattern
    same: Mapping[str, str]
    folds: Mapping[int, str | None]
    foreign: regex.Pattern


@cache
def _patterns(locale: str) -> _Patterns:
    language = _language(locale)
    rules = rules_of(locale, language)
    faces = [spelling for spellings in rules.faces for spelling in spellings]
    folds = _FOLD | {ord(sign): own for sign, own in zip(*rules.folds, strict=True)}
    word = rf"\p{{L}}[\p{{L}}\p{{M}}]*+(?:[{_JOINERS}{rules.joiners}]\p{{L}}[\p{{L}}\p{{M}}]*+)*+"
    elision = rf"(?i:{_one_of(rules.elisions)})'(?!')|" if rules.elisions else ""
    listed = (
        _one_of(faces, _face),
        _one_of(rules.apostrophes, lambda word: rf"(?<!\w){word}(?!\w)"),
        _one_of(rules.symbols, lambda word: rf"(?<![\w&\#+]){word}(?![\p{{L}}\p{{M}}_&\#+])"),
    )
    more = (_EMOJI, rf"(?i:{'|'.join(listed)})", _LETTERS_AND_DIGITS, word)
    # Faces of which a part would break.
    broken = _one_of((face for face in faces if regex.search(r"[0-9_@<]", face)), _face)
    return _Patterns(
        breaks=regex.compile(
            rf"(?:{_SURELY_A_WORD}|(?i:{broken})|{_LETTERS_AND_DIGITS})(*SKIP)(*FAIL)|{_NOT_A_WORD}", regex.VERBOSE
        ),
        ends=regex.compile(rf"{_SENTENCE_END}|;" if language == "el" else _SENTENCE_END),
        words=regex.compile(elision + word),
        # Most tokens are plain words after all, and most of what is none begins none.
        tokens=regex.compile(
            rf"{elision}{word}(?![0-9&\#+$_')]|-[0-9])|(?={_BEGINS_MORE})(?:{'|'.join(more)})", regex.VERBOSE
        ),
        same={other: face for face, *others in rules.faces for other in others},
        folds=folds,
        foreign=regex.compile(f"[{_ranges(folds)}]"),
    )


def _ranges(signs: Collection[int]) -> str:
    """Code points as the inside of a pattern's brackets, which is sought in every text that is not ASCII."""
    firsts = sorted(sign for sign in signs if sign - 1 not in signs)
    lasts = sorted(sign for sign in signs if sign + 1 not in signs)
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in zip(firsts, lasts, strict=True))


def _one_of(words: Iterable[str], where: Callable[[str], str] = str) -> str:
    """Any of the words, the longest first; ``where`` adds what must stand around one, to its pattern."""
    longest_first = sorted(words, key=len, reverse=True)
    return f"(?:{'|'.join(where(regex.escape(word)) for word in longest_first)})" if longest_first else r"(?!)"


def _face(pattern: str) -> str:
    """An emoticon where it stands for itself: not inside code, and not as a part of a word."""
    before = r"(?<![\p{N}(\[{<>:;=/\\^_*~-])" + (r"(?<!\w)" if pattern[0].isalpha() or pattern[-1].isalpha() else "")
    after = "" if pattern[-1] == ")" else r"(?![\w/^])"
    return before + pattern + after


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
    text = _composed(text, _patterns(locale))
    if _language(locale) in DOTTED_I_LANGUAGES:
        text = text.replace("I", "ı").replace("İ", "i")
    # Python lower-cases İ to i and a loose dot, which only Turkic keyboards can type.
    return text.lower().replace("i̇", "i")


def _composed(text: str, patterns: _Patterns) -> str:
    if "&" in text:
        # Exports escape twice: &amp;#39; is an apostrophe.
        for _ in range(2):
            text = _ENTITY.sub(lambda entity: html.unescape(entity.group()), _HALVES.sub(_joined, text))
    if "_" in text:
        text = _SLANTED.sub(r"\1", text)
    if text.isascii():
        return text.replace("`", "'") if "`" in text else text
    if patterns.foreign.search(text):
        text = text.translate(patterns.folds)
    # A loose dot is lost in lower case, and would cut the written text elsewhere.
    return unicodedata.normalize("NFC", text).replace("i\u0307", "i")


def _joined(halves: "regex.Match[str]") -> str:
    high, low = map(int, halves.groups())
    if 0xD800 <= high < 0xDC00 <= low < 0xE000:
        return chr(0x10000 + ((high - 0xD800) << 10) + low - 0xDC00)
    return halves.group()


def sentences(text: str, locale: str) -> list[list[str]]:
    """Words of each sentence, in order; sentences without a word are left out.

    A sentence ends at a line break, at ``. ! ? …`` and their kin in other scripts, before ``¿`` and ``¡``, and at
    whatever is not a word (see the module's docstring).
    """
    return _cut(normalise(text, locale), _patterns(locale), plain=True)


def written(text: str, locale: str) -> list[list[str]]:
    """The words of ``sentences`` as they are written: with their capitals, each face and picture as it was typed."""
    patterns = _patterns(locale)
    return _cut(_composed(text, patterns), patterns, plain=False)


def unfinished(text: str, locale: str) -> tuple[list[str], bool]:
    """Words of the current sentence, and whether the next word begins a sentence.

    After a number or another break the model restarts, but no sentence begins.
    """
    words = sentences(f"{text} a", locale)[-1][:-1]
    typed = text.rstrip(" \t\"'”’»)")
    return words, not words and (not typed or _patterns(locale).ends.match(typed, len(typed) - 1) is not None)


def for_browsers(locale: str) -> dict[str, Any]:
    """Rules of ``unfinished`` as JSON: a page cuts typed text into the same words."""
    patterns = _patterns(locale)
    by_name = {"may_break": _MAY_NOT_BE_WORD, "breaks": patterns.breaks, "ends": patterns.ends}
    by_name |= {"may_be_more": _MAY_BE_MORE, "words": patterns.words, "tokens": patterns.tokens, "slanted": _SLANTED}
    return {
        "patterns": {name: javascript.translate(pattern) for name, pattern in by_name.items()},
        "same": dict(patterns.same),
        "folds": {chr(code): other or "" for code, other in patterns.folds.items()},
        "dotted": _language(locale) in DOTTED_I_LANGUAGES,
        "longest": MAX_WORD_CHARACTERS,
    }


def _cut(text: str, patterns: _Patterns, *, plain: bool) -> list[list[str]]:
    ends, tokens, same, result = patterns.ends, patterns.tokens, patterns.same, []
    for line in text.split("\n"):
        if _MAY_NOT_BE_WORD.search(line):
            line = patterns.breaks.sub("\n", line)
        for span in ends.split(line):
            if not _MAY_BE_MORE.search(span):
                words = patterns.words.findall(span)
            elif plain:
                words = [same.get(word) or word.replace("\ufe0f", "") for word in tokens.findall(span)]
            else:
                words = tokens.findall(span)
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
    # A compatibility form (such as the ordinal ª) is a letter to Unicode but not to a speller.
    letters = {
        character: share
        for character, share in shares.items()
        if letter_of(locale).match(character)
        and unicodedata.category(character)[0] in "LM"
        and unicodedata.is_normalized("NFKC", character)
    }
    total = sum(letters.values())
    usual = {character for character, share in letters.items() if share >= _RAREST_SHARE * total}
    usual |= {letter for letter in _MORE_LETTERS.get(language, "") if letter == "·" or letter_of(locale).match(letter)}
    if not usual and language not in _MORE_LETTERS:
        raise ValueError(
            f"locale: no public word list for {locale!r} in script {script}, so its alphabet is not known; "
            "choose a locale whose language has one (the package wordfreq lists them)"
        )
    if script == "Latn":
        usual |= set(string.ascii_lowercase)
    return "".join(sorted(usual | {"'", "-"}))


@cache
def letter_of(locale: str) -> regex.Pattern:
    """Matches a letter or mark of the locale's script."""
    script = _script(locale).replace("Kore", "Hang")
    return regex.compile(rf"(?=[\p{{L}}\p{{M}}])\p{{Script_Extensions={script}}}")


def _letter_shares(locale: str) -> dict[str, float]:
    """Weight of each character in public running text of the locale's language; empty if there is no list."""
    shares: dict[str, float] = defaultdict(float)
    for word, frequency in word_frequencies(_language(locale)).items():
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
