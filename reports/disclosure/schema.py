"""JSON Schema of ``disclosure.json``, for programs that read it without this code.

``schemas/`` holds one file per version. After a change of the shape, raise the version and write its file:
``python -m reports.disclosure.schema >reports/disclosure/schemas/VERSION.json``.
"""

import json
import sys
from typing import Any

from reports.disclosure.document import VERSION, Disclosure


def schema() -> dict[str, Any]:
    """The JSON Schema of the version that is written today."""
    stated = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:tacit:disclosure:{VERSION}",
        "title": f"Disclosure of a launch, version {VERSION}",
    }
    return stated | {name: value for name, value in Disclosure.model_json_schema().items() if name not in stated}


def as_json() -> str:
    """The schema as the text of ``disclosure.schema.json``."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(as_json())
