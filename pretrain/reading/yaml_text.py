"""YAML that somebody else wrote: plain values under plain names, no more of them than a launch can have.

A reviewer must see what counts. So a name stands once and is text, tags are refused, and anchors may repeat a block
but not multiply it: a few lines of aliases of aliases would be billions of values.
"""

from collections.abc import Iterator
from typing import Any

import yaml

from pretrain.reading.paths import shown

MOST_BYTES = 65_536
MOST_DEPTH = 16
MOST_VALUES = 2_000
MOST_CHARACTERS = 4_096
_MERGE, _TEXT = "tag:yaml.org,2002:merge", "tag:yaml.org,2002:str"


def load(text: str, name: str) -> object:
    """The value of one YAML document.

    Args:
      name: of the file, for errors.

    Raises:
      ValueError: not YAML, or beyond a limit; one line with the place, what is there and the fix.
    """
    try:
        # As a list, so that what would be costly to build is refused while nothing is built yet.
        node = _Checked(list(_checked_events(text, name))).get_single_node()
        loader = yaml.SafeLoader("")
        _check_values(node, name, loader)
        return None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ValueError(f"{name}: not valid YAML: {_problem(error)}; correct that line") from error


def _problem(error: yaml.YAMLError) -> str:
    """Problem in the text, with its line."""
    mark = getattr(error, "problem_mark", None)
    what = " ".join(str(getattr(error, "problem", None) or error).split())
    return shown(what) + (f" in line {mark.line + 1}" if mark else "")


class _Checked(yaml.SafeLoader):
    """Builds values from events that were read before."""

    def __init__(self, events: list[yaml.Event]) -> None:
        super().__init__("")
        self._events = events[::-1]

    def check_event(self, *choices: Any) -> bool:
        return not choices or isinstance(self._events[-1], choices)

    def peek_event(self) -> yaml.Event:
        return self._events[-1]

    def get_event(self) -> yaml.Event:
        return self._events.pop()


def _checked_events(text: str, name: str) -> Iterator[yaml.Event]:
    """Every event, none of them of what would be costly to build."""
    depth = 0
    for count, event in enumerate(_events(text, name)):
        line = event.start_mark.line + 1 if event.start_mark else 0
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_DEPTH:
            raise ValueError(
                f"{name}: line {line} is nested {depth} deep, and at most {MOST_DEPTH} are read; flatten it"
            )
        if count > 3 * MOST_VALUES:
            raise ValueError(f"{name}: more than {MOST_VALUES:,} values by line {line}; a launch file has a hundred")
        tag = getattr(event, "tag", None)
        if tag not in (None, "!"):
            raise ValueError(f"{name}: line {line} has the tag {shown(tag)}; remove it, values here need none")
        value = getattr(event, "value", "")
        if len(value) > MOST_CHARACTERS:
            raise ValueError(
                f"{name}: line {line} holds a text of {len(value):,} characters, and at most {MOST_CHARACTERS:,} are "
                "read; shorten it"
            )
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError(
                f"{name}: line {line} holds half of a surrogate pair, {shown(value)}, which is no character; write "
                "the character itself"
            )
        yield event


def _events(text: str, name: str) -> Iterator[yaml.Event]:
    """Events of the parser; an escape beyond Unicode is an error of the text."""
    parser = yaml.parse(text, Loader=yaml.SafeLoader)
    while True:
        try:
            event = next(parser, None)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{name}: not valid YAML: an escape names no character ({error}); correct it") from error
        if event is None:
            return
        yield event


def _check_values(root: yaml.Node | None, name: str, loader: yaml.SafeLoader) -> None:
    """Refuse names that are no text or stand twice, values that YAML cannot make, and aliases that multiply."""
    sizes: dict[int, int | None] = {}

    def size(node: yaml.Node) -> int:
        """Values below a node, those of an alias each time; depth is bounded by now."""
        line = node.start_mark.line + 1
        if id(node) in sizes:
            counted = sizes[id(node)]
            if counted is None:
                raise ValueError(f"{name}: line {line} holds itself by an alias; write the values out")
            return counted
        sizes[id(node)] = None
        total = 1
        if isinstance(node, yaml.ScalarNode):
            _check_scalar(node, name, loader)
        elif isinstance(node, yaml.MappingNode):
            _check_names(node, name)
            total += sum(size(value) for _, value in node.value)
        else:
            total += sum(map(size, node.value))
        if total > MOST_VALUES:
            raise ValueError(
                f"{name}: line {line} stands for {total:,} values once its aliases are written out, and at most "
                f"{MOST_VALUES:,} are read; write out what is meant"
            )
        sizes[id(node)] = total
        return total

    if root is not None:
        size(root)


def _check_names(node: yaml.MappingNode, name: str) -> None:
    seen: set[str] = set()
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if key.tag == _MERGE:
            continue
        if not isinstance(key, yaml.ScalarNode) or key.tag != _TEXT:
            what = shown(key.value) if isinstance(key, yaml.ScalarNode) else f"a {key.id}"
            raise ValueError(f"{name}: the name in line {line} is {what}, not text; put a word there, in quotes")
        if key.value in seen:
            raise ValueError(f"{shown(key.value)}: stands twice, the second time in line {line}; keep one")
        seen.add(key.value)


def _check_scalar(node: yaml.ScalarNode, name: str, loader: yaml.SafeLoader) -> None:
    try:
        loader.construct_object(node)
    except (ValueError, OverflowError) as error:
        kind = node.tag.rpartition(":")[2]
        raise ValueError(
            f"{name}: line {node.start_mark.line + 1}: YAML reads {shown(node.value)} as a value of kind {kind}, and "
            f"it is none ({error}); put it in quotes"
        ) from error
