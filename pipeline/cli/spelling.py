"""Options as they were spelt before: still understood, left out of help."""

from collections.abc import Iterable, Mapping
from typing import Any

from typer.core import TyperCommand

ARGUMENT = ""  # in the place of an option: its value is an argument now


def formerly(**renamed: str) -> type[TyperCommand]:
    """A kind of command that takes old options, each by its name without dashes, for what they are called now."""
    now = {f"--{old}": new for old, new in renamed.items()}

    class Respelt(TyperCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            return super().parse_args(ctx, respelt(args, now))

    return Respelt


def respelt(arguments: Iterable[str], now: Mapping[str, str]) -> list[str]:
    """A command line in today's spelling: options first, what became an argument last."""
    rest, options, others, values = iter(arguments), list[str](), list[str](), list[str]()
    for word in rest:
        if word == "--":  # From here on nothing is an option.
            others += [word, *rest]
            break
        name, separator, value = word.partition("=")
        if name not in now or (not separator and (value := next(rest, "")) == ""):
            others.append(word)
        elif now[name] == ARGUMENT:
            values.append(value)
        else:
            options += [now[name], value]
    return [*options, *others, *values]
