"""Public text on disk: sharded word stores that a killed build finishes later.

Layout: ``train/shard-00000/``, ``validation/shard-00000/``, each a word store with ``position.json``
beside it, and ``manifest.json`` once everything is there; ``truecase.json`` in the first train shard says
how its words are usually written. A shard appears by one rename, together with the position of the stream
after its last document; a repeated build keeps finished shards and resumes from that position.
"""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pretrain.config import (
    C4_DATASET,
    TOKENS_PER_SHARD,
    C4Corpus,
    Config,
    CorpusConfig,
    FileCorpus,
    SampleCorpus,
    TextPart,
)
from pretrain.files import write_text
from pretrain.text.packaged import packaged_texts
from pretrain.text.sources import Document, DocumentStream, Split, open_stream
from pretrain.text.tokenise import sentences, written
from pretrain.text.words import WordStore, open_words, write_words
from pretrain.writing import truecasing
from pretrain.writing.rules import RULES_VERSION
from pretrain.writing.truecasing import Forms, TypicalForm

_FORMAT = "tacit-corpus-1"
_REPORT_EVERY_WORDS = 200_000
# From the first train shard alone: in five million words the ten-thousandth word occurs about forty times.
_TRUECASE = "truecase.json"

Progress = Callable[[dict], None]


class CorpusSummary(Config):
    """Source, size and digest of a corpus. Tokens are words; sentence ends are not counted.

    Attributes:
      revision: commit of a source on the hub.
      parts: where the source is several texts, or a language model wrote some of it.
      left_out_documents: documents of the train split that ``max_tokens`` left out, whole or in part; None where they
        were not counted, because the rest of the stream would have to be downloaded.
    """

    source: str
    revision: str | None = None
    licence: str
    parts: tuple[TextPart, ...] = ()
    locale: str
    train_tokens: int
    train_documents: int
    left_out_documents: int | None
    validation_tokens: int
    validation_documents: int
    shards: int
    digest: str

    @property
    def documents(self) -> int:
        """Documents of both splits."""
        return self.train_documents + self.validation_documents


@dataclass(frozen=True)
class Corpus:
    """An opened corpus; owners are documents."""

    train: list[WordStore]
    validation: list[WordStore]
    summary: CorpusSummary

    def counts(self) -> dict[str, int]:
        """Count of each word in the train split."""
        total: Counter[str] = Counter()
        for shard in self.train:
            total.update(shard.word_counts())
        return dict(total)


def build_corpus(
    config: CorpusConfig,
    locale: str,
    directory: Path,
    progress: Progress | None = None,
    shard_words: int = TOKENS_PER_SHARD,
) -> CorpusSummary:
    """Write the corpus of a configuration, or finish or find one begun before.

    A split ends before the first sentence that would exceed its cap of words, or with the text. The summary states how
    many train documents the cap left out.

    Args:
      progress: called with ``split`` (0 train, 1 validation), ``shard``, ``documents`` and ``words`` so far.
      shard_words: a shard ends with the document in which it reaches this number of words.

    Raises:
      ValueError: unusable settings or files; a split without words; ``directory`` holds another corpus.
      OSError: the hub cannot be reached. Finished shards stay.
    """
    settings = config.model_dump(mode="json") | {"tokens_per_shard": shard_words}
    identity = {"format": _FORMAT, "locale": locale, "config": settings, "rules": RULES_VERSION}
    begun, manifest = directory / "begun.json", directory / "manifest.json"
    before = json.loads(begun.read_text(encoding="utf-8")) if begun.exists() else identity
    if manifest.exists():
        before["rules"] = RULES_VERSION  # A finished corpus stays as it was cut.
    if before != identity:
        raise ValueError(
            f"directory: {directory} holds a corpus of other settings, or one begun under other rules of what is a "
            "word; choose an empty directory"
        )
    if manifest.exists():
        return open_corpus(directory).summary
    caps: dict[Split, int] = {"train": config.max_tokens, "validation": config.max_validation_tokens}
    totals: dict[Split, _Total] = {}
    for split, cap in caps.items():
        totals[split] = total = _finished(directory / split)
        if not total.ended:
            stream = open_stream(config, locale, split, total.position)
            # Written only now: settings that cannot be opened leave nothing behind.
            _write_json(begun, identity)
            _add_shards(total, stream, locale, directory / split, cap, shard_words, progress or (lambda _: None))
        if not totals[split].words:
            held_out = split == "validation" and isinstance(config, FileCorpus) and not config.validation
            read = _read_instead(directory / "train" / _shard_name(0)) if held_out else "give more text"
            raise ValueError(f"public_text: the {split} split has no words in {locale!r}; {read}")
    digests = {split: [meta["digest"] for meta in totals[split].shards] for split in caps}
    source, licence = _provenance(config)
    summary = CorpusSummary(
        source=source,
        revision=config.revision if isinstance(config, C4Corpus) else None,
        licence=licence,
        parts=_parts(config, locale, licence, totals["train"]),
        locale=locale,
        train_tokens=totals["train"].words,
        train_documents=totals["train"].documents,
        left_out_documents=totals["train"].left_out,
        validation_tokens=totals["validation"].words,
        validation_documents=totals["validation"].documents,
        shards=sum(map(len, digests.values())),
        digest=hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest(),
    )
    _write_json(manifest, {**identity, "summary": summary.model_dump(mode="json"), "shards": digests})
    return summary


def _read_instead(shard: Path) -> str:
    """Error text where nothing was held out: the documents that were read, and the fix."""
    store = open_words(shard)
    different = len({store.owner(number).tobytes() for number in range(len(store))})
    return (
        f"of {len(store):,} documents with words {different:,} are different, and alike ones are in one split: give "
        "more text, or name validation files"
    )


def open_corpus(directory: Path) -> Corpus:
    """Open a finished corpus and check every digest.

    Raises:
      ValueError: unfinished, damaged, or a shard is not the one the manifest names.
    """
    manifest = directory / "manifest.json"
    if not manifest.exists():
        raise ValueError(f"directory: {directory} has no manifest.json; the corpus is unfinished, build it again")
    content = json.loads(manifest.read_text(encoding="utf-8"))
    shards: dict[str, list[WordStore]] = {}
    for split, digests in content["shards"].items():
        shards[split] = [open_words(directory / split / _shard_name(number)) for number in range(len(digests))]
        for number, (shard, digest) in enumerate(zip(shards[split], digests, strict=True)):
            if shard.digest != digest:
                raise ValueError(f"{split}/{_shard_name(number)}: not the shard manifest.json names; build it again")
    return Corpus(shards["train"], shards["validation"], CorpusSummary.model_validate(content["summary"]))


def usual_forms(directory: Path) -> dict[str, TypicalForm]:
    """TypicalForm forms of a corpus's words."""
    return truecasing.load(directory / "train" / _shard_name(0) / _TRUECASE)


@dataclass
class _Total:
    """Running totals of a split; the only mutable value here, alive during one build.

    Attributes:
      left_out: documents that the cap left out, whole or in part; None where they were not counted.
      position: where the stream stood after the last finished shard; None before the first.
      shards: digest, words, documents, and words by part of each.
      parts: words by part in the shard that is being written.
    """

    words: int = 0
    documents: int = 0
    ended: bool = False
    left_out: int | None = 0
    position: dict | None = None
    shards: list[dict] = field(default_factory=list)
    parts: Counter[str] = field(default_factory=Counter)


def _add_shards(
    total: _Total,
    stream: DocumentStream,
    locale: str,
    directory: Path,
    cap: int,
    shard_words: int,
    progress: Progress,
) -> None:
    """Read a split to its end, shard by shard."""
    documents = iter(stream)
    while not total.ended:
        number = len(total.shards)
        total.parts.clear()
        building = directory / "building"
        shutil.rmtree(building, ignore_errors=True)
        counts = {"split": int(directory.name == "validation"), "shard": number}

        def report(counts: dict[str, int] = counts) -> None:
            progress(counts | {"documents": total.documents, "words": total.words})

        forms: Forms | None = Forms() if number == 0 and directory.name == "train" else None
        store = write_words(building, _owners(documents, locale, total, shard_words, cap, report, forms))
        if total.left_out:
            counted = stream.countable and directory.name == "train"
            total.left_out = total.left_out + sum(1 for _ in documents) if counted else None
        if len(store):
            if forms is not None:
                truecasing.save(truecasing.usual_forms(forms), building / _TRUECASE)
            _finish_shard(building, directory / _shard_name(number), total, store, stream)
        else:
            shutil.rmtree(building)
        report()


def _owners(
    documents: Iterator[Document],
    locale: str,
    total: _Total,
    shard_words: int,
    cap: int,
    report: Callable[[], None],
    forms: Forms | None,
) -> Iterator[list[list[str]]]:
    """Tokenised documents, whole but for the last one under the cap, until the shard is full; notes their ``forms``."""
    start = reported = total.words
    while total.words - start < shard_words and not total.ended:
        document = next(documents, None)
        if document is None:
            total.ended = True
            return
        owner = []
        for sentence in sentences(document.text, locale):
            if total.words + len(sentence) > cap:
                total.ended, total.left_out = True, 1
                break
            owner.append(sentence)
            total.words += len(sentence)
            total.parts[document.part] += len(sentence)
        if owner:
            if forms is not None:
                truecasing.add_forms(forms, owner, written(document.text, locale)[: len(owner)])
            total.documents += 1
            yield owner
        if total.words - reported >= _REPORT_EVERY_WORDS:
            reported = total.words
            report()


def _finish_shard(building: Path, shard: Path, total: _Total, store: WordStore, stream: DocumentStream) -> None:
    meta = {"digest": store.digest, "words": store.num_words, "documents": len(store), "parts": dict(total.parts)}
    total.shards.append(meta)
    position = {"stream": stream.state(), "ended": total.ended, "left_out": total.left_out}
    _write_json(building / "position.json", position | meta)
    building.rename(shard)


def _finished(directory: Path) -> _Total:
    """Totals over the finished shards of a split."""
    total = _Total()
    while (path := directory / _shard_name(len(total.shards)) / "position.json").exists():
        shard = json.loads(path.read_text(encoding="utf-8"))
        total.position, total.ended, total.left_out = shard.pop("stream"), shard.pop("ended"), shard.pop("left_out")
        total.words += shard["words"]
        total.documents += shard["documents"]
        total.shards.append(shard)
    return total


def _shard_name(number: int) -> str:
    return f"shard-{number:05d}"


def _provenance(config: CorpusConfig) -> tuple[str, str]:
    """Name of the source and its licence."""
    match config:
        case C4Corpus():
            return f"{C4_DATASET}/{config.subset}", "ODC-BY 1.0; Common Crawl's terms of use for the text"
        case FileCorpus():
            return "local files", "as granted by the supplier of the files"
        case SampleCorpus():
            return "texts that ship inside packages", "each its own"


def _parts(config: CorpusConfig, locale: str, licence: str, train: _Total) -> tuple[TextPart, ...]:
    words: Counter[str] = Counter()
    for shard in train.shards:
        words.update(shard.get("parts", {}))
    if isinstance(config, SampleCorpus):
        texts = packaged_texts(locale, chat=config.source == "sample-with-chat")
        return tuple(TextPart(name=text.name, licence=text.licence, words=words[text.name]) for text in texts)
    if set(words) <= {""}:
        return ()
    return tuple(
        TextPart(name=part or "written by people", licence=licence, words=count, synthetic=bool(part))
        for part, count in sorted(words.items())
    )


def _write_json(path: Path, content: dict) -> None:
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False))
