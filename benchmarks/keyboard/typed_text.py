"""What people type: unknown words, classes, capitals and speed, before and after a change of the rules.

git worktree add ../before 3991024
.venv/stages/bin/python -m benchmarks.keyboard.typed_text FOLDER --before ../before

FOLDER holds public/LOCALE_*.parquet and users/LOCALE_*.parquet with a column ``text``. A vocabulary of 10,000 is made
from nineteen of twenty public documents of a language; unknown words are counted in the twentieth and in what users
typed. ``capitals`` is the share of words inside held-out sentences that are shown as they are written.
"""

import argparse
import hashlib
import importlib.util
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import langcodes
import pyarrow.parquet as pq
import regex

from pretrain import vocabulary
from pretrain.text import require_spaced_script, sentences, written
from pretrain.writing import truecasing
from pretrain.writing.rules import TypingRules, rules_of

SIZE, HELD_OUT_OF, REPEATS = 10_000, 20, 5
CHARACTERS, TIMED_CHARACTERS = 6_000_000, 500_000
_PICTURE = regex.compile(r"\p{Extended_Pictographic}|\p{Regional_Indicator}")
CLASSES = ("elided", "edge apostrophe", "symbol", "digits", "emoticon", "emoji")

Cut = Callable[[str, str], list[list[str]]]


@dataclass
class Language:
    """What public text of a language taught.

    Attributes:
      before, after, cased: counts of words under the old rules, the new ones, and the new ones with capitals.
      held_out: documents, by locale and file.
    """

    before: Counter[str] = field(default_factory=Counter)
    after: Counter[str] = field(default_factory=Counter)
    cased: Counter[str] = field(default_factory=Counter)
    forms: truecasing.Forms = field(default_factory=Counter)
    held_out: dict[tuple[str, str], list[str]] = field(default_factory=dict)


def texts(path: Path, characters: int) -> list[str]:
    """The first texts of a file."""
    chosen, total = [], 0
    for batch in pq.ParquetFile(path).iter_batches(columns=["text"]):
        for text in batch["text"].to_pylist():
            if total >= characters:
                return chosen
            chosen.append(text)
            total += len(text)
    return chosen


def locale_of(path: Path) -> str | None:
    """The locale that a file's name begins with, if words can be cut in it."""
    locale = path.name.split("_")[0].removesuffix(".parquet")
    try:
        require_spaced_script(locale)
    except ValueError:
        return None
    return locale


def language_of(locale: str) -> str:
    """Such as ``fr``."""
    return langcodes.Language.get(locale).language or ""


def learn(folder: Path, before: Cut) -> dict[str, Language]:
    """Counts of every language with public text."""
    learnt: dict[str, Language] = {}
    for path in sorted((folder / "public").glob("*.parquet")):
        if (locale := locale_of(path)) is None:
            continue
        language = learnt.setdefault(language_of(locale), Language())
        held_out = language.held_out.setdefault((locale, path.stem), [])
        for text in texts(path, CHARACTERS):
            if int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) % HELD_OUT_OF == 0:
                held_out.append(text)
                continue
            words, forms = sentences(text, locale), written(text, locale)
            truecasing.add_forms(language.forms, words, forms)
            for sentence in words:
                language.after.update(sentence)
            for sentence in forms:
                language.cased.update(sentence)
            for sentence in before(text, locale):
                language.before.update(sentence)
    return learnt


def top(counts: Counter[str]) -> frozenset[str]:
    """The words of a vocabulary."""
    return frozenset(vocabulary.from_counts(counts, SIZE).words)


def class_of(word: str, rules: TypingRules) -> str:
    """The class of a word; empty for a plain one."""
    if word.isalpha():
        return ""
    if any(word in spellings for spellings in rules.faces):
        return "emoticon"
    if _PICTURE.search(word):
        return "emoji"
    if word in rules.symbols:
        return "symbol"
    if any("0" <= character <= "9" for character in word):
        return "digits"
    if word.endswith("'") and word[:-1] in rules.elisions:
        return "elided"
    return "edge apostrophe" if word in rules.apostrophes else ""


def speed(cut: Cut, locale: str, lines: list[str]) -> tuple[float, int]:
    """CPU seconds and words of one pass."""
    began, words = time.process_time(), 0
    for text in lines:
        for sentence in cut(text, locale):
            words += len(sentence)
    return time.process_time() - began, words


def row(name: str, locale: str, lines: list[str], language: Language, before: Cut) -> str:
    """Unknown words, classes and speed of one file."""
    rules = rules_of(locale, language_of(locale))
    counts, old = Counter[str](), Counter[str]()
    for text in lines:
        for sentence in sentences(text, locale):
            counts.update(sentence)
        for sentence in before(text, locale):
            old.update(sentence)
    known, known_before = top(language.after), top(language.before)
    classes: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for word, count in counts.items():
        name_of_class = class_of(word, rules)
        classes[name_of_class] += count
        unknown[name_of_class] += count * (word not in known)
    total = counts.total()
    faces = {"emoticon", "emoji", "digits", "symbol"}
    letters = sum(count for name_of_class, count in classes.items() if name_of_class not in faces)
    unknown_letters = sum(count for name_of_class, count in unknown.items() if name_of_class not in faces)
    timed, characters = [], 0
    for text in lines:
        if characters > TIMED_CHARACTERS:
            break
        timed.append(text)
        characters += len(text)
    rounds = [(speed(before, locale, timed), speed(sentences, locale, timed)) for _ in range(REPEATS)]
    words = rounds[0][0][1]
    slow, fast = (words / min(pass_[side][0] for pass_ in rounds) for side in (0, 1))
    shares = (
        old.total() and sum(count for word, count in old.items() if word not in known_before) / old.total(),
        unknown.total() / total,
        unknown_letters / letters,
        (unknown.total() - unknown["emoticon"]) / total,
        *(classes[name_of_class] / total for name_of_class in CLASSES),
    )
    cells = [name, locale, f"{old.total():,}", f"{total:,}", *(f"{100 * share:.2f}" for share in shares)]
    return f"| {' | '.join([*cells, f'{slow:,.0f}', f'{fast:,.0f}', f'{fast / slow:.2f}'])} |"


def capitals(name: str, locale: str, lines: list[str], language: Language) -> str:
    """How often words of held-out text are shown as they are written, and what words with capitals would cost."""
    usual, known, known_cased = truecasing.usual_forms(language.forms), top(language.after), top(language.cased)
    usual = truecasing.of_words(usual, known)
    inside = plain = restored = words = unknown = unknown_cased = 0
    for text in lines:
        for sentence, forms in zip(sentences(text, locale), written(text, locale), strict=True):
            words += len(sentence)
            unknown += sum(word not in known for word in sentence)
            unknown_cased += sum(form not in known_cased for form in forms)
            for word, form in zip(sentence[1:], forms[1:], strict=True):
                if word in known:
                    inside += 1
                    plain += word == form
                    restored += truecasing.shown(word, usual, locale, begins=False) == form
    distinct = len({form.lower() for form in known_cased})
    shares = (plain / inside, restored / inside, unknown / words, unknown_cased / words)
    cells = [
        name,
        locale,
        f"{inside:,}",
        *(f"{100 * share:.2f}" for share in shares),
        f"{len(usual):,}",
        f"{distinct:,}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--before", type=Path, required=True, help="a checkout with the old rules")
    arguments = parser.parse_args()
    spec = importlib.util.spec_from_file_location("text_before", arguments.before / "pretrain" / "text.py")
    if spec is None or spec.loader is None:
        parser.error(f"--before: {arguments.before} holds no pretrain/text.py; give a checkout")
    old = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(old)
    learnt = learn(arguments.folder, old.sentences)
    heads = ["file", "locale", "words before", "words", "unknown % before", "unknown %", "of letters alone %"]
    heads += ["if all emoticons were known %", *(f"{name} %" for name in CLASSES), "words/s before", "words/s", "ratio"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    files = [(*key, lines) for language in learnt.values() for key, lines in language.held_out.items()]
    for path in sorted((arguments.folder / "users").glob("*.parquet")):
        if (locale := locale_of(path)) is not None and language_of(locale) in learnt:
            files.append((locale, path.stem, texts(path, CHARACTERS)))
    for locale, name, lines in files:
        print(row(name, locale, lines, learnt[language_of(locale)], old.sentences), flush=True)
    heads = ["held-out public text", "locale", "words inside", "lower case right %", "capitals right %", "unknown %"]
    heads += ["unknown if cased %", "entries", "distinct words of 10,000 cased"]
    print(f"\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for language in learnt.values():
        for (locale, name), lines in language.held_out.items():
            print(capitals(name, locale, lines, language))


if __name__ == "__main__":
    main()
