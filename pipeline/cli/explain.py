"""``tacit explain``: explain an exit code, a gate, a term or a field of the launch file, from its definition."""

from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.support import AsJson, answer, command

if TYPE_CHECKING:
    from pipeline.publication.explanation import (
        CodeMeaning,
        FieldMeanings,
        FieldWords,
        GateMeaning,
        Names,
        TermMeaning,
    )


def _completions(incomplete: str) -> list[str]:
    from pipeline.publication import explanation

    return explanation.completions(incomplete)


@command
def explain(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE|GATE|TERM|FIELD",
            help="an exit code, a gate, a term such as rho, or a field of the launch file; without one, all names",
            autocompletion=_completions,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Explain an exit code, a gate, a term or a field of the launch file: its meaning, its allowed values and the fix.

    A field may be given by the last part of its path; all blocks with such a field are shown.

    Example: tacit explain utility
    """
    from pipeline.publication import explanation

    if name is None:
        every = explanation.names()
        answer(every, as_json, text=_names_text(every))
        return
    found = explanation.meaning(name)
    answer(found, as_json, text=_text(found))


def _names_text(every: "Names") -> str:
    lines = ["exit codes:", f"  {', '.join(map(str, every.codes))}", "gates:", *(f"  {each}" for each in every.gates)]
    lines += ["terms:", *(f"  {each}" for each in every.terms)]
    return "\n".join([*lines, "fields:", *(f"  {path}" for path in every.fields)])


def _text(meaning: "CodeMeaning | GateMeaning | TermMeaning | FieldMeanings") -> str:
    from pipeline.publication.explanation import CodeMeaning, GateMeaning, TermMeaning

    if isinstance(meaning, CodeMeaning):
        return f"exit code {meaning.code}: {meaning.means}\n  then: {meaning.then}\n  more: {meaning.page}"
    texts = [_field_text(row) for row in meaning.fields]
    if isinstance(meaning, TermMeaning):
        texts = [f"{meaning.term}: {meaning.means}", *texts]
    if isinstance(meaning, GateMeaning):
        where = f"{meaning.field}; tacit explain {meaning.field}" if meaning.field else "tacit sets it"
        gate = f"gate {meaning.gate}: {meaning.asks}\n  threshold: {where}\n  if it fails: {meaning.fix}"
        more = {"absent": meaning.absent, "by chance": meaning.chance}
        texts = [gate, *(f"  {name}: {text}" for name, text in more.items() if text), *texts]
    return "\n\n".join(texts)


def _field_text(row: "FieldWords") -> str:
    lines = [f"{row.path}{f' ({row.where})' if row.where else ''}: {row.means}", f"  takes:   {row.takes}"]
    lines.append(f"  default: {'none, it must be written' if row.default is None else row.default}")
    lines += [f"  example: {row.example}"] if row.example else []
    lines += [f"  gate:    {name}; tacit explain {name}" for name in row.gates]
    return "\n".join(lines)
