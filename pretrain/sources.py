"""Documents of public text from three sources behind one interface, ``DocumentStream``.

``c4`` and ``files`` go through the same ``datasets`` calls, so local shards exercise the code that
reads the hub. ``sample`` reads the texts that ship inside packages.
"""

import glob
import gzip
import hashlib
import http.client
import json
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from pretrain.config import C4_DATASET, C4Corpus, CorpusConfig, FileCorpus, SampleCorpus
from pretrain.files import sha256
from pretrain.packaged import PackagedText, documents, packaged_texts
from pretrain.text import require_spaced_script

if TYPE_CHECKING:
    from datasets import Features, IterableDataset

Split = Literal["train", "validation"]

_JSON_SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
_C4_FIELDS = ("text", "timestamp", "url")
# A row that a language model wrote says which one, and all that it takes to write it again.
_WRITTEN_FIELDS = ("text", "prompt", "model_digest", "seed")
_HUB_TIMEOUT_SECONDS = 10
# Where a source has no validation text of its own, one document in twenty is held out.
_HELD_OUT_OF = 20
# Some packages hold a hundred long articles: one in twenty would be too few to measure anything.
_SAMPLE_HELD_OUT_OF = 10


class Document(NamedTuple):
    """Text, and the part of its source that it stands in; empty where a source has no parts."""

    text: str
    part: str = ""


class DocumentStream(Protocol):
    """Documents in a fixed order, from wherever the state says."""

    def __iter__(self) -> Iterator[Document]: ...

    def state(self) -> dict:
        """JSON value; ``open_stream`` with it goes on right after the last document yielded."""


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
            return _DatasetStream(_open_hub(config.subset, split), state, held_out=None)
        case FileCorpus():
            own_validation = split == "validation" and bool(config.validation)
            train = _matching(config.train, "train")
            validation = _matching(config.validation, "validation")
            if both := sorted(set(train) & set(validation)):
                raise ValueError(f"public_text.validation: {both[0]} is also a train file; name each file once")
            held_out = None if config.validation else split == "validation"
            return _open_files(validation if own_validation else train, state, held_out)
        case SampleCorpus():
            return _PackagedStream(packaged_texts(locale), state, held_out=split == "validation")


def identity(config: CorpusConfig, locale: str) -> dict[str, list]:
    """What decides a source's text beside its configuration: bytes of files, versions of packages. C4 does not change.

    Raises:
      ValueError: a file pattern matches nothing; a package of the sample is not installed.
      OSError: a file cannot be read.
    """
    match config:
        case C4Corpus():
            return {}
        case FileCorpus():
            train, validation = _matching(config.train, "train"), _matching(config.validation, "validation")
            return {"train": _contents(train), "validation": _contents(validation)}
        case SampleCorpus():
            return {"packages": [text.name for text in packaged_texts(locale)]}


def _contents(paths: list[str]) -> list[tuple[str, str]]:
    """Name and digest of each file."""
    stats = [Path(path).stat() for path in paths]
    return [
        (Path(path).name, _digest_of_state(path, stat.st_ino, stat.st_size, stat.st_mtime_ns))
        for path, stat in zip(paths, stats, strict=True)
    ]


@cache
def _digest_of_state(path: str, *_state: int) -> str:
    """Text may be large, and is asked for before and after it is read."""
    return sha256(Path(path))


class _DatasetStream:
    """Texts of a ``datasets`` stream. ``held_out`` keeps one side of the hold-out, None keeps all."""

    def __init__(self, dataset: "IterableDataset", state: dict | None, held_out: bool | None) -> None:
        self._dataset, self._held_out = dataset, held_out
        if state is not None:
            dataset.load_state_dict(state)

    def __iter__(self) -> Iterator[Document]:
        from huggingface_hub.utils import httpx

        try:
            for example in self._dataset:
                text = example["text"]
                if text and self._held_out in (None, _is_held_out(text, _HELD_OUT_OF)):
                    yield Document(text, written_by(example["model_digest"]) if "model_digest" in example else "")
        except httpx.HTTPError as error:
            raise OSError(f"public_text: the connection to the hub broke: {error}; run the stage again") from error
        except (EOFError, zlib.error, ValueError) as error:
            raise ValueError(f"public_text: a file is damaged or has no 'text' column: {error}") from error

    def state(self) -> dict:
        return self._dataset.state_dict()


def _open_hub(subset: str, split: Split) -> "IterableDataset":
    require_hub(subset)
    from datasets import load_dataset

    try:
        stream = load_dataset(C4_DATASET, subset, split=split, streaming=True, features=_features(_C4_FIELDS))
    except OSError as error:
        raise OSError(_unreachable(subset, str(error))) from error
    except ValueError as error:
        raise ValueError(f"public_text.subset: {subset!r} of {C4_DATASET!r}: {error}") from error
    return stream.select_columns(["text"])


def require_hub(subset: str) -> None:
    """One short request first: ``datasets`` itself takes minutes of retries to notice that there is no network."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise OSError(_unreachable(subset, "offline mode is set (HF_HUB_OFFLINE)"))
    request = urllib.request.Request(f"{constants.ENDPOINT}/api/datasets/{C4_DATASET}", method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=_HUB_TIMEOUT_SECONDS):
            pass
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 404:
            raise ValueError(
                f"public_text.source: {C4_DATASET!r} is not on {constants.ENDPOINT}; use the hub's own address, or "
                "source 'files'"
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


class _ChainedStream:
    """Streams one after the other; each is opened when its turn comes."""

    def __init__(self, opens: Sequence[Callable[[dict | None], DocumentStream]], state: dict | None) -> None:
        self._opens, self._number = opens, 0 if state is None else state["part"]
        self._stream = opens[self._number](None if state is None else state["stream"])

    def __iter__(self) -> Iterator[Document]:
        yield from self._stream
        while self._number + 1 < len(self._opens):
            self._number += 1
            self._stream = self._opens[self._number](None)
            yield from self._stream

    def state(self) -> dict:
        return {"part": self._number, "stream": self._stream.state()}


def _open_files(paths: list[str], state: dict | None, held_out: bool | None) -> DocumentStream:
    """Files in the order named; neighbours of one kind are one ``datasets`` stream."""
    kinds = [(_kind(Path(path)), path) for path in paths]
    opens = [
        partial(_open_run, kind, [path for _, path in run], held_out=held_out)
        for kind, run in groupby(kinds, key=itemgetter(0))
    ]
    return opens[0](state) if len(opens) == 1 else _ChainedStream(opens, state)


class _Kind(NamedTuple):
    """What ``datasets`` must be told about a file."""

    parquet: bool
    c4: bool
    written: bool


def _kind(path: Path) -> _Kind:
    """Kind of a file, from its name and its first bytes.

    Raises:
      ValueError: neither Parquet nor JSON; damaged; a column is missing.
    """
    if path.suffix == ".parquet":
        fields = _parquet_columns(path)
    elif path.name.endswith(_JSON_SUFFIXES):
        fields = set(_first_record(path))
    else:
        raise ValueError(f"public_text: {path} is neither .parquet nor one of {' '.join(_JSON_SUFFIXES)}")
    written = "model_digest" in fields
    if missing := sorted(set(_WRITTEN_FIELDS if written else ["text"]) - fields):
        raise ValueError(
            f"public_text: {path} has the fields {sorted(fields)}; {', '.join(map(repr, missing))} is missing"
        )
    return _Kind(path.suffix == ".parquet", c4=fields == set(_C4_FIELDS), written=written)


def _open_run(kind: _Kind, paths: list[str], state: dict | None, *, held_out: bool | None) -> DocumentStream:
    from datasets import load_dataset

    columns = ["text", "model_digest"] if kind.written else ["text"]
    if kind.parquet:
        stream = load_dataset("parquet", data_files=paths, split="train", streaming=True, columns=columns)
    else:
        # Explicit features hold for every record, so they are given only where the layout is known.
        features = _features(_C4_FIELDS) if kind.c4 else None
        stream = load_dataset("json", data_files=paths, split="train", streaming=True, features=features)
        stream = stream.select_columns(columns)
    return _DatasetStream(stream, state, held_out)


def _parquet_columns(path: Path) -> set[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return set(pq.read_schema(path).names)
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"public_text: {path} is damaged or not Parquet: {error}") from error


def _first_record(path: Path) -> dict:
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            record = json.loads(file.readline())
    except (gzip.BadGzipFile, EOFError, zlib.error, ValueError) as error:
        raise ValueError(f"public_text: {path} is damaged or not one JSON object a line: {error}") from error
    if not isinstance(record, dict):
        raise ValueError(f"public_text: {path} must hold one JSON object a line, got {type(record).__name__}")
    return record


def written_by(model_digest: str) -> str:
    """Part of a corpus that one language model wrote."""
    return f"written by a language model, {model_digest}"


def _matching(patterns: tuple[str, ...], field: str) -> list[str]:
    matching: list[str] = []
    for pattern in patterns:
        paths = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - Path.glob refuses absolute patterns
        if not paths:
            raise ValueError(f"public_text.{field}: no file matches {pattern!r}; check the path")
        matching += [str(Path(path).resolve()) for path in paths]
    return list(dict.fromkeys(matching))


def _is_held_out(text: str, out_of: int) -> bool:
    """A function of the text alone, so copies of one document never stand on both sides."""
    return int.from_bytes(_digest(text)[:8]) % out_of == 0


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


class _PackagedStream:
    """Packaged texts. What trains stands in their order, so that a cap cuts the last; what is held out is mixed."""

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
