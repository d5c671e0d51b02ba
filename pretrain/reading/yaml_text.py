"""Reader of external YAML: plain values under plain names, within the limits of a launch file.

A reviewer must see the effective values: a name is text and unique, and tags, anchors and aliases are refused. Words
without quotes are what YAML 1.2's core schema takes them for, so ``no`` is text and ``1:30`` no number of base 60.
"""

import re
from typing import Any

import yaml

MOST_BYTES = 65_536
MOST_DEPTH, MOST_VALUES = 16, 2_000
_MOST_SAID = 500


def load(text: str, name: str) -> object:
    """The value of one YAML document.

    Args:
      name: of the file, for errors.

    Raises:
      ValueError: not YAML, or beyond a limit; one line with the place and the fix, and no value, as the file may be one
        of people's text.
    """
    try:
        return yaml.load(text, Loader=_PlainLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = str(getattr(error, "problem", None) or "a character that is none of text")
        # The parser quotes single characters, and names of its own.
        what = " ".join(re.sub(r"'[^'<>]{2,}'", "a word", problem).split())[:_MOST_SAID]
        at = f" in line {mark.line + 1}" if mark else ""
        raise ValueError(f"{name}: not valid YAML: {what}{at}; correct that line") from error
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{name}: not valid YAML: an escape names no character; correct it") from error


# Plain words by kind and first letters: the core schema of YAML 1.2.2 (section 10.3.2), with 1_000 for 1000 and with
# octal and hexadecimal numbers as text. PyYAML knows 1.1, where ``yes`` is true and 010 is 8.
_CORE = (
    ("null", r"~|null|Null|NULL|", "~nN"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(0|[1-9][0-9_]*)", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|(0|[1-9][0-9_]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
)


class _PlainLoader(yaml.SafeLoader):
    """PyYAML's loader for plain values, which refuses costly content before it builds anything."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - as its base declares it
    depth = values = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        self.values += 1
        self.depth += 1
        if isinstance(event, yaml.AliasEvent) or event.anchor:
            raise _refused("an anchor or alias, which hides values; write them out", event)
        if event.tag not in (None, "!"):
            raise _refused("a tag; remove it, values here need none", event)
        if re.search("[\ud800-\udfff]", getattr(event, "value", "")):
            raise _refused("half of a surrogate pair; write the character itself", event)
        if self.depth > MOST_DEPTH:
            raise _refused(f"nested more than {MOST_DEPTH} deep; flatten it", event)
        if self.values > 2 * MOST_VALUES:
            raise _refused(f"more than {MOST_VALUES:,} values by here, where a launch file has a hundred", event)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names = [name for name, _ in node.value]
        for place, name in enumerate(names):
            if name.tag != "tag:yaml.org,2002:str":
                what = name.tag.rpartition(":")[2]
                raise _refused(f"a name of kind {what}, which is not text; put a word there, in quotes", name)
            if name.value in (before.value for before in names[:place]):
                raise _refused("a name that stands twice; keep one", name)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError) as error:
            kind = node.tag.rpartition(":")[2]
            raise _refused(f"a value that looks like kind {kind}, and is none; put it in quotes", node) from error


for _kind, _pattern, _first in _CORE:
    _PlainLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(rf"^(?:{_pattern})$"), [*_first, ""])
RESOLVERS = _PlainLoader.yaml_implicit_resolvers


def _refused(problem: str, at: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=at.start_mark)
