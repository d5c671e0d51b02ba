"""Stores of a few made-up devices."""

import json
from pathlib import Path

from pydantic import TypeAdapter

from federated.config.population import PopulationConfig
from federated.devices.store import build_store, open_store

Row = dict[str, object]


def config(**fields: object) -> PopulationConfig:
    base = {"source": "files", "name": "typists", "max_words_per_device": 50}
    return TypeAdapter(PopulationConfig).validate_python(base | fields)


def build(directory: Path, rows: list[Row] | Path, locale: str = "en-US", seed: int = 1, **fields: object):
    if isinstance(rows, list):
        path = directory / "typed.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        rows = path
    summary = build_store(config(paths=[str(rows)], **fields), locale, seed, directory / "store")
    return summary, open_store(directory / "store")
