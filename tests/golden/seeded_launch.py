"""A tiny launch whose every bit follows from seeds: made-up text, 60 clients, six rounds.

Shared by the golden tests. The launch file names its data by
relative paths, so its launch id is the same in every folder.
It sets only what has no default, and what a test of seconds needs smaller than the default.
"""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from discovery import filters
from federated.config.blt_presets import PRESETS
from tests.helpers.launches.installed import installed
from tests.helpers.launches.tiny_launch import SHARED_NEW, SIZES

CLIENTS = 60
ROUNDS = 6
CHECKPOINT_ROUNDS = 2
WORDS = """
the of and to in is you that it he was for on are as with his they at be this have from or one had by word
but not what all were we when your can said there use an each which she do how their if will up other about
""".split()  # noqa: SIM905 - a list of so many quoted words reads worse

_ANY = {"clip_norm": 0.3, "rounds": ROUNDS, "report_goal": 10, "delta": 1e-6, "randomness": "seeded"}
_SPACED = _ANY | {"noise_multiplier": 4.0, "min_sep": 2, "max_participations": 2}
_ADAPTIVE = {"target_quantile": 0.5, "learning_rate": 0.2, "bit_noise_std": 5.0}
_RAN = PRESETS["min-sep-100"]
_BLT = {"kind": "blt", "theta": list(_RAN.theta), "omega": list(_RAN.omega)}
MECHANISMS = {
    "tree": _SPACED | {"kind": "tree"},
    "blt": _SPACED | _BLT | {"restarts": [3], "adaptive_clipping": _ADAPTIVE},
    "banded": _SPACED | {"kind": "banded", "bands": 2},
    "independent": _ANY | {"kind": "independent", "noise_multiplier": 2.0, "sampling": "poisson", "population": 30},
    "secagg": _SPACED | {"kind": "tree", "secagg": {"bits": 32}},
}

_POLICY = {
    "max_rho": 30.0,
    "max_total_epsilon": 150.0,
    "population_delta": 1e-5,
    "population_max_rho": 30.0,
    "population_max_words_epsilon": 300.0,
    "min_canary_rank": 1,
    "min_top1_gain": -1.0,
    "max_top3_loss": 1.0,
    "min_variety": 0.0,
    "min_ngram_gain": -1.0,
}
_COUNTS = {"noise_multiplier": 1.0}
# Blocks of each launch that are not those of the launch below. Two of them are more than a mechanism: words that a
# trusted aggregator finds, with a budget of evaluation; and counts that ship alone.
LAUNCHES = {name: {"mechanism": mechanism} for name, mechanism in MECHANISMS.items()} | {
    "blt": {"mechanism": MECHANISMS["blt"], "counts": _COUNTS | {"model": "mixture"}},
    "central": {
        "mechanism": MECHANISMS["tree"],
        "discovery": {"kind": "central", "noise_multiplier": 0.5, "words_per_device": 8, "delta": 5e-7},
        "counts": _COUNTS | {"model": "network"},
        "evaluation": {"noise_multiplier": 0.3},
        "ab_test": {"buckets": 5, "session_words": 0},
        "policy": _POLICY | {"population_max_discovery_epsilon": 80.0},
    },
    "counts": {"mechanism": MECHANISMS["tree"], "counts": _COUNTS | {"model": "counts"}},
}
SEEDED = "blt"  # with restarts and adaptive clipping: the mechanism with the most state
FROZEN = (SEEDED, "central", "counts")  # between them every release, and every way to find words and to ship


def begun(home: Path, name: str) -> Path:
    """The launch file of one of ``LAUNCHES``, in a home with its data and its population."""
    write_data(home)
    installed(home, f"made_up_files:tiny-clients-{name}")
    return write_launch(home, name)


def write_data(folder: Path) -> None:
    """Public shards and the clients' Parquet, with names that the launch file knows."""
    rng = np.random.default_rng(7)
    weights = 1 / np.arange(1, len(WORDS) + 1)
    weights /= weights.sum()

    def sentence() -> list[str]:
        return [str(word) for word in rng.choice(WORDS, size=rng.integers(4, 10), p=weights)]

    for name, documents in (("train", 40), ("validation", 6)):
        rows = []
        for number in range(documents):
            text = " ".join(" ".join(sentence()) + "." for _ in range(12))
            rows.append({"text": text, "timestamp": "2020-01-01T00:00:00Z", "url": f"https://example.org/{number}"})
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.json.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
    rows = []
    for client in range(CLIENTS):
        for message in range(8):
            words = sentence()
            words.insert(2, SHARED_NEW[message % len(SHARED_NEW)])
            rows.append({"client_id": f"made-up-{client:03d}", "text": " ".join(words), "locale": "en-US"})
    pq.write_table(pa.Table.from_pylist(rows), folder / "clients.parquet")


def write_launch(folder: Path, name: str, *, typing: bool = False, **mechanism_changes: object) -> Path:
    """Write the launch file of one of ``LAUNCHES`` into ``folder``, which holds the data; returns its path.

    Args:
      typing: also simulate typing, which takes seconds and holds the launch, as so small a model types badly;
        without it the launch publishes.
      mechanism_changes: replace fields of the mechanism block.
    """
    launch = {
        "name": f"tiny-{name}",
        "locale": "en-US",
        "features": ["NWP"],
        "seed": 5,
        "trust": "secure sum" if name == "secagg" else "server",
        "tuning": "public text",
        "public_text": {
            "source": "files",
            "train": ["train.json.gz"],
            "validation": ["validation.json.gz"],
            "max_tokens": 20_000,
        },
        "private_text": {
            "source": "made_up_files",
            "name": f"tiny-clients-{name}",
            "paths": ["clients.parquet"],
            "max_words_per_device": 60,
            "test_fraction": 0.25,
        },
        "vocabulary": {"base_size": 50, "max_new_words": 8, "filters": list(filters.NAMES)},
        "model": SIZES["model"],
        "pretrain": SIZES["pretrain"],
        "discovery": SIZES["discovery"],
        "adapt": SIZES["adapt"],
        "local_training": SIZES["local_training"],
        "server": {"learning_rate": 0.5},
        "audit": SIZES["audit"],
        "ab_test": {"buckets": 5} if typing else {"buckets": 5, "session_words": 0},
        "policy": _POLICY | {"max_discovery_epsilon0": 8.0},
        "report": SIZES["report"],
        "runtime": {"chunk_devices": 4, "checkpoint_every_rounds": CHECKPOINT_ROUNDS, "evaluate_every_rounds": 2},
    }
    blocks = LAUNCHES[name]
    launch |= blocks | {"mechanism": blocks["mechanism"] | mechanism_changes}
    path = folder / f"tiny-{name}.yaml"
    path.write_text(yaml.safe_dump(launch, sort_keys=False), encoding="utf-8")
    return path


def run_of(home: Path, name: str) -> Path:
    """The folder of the one run of a launch."""
    (found,) = (home / "runs").glob(f"tiny-{name}-*")
    return found
