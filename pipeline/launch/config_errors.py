"""Error messages for a launch file, in the words of its author: field, value, fix."""

import difflib
from collections.abc import Iterable
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

_NUMBER_NEEDED = {"int": "a whole number", "float": "a number", "bool": "true or false"}
_BOUNDS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}


def lines(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """One line per problem: the field's path in the YAML, the value given, and the fix."""
    return [_line(item, model) for item in error.errors()]


def _line(item: Any, model: type[BaseModel]) -> str:
    path, owner, field = _locate(model, item["loc"])
    value, kind, context = item["input"], item["type"], item.get("ctx", {})
    about = f" ({field.description})" if field and field.description else ""
    if kind == "value_error":
        # From tacit's own validators: the message names the fix and, for a check of the whole launch, the field too.
        message = item["msg"].removeprefix("Value error, ")
        return f"{path}: {message}" if path else message
    if kind == "extra_forbidden":
        return f"{path}: no such field, got {_short(value)}; {_nearest(str(item['loc'][-1]), owner)}"
    if kind == "missing":
        return f"{path}: missing; add it{about}"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        name = context["discriminator"].strip("'")
        choices = ", ".join(repr(tag) for tag in _members(field.annotation if field else None, name))
        got = "missing" if kind == "union_tag_not_found" else f"got {context['tag']!r}"
        return f"{path}.{name}: {got}; choose one of {choices}"
    if kind == "literal_error":
        return f"{path}: got {_short(value)}; choose {context['expected']}{about}"
    if kind in _BOUNDS:
        name, word = _BOUNDS[kind]
        return f"{path}: got {_short(value)}; give a number {word} {_number(context[name])}{about}"
    if kind == "finite_number":
        return f"{path}: got {_short(value)}; give a finite number{about}"
    family = kind.split("_")[0]
    if family in _NUMBER_NEEDED:
        return f"{path}: got {_short(value)}; give {_NUMBER_NEEDED[family]}{about}"
    if kind == "string_type":
        return f"{path}: got {_short(value)}; give text, in quotes if YAML reads it as something else{about}"
    if kind == "string_pattern_mismatch":
        return f"{path}: got {_short(value)}; it must match {context['pattern']}{about}"
    if kind in ("tuple_type", "list_type"):
        example = value if isinstance(value, str | int) else "..."
        return f"{path}: got {_short(value)}; give a list, as in [{example}]{about}"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"{path}: got {_short(value)}; give a mapping of fields{about}"
    if kind == "too_short":
        return f"{path}: got {context['actual_length']} items; give at least {context['min_length']}{about}"
    if kind == "too_long":
        return f"{path}: got more items than {context['max_length']}; give at most that many{about}"
    if kind == "string_too_long":
        return f"{path}: got {len(value):,} characters; give at most {context['max_length']:,}{about}"
    if kind == "string_too_short":
        return f"{path}: got {_short(value)}; write at least {context['min_length']} character{about}"
    return f"{path}: got {_short(value)}; {item['msg']}{about}"


def _locate(model: type[BaseModel], loc: Iterable[int | str]) -> tuple[str, type[BaseModel] | None, FieldInfo | None]:
    """Path as written in the YAML, the model that owns its last part, and that part's field.

    Pydantic puts the tag of a discriminated union into the path; a YAML file has no such level.
    """
    path, field = "", None
    owner: type[BaseModel] | None = model
    annotation: Any = model
    for part in loc:
        members = _union(annotation)
        if members and isinstance(part, str):
            annotation = next((member for member in members if part in _tags(member)), None)
            if annotation is not None:
                owner = annotation
                continue
        if isinstance(part, int):
            path += f"[{part}]"
            annotation = next(iter(get_args(annotation)), None)
            continue
        path += f".{part}" if path else str(part)
        is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
        owner = annotation if is_model else None
        field = annotation.model_fields.get(part) if is_model else None
        annotation = field.annotation if field else None
    return path, owner, field


def _union(annotation: Any) -> tuple[type[BaseModel], ...]:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) not in (Union, UnionType):
        return ()
    return tuple(
        member for member in get_args(annotation) if isinstance(member, type) and issubclass(member, BaseModel)
    )


def _tags(member: type[BaseModel]) -> set[str]:
    return {str(tag) for field in member.model_fields.values() for tag in get_args(field.annotation)}


def _members(annotation: Any, discriminator: str) -> list[str]:
    return [get_args(member.model_fields[discriminator].annotation)[0] for member in _union(annotation)]


def _nearest(name: str, owner: type[BaseModel] | None) -> str:
    fields = list(owner.model_fields) if owner else []
    close = difflib.get_close_matches(name, fields, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"remove it; the fields here are {', '.join(fields)}"


def _number(bound: float) -> str:
    """A bound as people write it."""
    return f"{int(bound):,}" if float(bound).is_integer() and abs(bound) < 1e15 else f"{bound:g}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
