"""Documents of public text from three sources behind one interface, ``DocumentStream``.

``c4`` streams the hub through ``datasets``, ``files`` reads rows that anybody may have written, and ``sample`` the
texts that ship inside packages.
"""

import hashlib
import http.client
import logging
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from pretrain.config import C4_DATASET, C4Corpus, CorpusConfig, FileCorpus, SampleCorpus
from pretrain.files import sha256
from pretrain.reading import objects, rows
from pretrain.reading.objects import StoredObject
from pretrain.reading.rows import Column, StoredFile
from pretrain.text.debris import Debris
from pretrain.text.packaged import PackagedText, documents, packaged_texts
from pretrain.text.tokenise import require_spaced_script

if TYPE_CHECKING:
    from datasets import Features, IterableDataset

_log = logging.getLogger(__name__)

Split = Literal["train", "validation"]

_C4_FIELDS = ("text", "timestamp", "url")
# A row that a language model wrote says which one, and all that it takes to write it again.
_MODEL = "model_digest"
_WRITTEN_FIELDS = ("text", "prompt", _MODEL, "seed")
_HUB_TIMEOUT_SECONDS = 10
# Order of C4's documents: a seeded order of its files, of which ten are read at a time into a buffer that is shuffled.
_SHUFFLE_SEED = 0
_SHUFFLED_FILES = 10
_SHUFFLED_DOCUMENTS = 10_000
# For a source without validation text, one document in twenty is held out.
_HELD_OUT_OF = 20
# Some packages hold a hundred long articles: one in twenty would be too few to measure anything.
_SAMPLE_HELD_OUT_OF = 10


class Document(NamedTuple):
    """Text, and its part of the source; empty for a source without parts."""

    text: str
    part: str = ""


class DocumentStream(Protocol):
    """Documents in a fixed order, from wherever the state says.

    Attributes:
      countable: whether documents beyond a cap may be read on to count them, which is no download.
    """

    countable: bool

    def __iter__(self) -> Iterator[Document]: ...

    def state(self) -> dict:
        """JSON value; ``open_stream`` with it resumes right after the last yielded document."""


def open_stream(config: CorpusConfig, locale: str, split: Split, state: dict | None = None) -> DocumentStream:
    """Documents of one split of a source, from the start or from a saved state.

    Raises:
      ValueError: the locale's script is unspaced; a file pattern matches nothing, or a file is no public
        text; a package of the sample is not installed, or none has text in this language.
      OSError: the hub cannot be reached.
    """
    require_spaced_script(locale)
    match config:
        case C4Corpus():
            return _HubStream(_open_hub(config, split), state)
        case FileCorpus():
            own_validation = split == "validation" and bool(config.validation)
            train, validation = _files(config)
            if both := sorted(set(train) & set(validation)):
                raise ValueError(f"public_text.validation: {both[0]} is also a train file; name each file once")
            held_out = None if config.validation else split == "validation"
            return _FileStream(validation if own_validation else train, state, held_out)
        case SampleCorpus():
            return _PackagedStream(_packaged(config, locale), state, held_out=split == "validation")


def identity(config: CorpusConfig, locale: str) -> dict[str, list]:
    """Identity of a source's text beside its configuration: bytes of files, versions of packages.

    The configuration of C4 identifies its text, because it names a commit.

    Raises:
      ValueError: a file pattern matches nothing; a package of the sample is not installed.
      OSError: a file cannot be read.
    """
    match config:
        case C4Corpus():
            return {}
        case FileCorpus():
            train, validation = _files(config)
            return {"train": contents(train), "validation": contents(validation)}
        case SampleCorpus():
            return {"packages": [text.name for text in _packaged(config, locale)]}


def _packaged(config: SampleCorpus, locale: str) -> tuple[PackagedText, ...]:
    return packaged_texts(locale, chat=config.source == "sample-with-chat")


def inspect(config: FileCorpus) -> None:
    """Find what can be known of files by their ends and first rows: one that is missing, or no public text.

    Raises:
      ValueError: with the field, the value and the fix.
      OSError: the disk does not answer.
    """
    for path in (path for split in _files(config) for path in split):
        next(rows.placed_batches(path, "public_text", _columns(path), most_rows=1), None)


def contents(paths: Sequence[StoredFile]) -> list[tuple[str, str]]:
    """Name and digest of each file."""
    return [(path.name, _sha256(path)) for path in paths]


def _sha256(file: StoredFile) -> str:
    """SHA-256 of a file; a store says when an object changed in seconds only, so an object is read each time."""
    if isinstance(file, StoredObject):
        with objects.answering(file.address, file.field), file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    at = file.stat()
    return _digest_of_state(file, at.st_ino, at.st_size, at.st_mtime_ns)


@cache
def _digest_of_state(path: Path, *_state: int) -> str:
    """SHA-256 of a file in this state; cached, as text may be large and is hashed before and after reading."""
    return sha256(path)


class _HubStream:
    """Texts of a ``datasets`` stream, which has a validation split of its own.

    The state is the number of rows read: a resumed stream reads them again, because the state of ``datasets`` omits the
    rows in its shuffle buffer, which would be lost.
    """

    countable = False

    def __init__(self, dataset: "IterableDataset", state: dict | None) -> None:
        self._rows: int = state["rows"] if state else 0
        self._dataset = dataset.skip(self._rows)

    def __iter__(self) -> Iterator[Document]:
        from huggingface_hub.utils import httpx

        try:
            for example in self._dataset:
                self._rows += 1
                if example["text"]:
                    yield Document(example["text"])
        except httpx.HTTPError as error:
            raise OSError(f"public_text: the connection to the hub broke: {error}; run the stage again") from error
        except (EOFError, zlib.error, ValueError):
            raise ValueError(
                "public_text: a file of the hub is damaged or has no 'text' column; copy it again"
            ) from None

    def state(self) -> dict:
        return {"rows": self._rows}


def _open_hub(config: C4Corpus, split: Split) -> "IterableDataset":
    subset = config.subset
    require_hub(config)
    from datasets import load_dataset

    try:
        stream = load_dataset(
            C4_DATASET,
            subset,
            split=split,
            revision=config.revision,
            streaming=True,
            features=_features(_C4_FIELDS),
        )
    except OSError as error:
        raise OSError(_unreachable(subset, str(error))) from error
    except ValueError as error:
        raise ValueError(f"public_text.subset: {subset!r} of {C4_DATASET!r}: {error}") from error
    return stream.select_columns(["text"]).shuffle(
        _SHUFFLE_SEED, buffer_size=_SHUFFLED_DOCUMENTS, max_buffer_input_shards=_SHUFFLED_FILES
    )


def require_hub(config: C4Corpus) -> None:
    """Ask the hub for the commit first: ``datasets`` itself needs minutes of retries to detect a missing network.

    Raises:
      ValueError: the hub has no such commit.
      OSError: the hub cannot be reached.
    """
    subset, revision = config.subset, config.revision
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise OSError(_unreachable(subset, "offline mode is set (HF_HUB_OFFLINE)"))
    address = f"{constants.ENDPOINT}/api/datasets/{C4_DATASET}/revision/{revision}"
    request = urllib.request.Request(address, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=_HUB_TIMEOUT_SECONDS):
            pass
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 404:
            raise ValueError(
                f"public_text.revision: {revision!r} is no commit of {C4_DATASET!r} on {constants.ENDPOINT}; copy one "
                "from the history of its files, or use source 'files'"
            ) from error
        if error.code >= 500:
            raise OSError(_unreachable(subset, str(error))) from error
        # Any other answer (such as 401 without a token) is for `datasets` to judge: the hub is there.
    except (OSError, http.client.HTTPException) as error:
        raise OSError(_unreachable(subset, str(error))) from error


def _unreachable(subset: str, why: str) -> str:
    return (
        f"public_text: the hub could not be reached for dataset {C4_DATASET!r}, subset {subset!r} ({why}); "
        "try again with a network, or download shards elsewhere and use source 'files' with their paths"
    )


def _features(names: tuple[str, ...]) -> "Features":
    """All strings: left to itself, `datasets` turns C4's timestamp string into a timestamp type."""
    from datasets import Features, Value

    return Features({name: Value("string") for name in names})


class _FileStream:
    """Texts of files, one after the other; a file is opened when its turn comes.

    The state names a file by its place and a row in it.
    """

    countable = True

    def __init__(self, paths: Sequence[Path], state: dict | None, held_out: bool | None) -> None:
        self._files = [(path, _columns(path)) for path in paths]
        self._place: int = state["file"] if state else 0
        self._row: int = state["row"] if state else 0
        self._held_out, self._debris = held_out, Debris()

    def __iter__(self) -> Iterator[Document]:
        while self._place < len(self._files):
            path, columns = self._files[self._place]
            for batch in rows.batches(path, "public_text", columns, self._row):
                self._debris.look(batch["text"])
                texts = batch.column("text").to_pylist()
                makers = batch.column(_MODEL).to_pylist() if len(columns) > 1 else [None] * len(texts)
                for text, maker in zip(texts, makers, strict=True):
                    self._row += 1
                    if text and self._held_out in (None, _is_held_out(text, _HELD_OUT_OF)):
                        yield Document(text, written_by(maker) if len(columns) > 1 else "")
            self._place, self._row = self._place + 1, 0
        if self._debris.said:
            _log.warning("public_text: %s", self._debris.said)

    def state(self) -> dict:
        return {"file": self._place, "row": self._row}


def _columns(path: Path) -> tuple[Column, ...]:
    """Columns to read from a file, by its first record.

    Raises:
      ValueError: neither Parquet, JSON lines nor CSV; damaged; a column is missing.
    """
    names = rows.fields(path, "public_text")
    needed = _WRITTEN_FIELDS if _MODEL in names else ("text",)
    for column in needed:
        if column not in names:
            raise rows.missing(path, "public_text", column, names)
    return tuple(Column(name) for name in ("text", _MODEL) if name in needed)


def written_by(model_digest: str) -> str:
    """Part of a corpus that one language model wrote."""
    return f"written by a language model, {model_digest}"


def _files(config: FileCorpus) -> tuple[list[Path], list[Path]]:
    """Files of the two splits."""
    splits: tuple[Split, Split] = ("train", "validation")
    train, validation = (rows.matching(getattr(config, split), f"public_text.{split}") for split in splits)
    return train, validation


def _is_held_out(text: str, out_of: int) -> bool:
    """Return whether a text is held out: a function of the text alone, so copies of a document are on one side."""
    return int.from_bytes(_digest(text)[:8]) % out_of == 0


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


class _PackagedStream:
    """Packaged texts. What trains stands in their order, so that a cap cuts the last; what is held out is mixed."""

    countable = True

    def __init__(self, texts: tuple[PackagedText, ...], state: dict | None, held_out: bool) -> None:
        self._texts, self._held_out = texts, held_out
        self._read = 0 if state is None else state["documents"]

    def __iter__(self) -> Iterator[Document]:
        mine = (
            Document(text, name)
            for name, text in documents(self._texts)
            if _is_held_out(text, _SAMPLE_HELD_OUT_OF) == self._held_out
        )
        ordered = sorted(mine, key=lambda document: _digest(document.text)) if self._held_out else mine
        for document in islice(ordered, self._read, None):
            self._read += 1
            yield document

    def state(self) -> dict:
        return {"documents": self._read}
