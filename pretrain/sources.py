"""Documents of public text from three sources behind one interface, ``DocumentStream``.

``c4`` and ``files`` go through the same ``datasets`` calls, so local shards exercise the code that
reads the hub. ``sample`` reads the Wikipedia articles that ship inside the gensim wheel.
"""

import bz2
import glob
import gzip
import hashlib
import http.client
import json
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import regex

from pretrain.config import C4_DATASET, C4Corpus, CorpusConfig, FileCorpus, SampleCorpus
from pretrain.text import require_spaced_script

if TYPE_CHECKING:
    from datasets import Features, IterableDataset

Split = Literal["train", "validation"]

_SAMPLE = "test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
_JSON_SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
_C4_FIELDS = ("text", "timestamp", "url")
_HUB_TIMEOUT_SECONDS = 10
# Where a source has no validation text of its own, one document in twenty is held out.
_HELD_OUT_OF = 20
# The sample is a hundred long articles: one in twenty would be too few to measure anything.
_SAMPLE_HELD_OUT_OF = 10


class DocumentStream(Protocol):
    """Documents in a fixed order, from wherever the state says."""

    def __iter__(self) -> Iterator[str]: ...

    def state(self) -> dict:
        """JSON value; ``open_stream`` with it goes on right after the last document yielded."""


def open_stream(config: CorpusConfig, locale: str, split: Split, state: dict | None = None) -> DocumentStream:
    """Documents of one split of a source, from the start or from a saved state.

    Raises:
      ValueError: the locale's script is unspaced, a file pattern matches nothing, the sample is
        not installed or not in this language.
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
            return _DatasetStream(_open_files(validation if own_validation else train), state, held_out)
        case SampleCorpus():
            if locale.partition("-")[0] != "en":
                raise ValueError(
                    f"public_text.source: the sample is English and the locale is {locale!r}; use 'c4' or 'files'"
                )
            return _SampleStream(_sample_path(), state, held_out=split == "validation")


class _DatasetStream:
    """Texts of a ``datasets`` stream. ``held_out`` keeps one side of the hold-out, None keeps all."""

    def __init__(self, dataset: "IterableDataset", state: dict | None, held_out: bool | None) -> None:
        self._dataset, self._held_out = dataset, held_out
        if state is not None:
            dataset.load_state_dict(state)

    def __iter__(self) -> Iterator[str]:
        from huggingface_hub.utils import httpx

        try:
            for example in self._dataset:
                text = example["text"]
                if text and self._held_out in (None, _is_held_out(text, _HELD_OUT_OF)):
                    yield text
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


def _open_files(paths: list[str]) -> "IterableDataset":
    from datasets import load_dataset

    if all(path.endswith(".parquet") for path in paths):
        return load_dataset("parquet", data_files=paths, split="train", streaming=True, columns=["text"])
    if not all(path.endswith(_JSON_SUFFIXES) for path in paths):
        raise ValueError(f"public_text: files must all be Parquet or all {' '.join(_JSON_SUFFIXES)}; got {paths[:3]}")
    fields = _first_record(Path(paths[0]))
    if "text" not in fields:
        raise ValueError(f"public_text: {paths[0]} has the fields {sorted(fields)}; 'text' is missing")
    # Explicit features hold for every record, so they are given only where the layout is known.
    features = _features(_C4_FIELDS) if set(fields) == set(_C4_FIELDS) else None
    stream = load_dataset("json", data_files=paths, split="train", streaming=True, features=features)
    return stream.select_columns(["text"])


def _first_record(path: Path) -> dict:
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            record = json.loads(file.readline())
    except (gzip.BadGzipFile, EOFError, zlib.error, ValueError) as error:
        raise ValueError(f"public_text: {path} is damaged or not one JSON object a line: {error}") from error
    if not isinstance(record, dict):
        raise ValueError(f"public_text: {path} must hold one JSON object a line, got {type(record).__name__}")
    return record


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
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) % out_of == 0


def _sample_path() -> Path:
    try:
        path = Path(str(resources.files("gensim").joinpath(_SAMPLE)))
    except ModuleNotFoundError as error:
        raise ValueError(
            "public_text.source: 'sample' reads articles inside the gensim wheel, which is not installed; "
            "run `make setup`, or `pip install gensim==4.4.0`"
        ) from error
    if not path.exists():
        raise ValueError("public_text.source: this gensim has no Wikipedia sample; `pip install gensim==4.4.0`")
    return path


# What follows the body of an article is bibliography.
_BACK_MATTER = regex.compile(
    r"^=+ *(?:references|notes|footnotes|see also|external links|further reading|bibliography|sources|citations)\b",
    regex.MULTILINE | regex.IGNORECASE,
)
_NOT_PROSE = regex.compile(r"^(?:=.*|[|!{}].*)$", regex.MULTILINE)
_QUOTE_MARKS = regex.compile(r"'{2,}")


class _SampleStream:
    """Articles of the packaged Wikipedia dump, mark-up removed, sentences kept."""

    def __init__(self, path: Path, state: dict | None, held_out: bool) -> None:
        self._path, self._held_out = path, held_out
        self._pages = state["pages"] if state is not None else 0

    def __iter__(self) -> Iterator[str]:
        from gensim.corpora import wikicorpus

        with bz2.open(self._path, "rt", encoding="utf-8") as file:
            for number, (_, markup, _) in enumerate(wikicorpus.extract_pages(file, filter_namespaces=("0",))):
                if number < self._pages:
                    continue
                self._pages = number + 1
                if markup.lstrip().lower().startswith("#redirect"):
                    continue
                prose = _BACK_MATTER.split(wikicorpus.filter_wiki(markup), maxsplit=1)[0]
                text = _QUOTE_MARKS.sub("", _NOT_PROSE.sub("", prose)).strip()
                if text and self._held_out == _is_held_out(text, _SAMPLE_HELD_OUT_OF):
                    yield text

    def state(self) -> dict:
        return {"pages": self._pages}
