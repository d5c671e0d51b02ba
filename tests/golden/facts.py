"""Facts that two runs of one seeded launch must have in common, as a flat ``{name: value}``.

Names begin with their kind: ``weights/``, ``norm/``, ``along/``, ``file/``, ``private/``, ``released/``, ``ledger/``,
``gate/``, ``decision``, ``verdict/``, ``result/``, ``disclosure/``.
Times, durations and paths are left out; arrays and files stand as SHA-256.
"""

import hashlib
import io
import json
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from safetensors.numpy import load_file

Fact = float | int | str | bool | None

# A checkpoint is this line, a SHA-256 of the rest, and the rest: an .npz.
_CHECKPOINT = b"tacit-checkpoint-1\n"
_FILES = (
    "ingest_public/vocabulary.json",
    "discover/words.json",
    "count/released.npy",
    "build_vocabulary/vocabulary.json",
    "plan/mechanism.json",
    "fine_tune/canaries.json",
    "publish/bundle/vocabulary.json",
    "publish/bundle/model.onnx",
    "publish/bundle/model.int8.onnx",
)
_TIMES = ("seconds", "duration", "started", "created")
# Facts that a test compares, by how exactly they must be the same on any machine.
_SELECTED = {
    "exact": (
        r"ledger/(?!attempt/).*|decision|gate/(?!(attempts|typists)/).*/passed|verdict/.*"
        r"|file/(ingest_public|build_vocabulary|discover|plan|count|fine_tune)/.*"
        r"|result/discover/(words_found|epsilon_(central|clones)|device_level_epsilon0)"
        r"|result/fine_tune/(rho|mu|epsilon|sensitivity_squared|rounds|observed_.*|violations|synthetic_.*)"
        r"|result/fine_tune/(participation|separation)_histogram/.*"
    ),
    "amounts": r"result/(discover|count)/.*|disclosure/(accounting|composition|releases)/(?!.*rounds_root).*",
    "released": r"released/.*",
    "losses": r"result/(pretrain|adapt|fine_tune)/curve/\d+/(step|train_loss|validation_loss)"
    r"|result/(fine_tune/epsilon_pld|discover/epsilon_attack)",
    "ranks": r"result/audit/canaries/\d+/rank",
    "norms": r"norm/.*",
    "directions": r"along/.*",
}


@dataclass(frozen=True)
class Launched:
    """A finished launch, its folder, and everything comparable about it. Tests copy what they change."""

    home: Path
    run: Path
    found: dict[str, Fact]


def of_run(run: Path, ledger: Path) -> dict[str, Fact]:
    """All facts of a finished run in the folder ``run``.

    Args:
      ledger: the SQLite database of the privacy ledger.
    """
    facts: dict[str, Fact] = {"launch_id": run.name}
    for stage in ("pretrain", "adapt", "fine_tune"):
        for name, tensor in load_file(run / "public" / stage / "model.safetensors").items():
            facts[f"weights/{stage}/{name}"] = digest(tensor)
            facts[f"norm/{stage}/{name}"] = float(np.linalg.norm(tensor.astype(np.float64)))
            facts[f"along/{stage}/{name}"] = along(tensor)
    for name in _FILES:
        path = next((run / half / name for half in ("public", "private") if (run / half / name).exists()), run / name)
        facts[f"file/{name}"] = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None
    facts |= _private(run / "private" / "fine_tune")
    facts |= of_ledger(run.name, ledger)
    facts |= _released(run / "private" / "ab_test" / "released.json")
    facts |= {f"verdict/{row['type']}/{row['tested']}": row["verdict"] for row in _result(run, "audit")["audits"]}
    decided = _result(run, "decide")
    facts["decision"] = decided["decision"]
    for gate in decided["gates"]:
        facts |= {f"gate/{gate['id']}/{field}": gate[field] for field in ("passed", "value", "threshold")}
    for stage in sorted(path.parent.name for path in (run / "public").glob("*/result.json")):
        facts |= leaves(_result(run, stage), f"result/{stage}")
    content = json.loads((run / "public" / "report" / "disclosure.json").read_text(encoding="utf-8"))
    return facts | leaves(content, "disclosure")


def select(found: dict[str, Fact]) -> dict[str, dict[str, Fact]]:
    """Facts of ``of_run`` by the kinds of ``_SELECTED``."""
    return {
        kind: {name: value for name, value in found.items() if re.fullmatch(pattern, name)}
        for kind, pattern in _SELECTED.items()
    }


def along(array: np.ndarray) -> float:
    """Share of an array's length that lies along one direction of signs, times the root of its size: of the order 1."""
    flat_N = array.astype(np.float64).ravel()
    signs_N = 2.0 * np.random.Generator(np.random.Philox(len(flat_N))).integers(0, 2, size=len(flat_N)) - 1.0
    return float(flat_N @ signs_N / max(np.linalg.norm(flat_N), 1e-300))


def digest(array: np.ndarray) -> str:
    """SHA-256 over type, shape and bytes."""
    head = f"{array.dtype.str} {array.shape} ".encode()
    return hashlib.sha256(head + np.ascontiguousarray(array).tobytes()).hexdigest()


def leaves(content: object, name: str) -> dict[str, Fact]:
    """Numbers, truth values and nulls of nested JSON, by path; what a time or duration is called is left out."""
    return dict(_leaves(content, name))


def _leaves(content: object, name: str) -> Iterator[tuple[str, Fact]]:
    if isinstance(content, dict):
        for key, value in content.items():
            if not any(word in key for word in _TIMES):
                yield from _leaves(value, f"{name}/{key}")
    elif isinstance(content, list):
        for place, value in enumerate(content):
            yield from _leaves(value, f"{name}/{place}")
    elif not isinstance(content, str):
        yield name, content


def _result(run: Path, stage: str) -> dict:
    return json.loads((run / "public" / stage / "result.json").read_text(encoding="utf-8"))["result"]


def _private(folder: Path) -> dict[str, Fact]:
    """The newest checkpoint's arrays, who took part in which round, and what the audit of the noise reads."""
    if not (folder / "rounds").is_dir():
        return {}  # nothing was trained on devices
    checkpoint = max((folder / "rounds").glob("*.ckpt"))
    with np.load(io.BytesIO(checkpoint.read_bytes()[len(_CHECKPOINT) + 32 :])) as arrays:
        found = {f"private/{checkpoint.name}/{name}": digest(arrays[name]) for name in arrays.files if name != "meta"}
    with np.load(folder / "audit.npz") as arrays:
        found |= {f"private/audit.npz/{name}": digest(arrays[name]) for name in arrays.files}
    for path in sorted((folder / "rounds" / "participation.parquet").iterdir()):
        table = pq.read_table(path)
        found |= {f"private/{path.name}/{name}": digest(table[name].to_numpy()) for name in table.column_names}
    return found


def _released(file: Path) -> dict[str, Fact]:
    """Noisy sums over held-out devices, where they have a budget."""
    if not file.exists():
        return {}
    sums = json.loads(file.read_text(encoding="utf-8"))["sums"]
    return {f"released/ab_test/{place}": value for place, value in enumerate(sums)}


def of_ledger(launch_id: str, ledger: Path) -> dict[str, Fact]:
    """A launch's entries in the ledger, by kind and stage, but for digests of results."""
    columns = ("unit", "adjacency", "rho", "epsilon", "delta")
    where = "launch_id = ? AND kind NOT LIKE 'result%' ORDER BY seq"
    query = f"SELECT kind, stage, {', '.join(columns)} FROM privacy_ledger WHERE {where}"
    with sqlite3.connect(f"file:{ledger}?mode=ro", uri=True) as database:
        rows = database.execute(query, (launch_id,)).fetchall()
    return {
        f"ledger/{kind}/{stage}/{column}": value
        for kind, stage, *values in rows
        for column, value in zip(columns, values, strict=True)
    }
