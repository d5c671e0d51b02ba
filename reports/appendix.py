"""The report's appendix: every number of the disclosure, in tables that a spreadsheet or a program opens.

A list of records is a table of its own, named after its place in ``disclosure.json``; all single values are in
``values.csv``. Columns have the names of ``disclosure.json``, of the command line and of MLflow.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from reports.disclosure.document import Disclosure
from reports.formats import ARMS, FEATURES, METRICS, PARTS
from reports.glossary import TERMS

FOLDER = "appendix"
# What each table holds, by its file's name.
ABOUT: Mapping[str, str] = {
    "values": "every single value of the disclosure, by its path",
    "decision_gates": "gates: condition, evidence, value, threshold",
    "data_accesses": "uses of data, covered or not",
    "public_text_parts": "parts of the public text",
    "accounting_total_parts": "parts of the total ε",
    "accounting_curve": "ε at other δ",
    "accounting_group": "loss of a person with several devices",
    "accounting_group_parts": "parts of that loss",
    "accounting_forecast": "forecast gain at one ε more or less",
    "composition_spends": "ledger entries of this population",
    "composition_launches": "launches on this population, with ρ and ε of each",
    "reused": "releases that an earlier launch paid for",
    "releases_local_words_layers": "layers of local discovery",
    "words_filters": "filters and the words that they dropped",
    "audit_canaries": "canaries: rank, exposure, ceiling",
    "audit_control_rows": "positive control, by copies",
    "audit_audits": "audits of the noise, with the faults that they would notice",
    "release_audits": "audited releases",
    "release_audits_verdicts": "tests of every release",
    "utility_champion_earlier_loss_parts": "parts of the total ε of the launch that users have",
    "utility_arms": "every metric of every arm, with its sums",
    "utility_differences": "every difference of two arms",
    "utility_verdicts": "non-inferiority: margin, standard error, power",
    "utility_slices": "recall by kind of word and of user",
    "utility_unstable_signs": "differences on which simulated typists disagree",
    "utility_second_opinions": "standard errors by three methods",
    "utility_head_words": "share of the most frequent words",
    "utility_beginnings": "suggestions after everyday beginnings",
    "curves_pretraining": "loss of pretraining",
    "curves_adaptation": "loss of adaptation to the new words",
    "curves_fine_tuning": "private training, by round",
    "artifacts": "public files and their digests",
    "names": "arms, metrics, parts and features in words",
    "glossary": "terms",
}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Table(NamedTuple):
    """Rows of scalars under named columns."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    @property
    def about(self) -> str:
        """One phrase about its content."""
        return ABOUT[self.name]


def tables(disclosure: Disclosure) -> tuple[Table, ...]:
    """All tables of a disclosure that have rows, in the order of ``ABOUT``."""
    content = disclosure.model_dump(mode="json")
    content["releases"] = {release.pop("name"): release for release in content["releases"]}
    content["accounting"]["curve"] = [
        {"delta": delta, "epsilon": epsilon} for delta, epsilon in content["accounting"]["curve"]
    ]
    made = {name: _table(name, rows) for name, rows in _lists(content, ()) if rows}
    made["values"] = Table("values", ("path", "value"), tuple(_values(content, ())))
    named = {"arm": ARMS, "metric": METRICS, "part": PARTS, "feature": FEATURES}
    rows = tuple((kind, name, words) for kind, names in named.items() for name, words in names.items())
    made["names"] = Table("names", ("kind", "name", "in_words"), rows)
    made["glossary"] = Table("glossary", ("term", "meaning"), tuple(TERMS.items()))
    return tuple(made[name] for name in ABOUT if name in made)


def files(disclosure: Disclosure) -> dict[str, str]:
    """A CSV file for each table and all of them in one JSON file; content by path below the report."""
    made = tables(disclosure)
    listed = [
        {"file": f"{table.name}.csv", "about": table.about, "columns": table.columns, "rows": table.rows}
        for table in made
    ]
    written = {f"{FOLDER}/{table.name}.csv": _csv(table) for table in made}
    return written | {f"{FOLDER}/tables.json": json.dumps(listed, ensure_ascii=False, indent=1) + "\n"}


def _csv(table: Table) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows([_cell(value) for value in row] for row in table.rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """A value that no spreadsheet takes for a formula: texts of a disclosure are other people's."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _lists(content: Any, path: tuple[str, ...]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Every list of records, under the name of its place; lists within records have the scalars of their record."""
    if isinstance(content, Mapping):
        for name, inner in content.items():
            yield from _lists(inner, (*path, name))
    elif _is_records(content):
        yield "_".join(path), [_flat(row) for row in content]
        for name in {name: None for row in content for name, inner in row.items() if _is_records(inner)}:
            rows = [
                {key: value for key, value in row.items() if not _is_records(value)} | inner
                for row in content
                for inner in row[name]
            ]
            yield "_".join((*path, name)), [_flat(row) for row in rows]


def _values(content: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Every value outside the lists of records, by its path with points."""
    if isinstance(content, Mapping):
        for name, inner in content.items():
            yield from _values(inner, (*path, name))
    elif isinstance(content, list) and not _is_records(content):
        yield from ((f"{'.'.join(path)}.{number}", inner) for number, inner in enumerate(content))
    elif not isinstance(content, list):
        yield ".".join(path), content


def _is_records(content: Any) -> bool:
    return isinstance(content, list) and bool(content) and all(isinstance(row, Mapping) for row in content)


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A record whose inner blocks have become columns, with points in their names, and lists of scalars one text."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": each for inner, each in _flat(value).items()}
        elif isinstance(value, list) and not _is_records(value):
            flat[name] = "; ".join(map(str, value))
        elif not isinstance(value, list):
            flat[name] = value
    return flat


def _table(name: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = tuple(dict.fromkeys(column for row in rows for column in row))
    return Table(name, columns, tuple(tuple(row.get(column) for column in columns) for row in rows))
