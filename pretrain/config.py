"""Configuration of public text, vocabulary, model and pretraining."""

import os
import re
from collections.abc import Hashable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    model_validator,
)

Fraction = Annotated[float, Field(gt=0.0, lt=1.0)]
# Every size has a limit far above practical values, so that a typing error is rejected before anything runs.
Steps = Annotated[int, Field(ge=1, le=100_000_000)]
Batch = Annotated[int, Field(ge=1, le=100_000)]
RowWords = Annotated[int, Field(ge=1, le=1_000)]
Rate = Annotated[float, Field(ge=1e-12, le=1_000.0)]
LEAST_AMOUNT, MOST_AMOUNT = 1e-9, 1e9
Amount = Annotated[float, Field(ge=LEAST_AMOUNT, le=MOST_AMOUNT)]
CorpusWords = Annotated[int, Field(ge=1, le=1_000_000_000_000)]
LOCALE = r"^[a-z]{2,3}(-[A-Z][a-z]{3})?(-([A-Z]{2}|[0-9]{3}))?$"
Line = Annotated[str, Field(min_length=1, max_length=1_000)]
# Of an object in a store; no path of this machine is one.
ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
FOLDER = "folder"  # of the launch file, in the context of a validation


class PlacedPath(str):
    """A path or glob of a launch file, as this machine opens it: a relative one begins at the folder of its file.

    The working directory never counts. It is saved, and is part of an id, as ``written``: the same in every clone.
    """

    written: str
    folder: Path

    def __repr__(self) -> str:
        return repr(self.written) + ("" if self.written[0] in "/~" else f" in {self.folder}")


def placed(path: str, folder: Path | None) -> str:
    """A path of a launch file in this folder; an address stays as it is, and so does a path of no file (None)."""
    if folder is None or ADDRESS.fullmatch(path):
        return path
    place = PlacedPath(os.path.join(folder, os.path.expanduser(path)))  # noqa: PTH111, PTH118 - of a text
    place.written, place.folder = path, folder
    return place


def written(path: str) -> str:
    """A path as its launch file has it."""
    return path.written if isinstance(path, PlacedPath) else path


def _placed(path: str, info: ValidationInfo) -> str:
    return placed(path, (info.context or {}).get(FOLDER))


LaunchPath = Annotated[Line, AfterValidator(_placed), PlainSerializer(written, return_type=str)]
# An account's name has no look-alike letters and no invisible spaces.
ACCOUNT_NAME = r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}"
AccountName = Annotated[str, Field(pattern=f"^{ACCOUNT_NAME}$")]


class Config(BaseModel):
    """Base of every configuration block: immutable; unknown fields and infinite numbers are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _kinds_as_written(cls, block: object) -> object:
        if not isinstance(block, dict):
            return block
        kinds = _strict(cls)
        return {name: _as_written(value, kinds[name]) if name in kinds else value for name, value in block.items()}


# Splits whose devices bear the loss of a release; no release is about validation devices.
Bearing = Literal["train", "test"]
BEARING: tuple[Bearing, ...] = get_args(Bearing)


class SpendingBlock(Config):
    """A block with which a launch asks for Gaussian releases under a budget, known by their noise alone.

    Attributes:
      split: split whose devices bear the loss.
      noise_multiplier: deviation of the noise, where one device moves the released sums by at most 1; None: the block
        asks for no release.
    """

    split: ClassVar[Bearing] = "train"
    noise_multiplier: Amount | None

    @property
    def rho(self) -> float:
        """Device-level rho of all that is released (Bun & Steinke 2016, lemma 2.4)."""
        return 0.0 if self.noise_multiplier is None else 1 / (2 * self.noise_multiplier**2)


@cache
def _strict(block: type[Config]) -> dict[str, Literal["number", "bool"]]:
    """Fields that take either numbers, or true and false, and no other plain value."""
    kinds: dict[str, Literal["number", "bool"]] = {}
    for name, field in block.model_fields.items():
        annotation: Any = field.annotation
        if _takes(annotation, str):
            continue
        if _takes(annotation, bool):
            kinds[name] = "bool"
        elif _takes(annotation, int, float):
            kinds[name] = "number"
    return kinds


def _as_written(value: Any, kind: Literal["number", "bool"]) -> Any:
    """A value, or where pydantic would convert it to the field's kind, text that it refuses.

    Else ``true`` would be the number 1, ``"6"`` the number 6, and ``"yes"`` true.
    """
    if isinstance(value, list | tuple):
        return [_as_written(each, kind) for each in value]
    if isinstance(value, bool):
        return value if kind == "bool" else str(value).lower()
    wrong = (str,) if kind == "number" else (str, int, float)
    return f'"{value}"' if isinstance(value, wrong) and _converts(value, kind) else value


def _converts(value: Any, kind: Literal["number", "bool"]) -> bool:
    try:
        _KINDS[kind].validate_python(value)
    except ValidationError:
        return False
    return True


_KINDS: dict[Literal["number", "bool"], TypeAdapter[Any]] = {"number": TypeAdapter(float), "bool": TypeAdapter(bool)}


@cache
def _takes(annotation: Hashable, *kinds: type) -> bool:
    """Return whether one of the kinds occurs anywhere in an annotation."""
    return annotation in kinds or any(_takes(part, *kinds) for part in get_args(annotation))


# Words of a corpus in one shard on disk.
TOKENS_PER_SHARD = 5_000_000
C4_DATASET = "allenai/c4"
# Commit of the dataset that `tacit init` writes into a launch file.
C4_REVISION = "1588ec454efa1a09f29cd18ddd04fe05fc8653a2"
# In adaptation, sentences with a new word are repeated until they are this share of all, but each at most so often.
NEW_WORD_SHARE, MOST_COPIES = 0.5, 20


class C4Corpus(Config):
    """C4 or mC4 from the Hugging Face hub, streamed through ``datasets``."""

    source: Literal["c4"] = Field(description="C4 or mC4, streamed from the hub")
    subset: Line = Field(description="config name on the hub: 'en', or a language of mC4 such as 'es'")
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] = Field(
        description="commit of the dataset on the hub, all 40 hex digits; a branch or tag would name other text later"
    )
    max_tokens: CorpusWords = Field(description="words to read of the train split, at most")
    max_validation_tokens: CorpusWords = Field(
        default=200_000, description="words to read of the validation split, at most"
    )


class FileCorpus(Config):
    """Local text: JSON lines, such as C4's ``*.json.gz`` shards, and Parquet with a ``text`` column, mixed at will."""

    source: Literal["files"] = Field(description="your own public text")
    train: tuple[LaunchPath, ...] = Field(min_length=1, description="paths or globs, from the launch file's folder")
    validation: tuple[LaunchPath, ...] = Field(
        default=(), description="paths or globs of text to watch training on; default: one document of train in twenty"
    )
    max_tokens: CorpusWords = Field(description="words to read of the train split, at most")
    max_validation_tokens: CorpusWords = Field(
        default=200_000, description="words to read of the validation split, at most"
    )


class SampleCorpus(Config):
    """Public texts that ship inside packages (``packaged.py``): conversation, stories, Wikipedia."""

    source: Literal["sample", "sample-with-chat"] = Field(
        description="texts that ship inside packages; with chat: also the chat that people typed, of which the demo's "
        "private text is made"
    )
    max_tokens: CorpusWords = Field(description="words to read of the train split, at most")
    max_validation_tokens: CorpusWords = Field(
        default=50_000, description="words to read of the validation split, at most"
    )


CorpusConfig = Annotated[C4Corpus | FileCorpus | SampleCorpus, Field(discriminator="source")]


class TextPart(Config):
    """One of the texts that a public corpus is made of, with its words of the train split."""

    name: str
    licence: str
    words: int
    synthetic: bool = False


class VocabularyConfig(Config):
    """Sizes count words and the four special tokens together."""

    base_size: Annotated[int, Field(ge=8, le=1_000_000)] = Field(
        description="rows taken from public text, specials included"
    )
    max_new_words: Annotated[int, Field(ge=0, le=1_000_000)] = Field(description="rows that private discovery may add")
    filters: tuple[Line, ...] = Field(
        max_length=100,
        description="filters that drop discovered words (docs/discovery.md), as in [digits, e-mail]; [] drops none",
    )
    review: bool = Field(
        default=False, description="stop until a person has marked every discovered word with 'keep' or 'drop'"
    )


class ModelConfig(Config):
    """Shape of ``KeyboardLM``. Paper size: embedding 96, hidden 670 (Xu et al. 2023)."""

    embedding_dim: PositiveInt = Field(le=4_096, description="length of a word's vector")
    hidden_dim: PositiveInt = Field(le=16_384, description="size of the recurrent layer")
    tied: bool = Field(description="one matrix for input and output embeddings")

    def weights(self, words: int) -> int:
        """Number of weights of a model over ``words`` words."""
        rows = words * (self.embedding_dim * (1 if self.tied else 2) + 1)
        return rows + self.hidden_dim * (7 * self.embedding_dim + 3)


class PretrainConfig(Config):
    """Training on public text by Adam."""

    steps: Steps = Field(description="steps of Adam on public text")
    batch_sentences: Batch = Field(description="sentences in one step")
    sequence_words: RowWords = Field(description="longest row in words; longer sentences are cut into rows")
    learning_rate: Rate = Field(description="of Adam, at its highest")
    evaluate_every_steps: Steps = Field(description="steps between points of the curve, which a crash costs at most")


class AdaptConfig(Config):
    """Further public training after the vocabulary grew, so that new rows fit in."""

    steps: Annotated[int, Field(ge=0, le=100_000_000)] = Field(description="further public steps; 0: none")
    batch_sentences: Batch = Field(description="sentences in one step")
    learning_rate: Rate = Field(description="of Adam, at its highest")
