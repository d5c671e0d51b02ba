"""Shipped launch files in small: their shape, at a size for a test."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.launch.config import all_fields

# Sizes alone: what a file says beside them is launched as it stands.
_SIZES: dict[str, dict[str, Any]] = {
    "mechanism": {
        "clip_norm": 0.3,
        "min_sep": 2,
        "max_participations": 3,  # the cap leaves room: how many devices train is a matter of the split's key
        "delta": 1e-6,
        "restarts": [3],
        "bands": 2,
        "population": 30,
        "weight_words": 20,
    },
    "discovery": {"delta": 5e-7, "layers": 5, "max_prefixes": 20, "messages_per_device": 4, "anonymity": 2}
    | {"noise_multiplier": 0.5, "words_per_device": 4},
    "audit": {"users": [1], "repeats": 1},
    "ab_test": {"buckets": 5},
    "runtime": {
        "device": "cpu",
        "workers": 1,  # training by several processes gives the bits of one: test_workers.py
        "chunk_devices": 4,
        "checkpoint_every_rounds": 2,
        "evaluate_every_rounds": 2,
    },
    "policy": {"population_delta": 1e-4},
}


def in_small(path: Path, folder: Path, own: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Every field that the launch file sets, with sizes of ``own`` and of every test in place of its own."""
    launch = {name: value for name, value in all_fields(path).items() if value is not None}
    for block in launch.keys() & {*_SIZES, *own}:
        sizes = _SIZES.get(block, {}) | own.get(block, {})
        launch[block] |= {name: value for name, value in sizes.items() if name in launch[block]}
    launch["audit"] |= {"random_continuations": 10_000, "directions": 64}
    if launch["mechanism"]["kind"] == "independent":
        # Some directions join no round of a sample, and more of them need a larger model.
        launch["audit"]["directions"], launch["model"]["hidden_dim"] = 80, 24
    if "adaptive_clipping" in launch["mechanism"]:
        launch["mechanism"]["adaptive_clipping"]["bit_noise_std"] = 5.0
    if "blocklist" in launch["discovery"]:
        (folder / "blocklist.txt").write_text("slur\n", encoding="utf-8")
        launch["discovery"]["blocklist"] = str(folder / "blocklist.txt")
    return launch


def keep_every_word(sheet: Path) -> None:
    """Fill a review sheet in as a person would who objects to nothing."""
    with sheet.open(encoding="utf-8", newline="") as source:
        rows = list(csv.DictReader(source))
    with sheet.open("w", encoding="utf-8", newline="") as target:
        writer = csv.DictWriter(target, rows[0])
        writer.writeheader()
        writer.writerows(row | {"decision": "keep"} for row in rows)
