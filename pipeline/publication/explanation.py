"""Explanations of exit codes, gates, terms and launch file fields, each taken from its definition."""

import difflib
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from pipeline.ground import settings
from pipeline.ground.errors import ENDINGS
from pipeline.launch.config import LaunchConfig
from pipeline.publication.gates.words import GATES
from pretrain.reading.paths import shown
from reports.glossary import TERMS, names_of

_BOUNDS = {
    "gt": "above {}",
    "ge": "at least {}",
    "lt": "below {}",
    "le": "at most {}",
    "pattern": "matching {}",
    "min_length": "at least {} long",
    "max_length": "at most {} long",
}
_TYPES: dict[object, str] = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
_MOST_CLOSE = 5


@dataclass(frozen=True)
class FieldWords:
    """A field of the launch file.

    Attributes:
      path: dotted path, as in ``mechanism.noise_multiplier``.
      where: the kind of block that has it; empty if there is only one kind.
      takes: allowed values.
      default: value if it is left out; None if it is required.
      example: a line of a shipped launch file, and the file's name.
      gates: gates whose threshold it sets.
    """

    path: str
    where: str
    means: str
    takes: str
    default: str | None
    example: str
    gates: tuple[str, ...]


@dataclass(frozen=True)
class CodeMeaning:
    """An exit code, and its page in the documentation."""

    code: int
    means: str
    then: str
    page: str


@dataclass(frozen=True)
class FieldMeanings:
    """Fields with the same name."""

    fields: tuple[FieldWords, ...]


@dataclass(frozen=True)
class TermMeaning:
    """A term of the report's glossary, and the fields of the same name."""

    term: str
    means: str
    fields: tuple[FieldWords, ...]


@dataclass(frozen=True)
class GateMeaning:
    """A gate's texts, and the fields of the same name."""

    gate: str
    asks: str
    field: str
    fix: str
    absent: str
    chance: str
    fields: tuple[FieldWords, ...]


@dataclass(frozen=True)
class Names:
    """Every name that can be explained."""

    codes: tuple[int, ...]
    gates: tuple[str, ...]
    terms: tuple[str, ...]
    fields: tuple[str, ...]


def names() -> Names:
    """Return every exit code, gate, term of the glossary and path of a field."""
    fields = dict.fromkeys(path for path, _, _ in fields_of(LaunchConfig))
    return Names(tuple(ENDINGS), tuple(GATES), tuple(TERMS), tuple(fields))


def meaning(name: str) -> CodeMeaning | GateMeaning | TermMeaning | FieldMeanings:
    """Explain a name. A gate that exists for each feature is also found with a suffix, as ``typing_OTF``.

    Raises:
      ValueError: no exit code, gate, term or field has the name.
    """
    if re.fullmatch("[0-9]{1,3}", name) and (code := int(name)) in ENDINGS:
        return CodeMeaning(code, **asdict(ENDINGS[code]), page="docs/exit_codes.md")
    base = name if name in GATES else name.rpartition("_")[0]
    rows = tuple(field_words(name))
    if base in GATES:
        return GateMeaning(name, **asdict(GATES[base]), fields=rows)
    if term := _terms().get(name.casefold()):
        return TermMeaning(term, TERMS[term], rows)
    if rows:
        return FieldMeanings(rows)
    by_folded = {each.casefold(): each for each in completions()}
    close = [by_folded[each] for each in difflib.get_close_matches(name.casefold(), by_folded, _MOST_CLOSE, 0.5)]
    near = f"did you mean {', '.join(close)}?" if close else "'tacit explain' lists all names"
    raise ValueError(f"name: {shown(repr(name))} is no exit code, gate, term or field; {near}")


def _terms() -> dict[str, str]:
    return {name.casefold(): term for term in TERMS for name in names_of(term)}


def completions(incomplete: str = "") -> list[str]:
    """Complete a name from its beginning; the last part of a field's path is a name too."""
    known = names()
    last = [path.rpartition(".")[2] for path in known.fields]
    words = [name for term in known.terms for name in names_of(term)]
    every = dict.fromkeys([*map(str, known.codes), *known.gates, *words, *known.fields, *last])
    return [each for each in every if each.startswith(incomplete)]


def field_words(name: str | None = None) -> list[FieldWords]:
    """Describe the fields with a name, or all; kinds of a block with the same description share one entry."""
    fields = [each for each in fields_of(LaunchConfig) if name is None or _is_named(each[0], name)]
    home = settings.load().home if fields else Path()
    rows = [_field_words(path, where, field, home) for path, where, field in fields]
    once = {(row.path, row.means, row.takes, row.default): row for row in reversed(rows)}
    return [_all_kinds(row, rows) for row in reversed(once.values())]


def fields_of(block: Any, path: str = "", where: str = "") -> Iterator[tuple[str, str, FieldInfo]]:
    """Yield path, kind of block and definition of every field, nested blocks included."""
    for name, field in block.model_fields.items():
        inside = f"{path}.{name}" if path else name
        yield inside, where, field
        blocks = _blocks(field.annotation)
        for each in blocks:
            yield from fields_of(each, inside, _kind(each) if len(blocks) > 1 else where)


def _blocks(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [] if isinstance(annotation, type) else [each for part in get_args(annotation) for each in _blocks(part)]


def _kind(block: type[BaseModel]) -> str:
    """Kind of a block, as the file states it: ``kind: tree``; empty for a block of one kind."""
    for name, field in block.model_fields.items():
        if name in ("kind", "source"):
            return f"{name}: {get_args(field.annotation)[0]}"
    return ""


def _is_named(path: str, name: str) -> bool:
    return path == name or path.endswith(f".{name}")


def _all_kinds(row: FieldWords, rows: list[FieldWords]) -> FieldWords:
    same = [each for each in rows if (each.path, each.means, each.takes) == (row.path, row.means, row.takes)]
    example = next((each.example for each in same if each.example), "")
    where = ", ".join(dict.fromkeys(each.where for each in same if each.where))
    return FieldWords(**{**vars(row), "where": where, "example": example})


def _field_words(path: str, where: str, field: FieldInfo, home: Path) -> FieldWords:
    blocks = _blocks(field.annotation)
    means = field.description or " ".join((each.__doc__ or "").split("\n\n")[0].strip() for each in blocks[:1])
    default = None if field.is_required() else _written(field.get_default(call_default_factory=True))
    gates = tuple(name for name, words in GATES.items() if words.field == path)
    return FieldWords(path, where, means, _takes(field, blocks), default, _example(path, where, home), gates)


def _takes(field: FieldInfo, blocks: list[type[BaseModel]]) -> str:
    if blocks:
        kinds = [kind for each in blocks if len(blocks) > 1 and (kind := _kind(each))]
        return f"a block, one of {'; '.join(kinds)}" if kinds else f"a block of {', '.join(blocks[0].model_fields)}"
    return ", ".join([_type(field.annotation), *_limits(field.metadata), *_inner_limits(field.annotation)])


def _type(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(parts[0])
    if origin is Literal:
        return "one of " + ", ".join(map(str, parts))
    if origin in (Union, UnionType):
        return " or ".join(_type(part) for part in parts if part is not NoneType)
    if origin is tuple:
        return f"a list, each {_type(parts[0])}"
    return _TYPES.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _inner_limits(annotation: Any) -> list[str]:
    """Limits inside an annotation, such as those of a list's values."""
    limits = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    nested = [limit for part in get_args(annotation) if not isinstance(part, str) for limit in _inner_limits(part)]
    return [*_limits(limits), *nested]


def _limits(metadata: Any) -> list[str]:
    limits = []
    for item in metadata:
        if isinstance(item, FieldInfo):
            limits += _limits(item.metadata)
            continue
        stated = {name: value for name in _BOUNDS if (value := getattr(item, name, None)) is not None}
        limits += [_BOUNDS[name].format(_limit(value)) for name, value in stated.items()]
    return limits


def _limit(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:g}"


def _written(value: Any) -> str:
    if value is None:
        return "left out"
    if isinstance(value, BaseModel):
        return "a block of defaults"
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else f"{value:,}" if isinstance(value, int) else str(value)


@cache
def _shipped(home: Path) -> tuple[tuple[str, str], ...]:
    """Names and texts of the shipped launch files, the demo first."""
    files = sorted((home / "dags" / "launches").glob("*.yaml"), key=lambda path: (path.stem != "demo-en-US", path.stem))
    return tuple((path.name, path.read_text(encoding="utf-8")) for path in files)


@cache
def _values(text: str) -> Any:
    return yaml.load(text, Loader=yaml.CSafeLoader)  # trusted files, by the compiled reader


def _example(path: str, where: str, home: Path) -> str:
    *parents, last = path.split(".")
    name, _, kind = where.partition(": ")
    for file, text in _shipped(home):
        block = _values(text) if f"{last}:" in text else None
        for parent in parents:
            block = block.get(parent) if isinstance(block, dict) else None
        if not isinstance(block, dict) or block.get(name, kind) != kind:
            continue
        if last in block and not isinstance(block[last], dict):
            return f"{last}: {_line(block[last])}, in dags/launches/{file}"
    return ""


def _line(value: Any) -> str:
    if value is None:
        return "null"
    return _written(tuple(value) if isinstance(value, list) else value)
