"""The appendix: tables that a spreadsheet opens, whose names the report knows, and no formula of somebody else's."""

import csv
import io
import json

import pytest

from reports.appendix import ABOUT, files, tables
from reports.disclosure.document import Disclosure
from tests.helpers.reports.reports_example import block, example


def rows(disclosure: Disclosure, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(files(disclosure)[f"appendix/{name}.csv"])))


def test_a_list_of_records_is_a_table_with_the_names_of_the_disclosure() -> None:
    first, *_ = rows(example(), "utility_arms")
    assert first == {"arm": "start", "metric": "top1_recall", "numerator": str(52_252 * 0.06)} | {
        "denominator": "52252.0",
        "value": "0.06",
        "low": str(0.06 - 0.01),
        "high": str(0.06 + 0.01),
    }
    named = {(row["kind"], row["name"]): row["in_words"] for row in rows(example(), "names")}
    assert named["metric", first["metric"]] == "top-1 recall"
    assert named["arm", first["arm"]] == "public model with the new words"


def test_values_outside_lists_stand_by_their_path() -> None:
    values = {row["path"]: row["value"] for row in rows(example(), "values")}
    assert values["accounting.total.epsilon"] == "7.0211"
    assert values["releases.training.participation.participation_histogram.3"] == "460"
    assert values["launch.features.0"] == "NWP"


def test_records_within_records_have_what_their_record_says() -> None:
    first, second = rows(example(), "release_audits_verdicts")
    assert (first["stage"], first["name"], second["name"]) == ("count", "key", "sum")


def test_the_json_has_the_same_tables() -> None:
    made = files(example())
    listed = json.loads(made["appendix/tables.json"])
    assert [each["file"] for each in listed] == [f"{table.name}.csv" for table in tables(example())]
    assert all(each["about"] for each in listed)
    for each in listed:
        assert len(rows(example(), each["file"].removesuffix(".csv"))) == len(each["rows"])


def test_every_list_of_records_of_a_disclosure_has_its_place() -> None:
    """``tables`` leaves out what ``ABOUT`` does not name, so the names are compared with the schema itself."""
    found = set()

    def walk(shape: dict, path: tuple[str, ...]) -> None:
        for option in shape.get("anyOf", [shape]):
            inner = definitions[option["$ref"].rpartition("/")[2]] if "$ref" in option else option
            for name, each in inner.get("properties", {}).items():
                walk(each, (*path, name))
            items = inner.get("items", {})
            if "$ref" in items:
                found.add("_".join(path))
                walk(items, path)

    schema = Disclosure.model_json_schema()
    definitions = schema["$defs"]
    walk(schema, ())
    curves = {"curves_pretraining", "curves_adaptation", "curves_fine_tuning"}
    written = {"values", "names", "glossary", "accounting_curve", "releases_local_words_layers", *curves}
    assert ABOUT.keys() == (found - {"releases"}) | written


@pytest.mark.parametrize("evil", ["=cmd()", "+1", "-1+2", "@sum", "\tx"])
def test_no_text_becomes_a_formula(evil: str) -> None:
    made = example(launch=block("launch", contact=evil))
    values = {row["path"]: row["value"] for row in rows(made, "values")}
    assert values["launch.contact"] == f"'{evil}"
