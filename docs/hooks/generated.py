"""Pages of the site that are made of what the code says: commands, fields of the launch file, gates.

They say what ``tacit --help`` and ``tacit explain`` say, from the same definitions.
"""

import re
from collections.abc import Iterator
from typing import Any

import typer.main
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from pipeline.cli.app import app
from pipeline.publication import explanation
from pipeline.publication.gates.words import GATES


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    for name, lines in (("fields", _fields()), ("gates", _gates()), ("commands", _commands())):
        files.append(File.generated(config, f"reference/{name}.md", content="\n".join(lines) + "\n"))
    return files


def _fields() -> Iterator[str]:
    yield "# Fields of the launch file\n"
    yield "`tacit explain FIELD` prints the same. A field without a default must be written.\n"
    block = ""
    for row in explanation.field_words():
        first, *inside = row.path.split(".")
        if first != block:
            block = first
            yield f"## {first}\n"
        if inside:
            yield f"### {row.path}\n"
        yield f"{_plain(_sentence(row.means))}{f' Of `{row.where}`.' if row.where else ''}\n"
        yield f"- takes: {_plain(row.takes)}"
        yield f"- default: {'none, it must be written' if row.default is None else _plain(row.default)}"
        if row.example:
            yield f"- example: `{row.example.rpartition(', in ')[0]}`, in {row.example.rpartition(', in ')[2]}"
        for gate in row.gates:
            yield f"- gate: [{gate}](gates.md#{gate})"
        yield ""


def _gates() -> Iterator[str]:
    yield "# Gates\n"
    yield "What may hold a launch. `tacit explain GATE` prints the same; a gate without evidence fails. Of a launch for"
    yield "several features some are asked for each, as `typing_OTF`. [When a launch is held](../how_to/held.md)\n"
    for name, words in GATES.items():
        yield f"## {name}\n"
        yield f"{words.asks}\n"
        where = f"[{words.field}](fields.md#{_anchor(words.field)})" if words.field else "tacit sets it"
        yield f"- threshold: {where}"
        yield f"- if it fails: {words.fix}"
        yield f"- absent: {words.absent}" if words.absent else "- in every launch"
        if words.chance:
            yield f"- by chance: {words.chance}"
        yield ""


def _commands() -> Iterator[str]:
    yield "# Commands\n"
    yield "Commands have `--help` with an example. LAUNCH is a file, a name (its newest), an id or how one begins.\n"
    yield from _command(typer.main.get_command(app), "tacit")


def _command(command: Any, name: str) -> Iterator[str]:
    children = getattr(command, "commands", None)
    if children is not None:
        for child in sorted(children):
            if not children[child].hidden:
                yield from _command(children[child], f"{name} {child}")
        return
    yield f"## {name}\n"
    about, _, example = (command.help or "").partition("Example: ")
    yield f"{about.strip()}\n"
    if example:
        yield f"```sh\n{example.strip()}\n```\n"
    rows = [_option(each) for each in command.params if not getattr(each, "hidden", False) and each.name != "help"]
    if rows:
        yield from ("| option | means |", "|---|---|", *rows, "")


def _option(option: Any) -> str:
    argument = option.param_type_name == "argument"
    names = [getattr(option, "metavar", None) or str(option.name).upper()] if argument else option.opts
    help_text = " ".join((getattr(option, "help", None) or "").split()).replace("|", "\\|")
    usual = f" (default: {option.default})" if isinstance(option.default, str | int | float) else ""
    return f"| {', '.join(f'`{each}`' for each in names)} | {help_text}{usual if option.default is not False else ''} |"


def _anchor(path: str) -> str:
    return path.replace(".", "")


def _sentence(text: str) -> str:
    said = text[:1].upper() + text[1:]
    return said if not said or said.endswith(".") else f"{said}."


def _plain(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", text)
