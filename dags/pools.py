"""Airflow's pools, from a deployment's file (POOLS): checked, then set by `airflow pools import`.

    python dags/pools.py FILE

Airflow itself takes any text for a number of slots, and tasks of a missing pool would wait for ever.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

# Pools that tasks name.
NAMES = ("cpu", "gpu")
_KINDS = {
    "slots": "a whole number from 1, the processes of its workers",
    "description": "a text",
    "include_deferred": "true or false",
}
_REQUIRED = ("slots", "description")


def problem(file: Path) -> str:
    """Message about the first fault of a file, with its field, value and fix; empty if there is none."""
    try:
        pools = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return f"POOLS: {file}: {error}; name a JSON file in the form of dags/pools.json"
    if not isinstance(pools, dict) or (missing := [name for name in NAMES if name not in pools]):
        named = ", ".join(missing) if isinstance(pools, dict) else " and ".join(NAMES)
        return f"POOLS: {file}: no pool {named}, which tasks name; add it in the form of dags/pools.json"
    for name, pool in pools.items():
        if not isinstance(pool, dict):
            return f"POOLS: {file}: {name}: {pool!r} is no pool; write it in the form of dags/pools.json"
        if unknown := sorted(pool.keys() - _KINDS.keys()):
            return f"POOLS: {file}: {name}.{unknown[0]}: no such field; a pool has {', '.join(_KINDS)}"
        for field in (*_REQUIRED, *(pool.keys() - set(_REQUIRED))):
            if not _fits(field, pool.get(field)):
                return f"POOLS: {file}: {name}.{field}: {pool.get(field)!r}; write {_KINDS[field]}"
    return ""


def _fits(field: str, value: Any) -> bool:
    match field:
        case "slots":
            return type(value) is int and value >= 1
        case "include_deferred":
            return isinstance(value, bool)
    return isinstance(value, str)


if __name__ == "__main__":
    if wrong := problem(Path(sys.argv[1])):
        sys.exit(wrong)
    airflow = str(Path(sys.executable).with_name("airflow"))
    os.execv(airflow, [airflow, "pools", "import", sys.argv[1]])
