"""The JSON Schema beside a disclosure says what one looks like, and a change of shape is a change of version."""

import json
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from reports.disclosure.document import VERSION
from reports.disclosure.schema import as_json, schema
from tests.helpers.launches.checkout import ROOT
from tests.helpers.reports.reports_example import example

_FILE = ROOT / "reports" / "disclosure" / "schemas" / f"{VERSION}.json"


def shape(value: Any) -> Any:
    """A schema without its words."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items() if name not in ("title", "description")}
    return [shape(each) for each in value] if isinstance(value, list) else value


def test_a_change_of_shape_raises_the_version() -> None:
    committed = json.loads(_FILE.read_text(encoding="utf-8"))
    assert shape(schema()["$defs"]) == shape(committed["$defs"]), "another shape: raise VERSION and write its schema"
    assert _FILE.read_text(encoding="utf-8") == as_json(), "other words: write the schema of this version again"


@pytest.mark.slow
def test_a_disclosure_of_today_fits() -> None:
    validator = jsonschema.Draft202012Validator(schema())
    validator.check_schema(schema())
    today = json.loads(example().model_dump_json())
    assert list(validator.iter_errors(today)) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.update(more=1),
        lambda content: content.pop("accounting"),
        lambda content: content["accounting"].update(rho="small"),
        lambda content: content.update(schema_version="2"),
        lambda content: content["decision"].update(decision="maybe"),
    ],
)
def test_what_is_no_disclosure_does_not_fit(change: Callable[[dict], object]) -> None:
    content = json.loads(example().model_dump_json())
    change(content)
    assert list(jsonschema.Draft202012Validator(schema()).iter_errors(content))
