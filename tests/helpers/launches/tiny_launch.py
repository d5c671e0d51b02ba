"""A launch small enough for a test: made-up public text, 80 clients, three rounds.

Every client writes words that nobody else writes; the tests then search for them.
"""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

CLIENTS = 80
COMMON = """
the of and to in is you that it he was for on are as with his they at be this have from or one had by word
but not what all were we when your can said there use an each which she do how their if will up other about
out many then them these so some her would make like him into time has look two more write go see number no
way could people my than first water been call who oil its now find long down day did get come made may part
""".split()  # noqa: SIM905 - a list of a hundred quoted words reads worse
SHARED_NEW = ("lol", "haha", "omg")
# What small launches have in common; the golden one keeps its bits only as long as these stay.
SIZES = {
    "model": {"embedding_dim": 8, "hidden_dim": 12, "tied": True},
    "pretrain": {
        "steps": 30,
        "batch_sentences": 16,
        "sequence_words": 10,
        "learning_rate": 0.01,
        "evaluate_every_steps": 10,
    },
    "discovery": {
        "kind": "ldp-triehh",
        "epsilon0": 8.0,
        "delta": 5e-7,
        "messages_per_device": 4,
        "honest_share": 0.5,
        "layers": 5,
        "max_prefixes": 20,
    },
    "adapt": {"steps": 5, "batch_sentences": 16, "learning_rate": 0.003},
    "local_training": {"learning_rate": 0.5, "batch_sentences": 4, "sequence_words": 10, "max_words": 60},
    "audit": {
        "users": [1],
        "examples": [1, 10],
        "repeats": 1,
        "directions": 64,
    },
    "report": {"contact": "the tests", "intended_use": "a test of the pipeline"},
}
MECHANISM = {
    "kind": "tree",
    "noise_multiplier": 4.0,
    "clip_norm": 0.3,
    "rounds": 3,
    "report_goal": 15,
    "min_sep": 2,
    "max_participations": 2,
    "delta": 1e-6,
    "randomness": "secure",
}
POLICY = {
    "max_rho": 2.0,
    "max_total_epsilon": 60.0,
    "population_delta": 1e-5,
    "population_max_rho": 5.0,
    "population_max_words_epsilon": 200.0,
    "max_discovery_epsilon0": 8.0,
    "min_canary_rank": 1,
    "min_top1_gain": -1.0,
    "max_top3_loss": 1.0,
    "min_variety": 0.0,
    "min_ngram_gain": -1.0,
}


def planted(client: int) -> str:
    """A word only this client writes: ten letters from its number."""
    letters = "bcdfghjklmnpqrstvwxz"
    return (
        "zq"
        + "".join(letters[(client * 7 + 3 * place * (client + 1)) % 20] for place in range(6))
        + letters[client % 20]
        + letters[client // 20]
    )


def client_id(client: int) -> str:
    """Looks like nothing else in the repository."""
    return f"planted-client-{client:04d}-q7"


def write_launch(folder: Path, **changes: object) -> Path:
    """Write public shards, client Parquet and the launch file into ``folder``; returns the launch file.

    Args:
      changes: replaces top-level fields of the launch file.
    """
    rng = np.random.default_rng(7)
    weights = 1 / np.arange(1, len(COMMON) + 1)
    chances = np.cumsum(weights / weights.sum())
    chances /= chances[-1]

    def sentence() -> str:
        places = chances.searchsorted(rng.random(rng.integers(4, 10)), side="right")
        return " ".join(COMMON[place] for place in places) + "."

    for name, documents in (("train", 200), ("validation", 20)):
        with gzip.open(folder / f"{name}.json.gz", "wt", encoding="utf-8") as file:
            for number in range(documents):
                text = " ".join(sentence() for _ in range(12))
                row = {"text": text, "timestamp": "2020-01-01T00:00:00Z", "url": f"https://example.org/{number}"}
                file.write(json.dumps(row) + "\n")
    rows, locale = [], changes.get("locale", "en-US")
    for client in range(CLIENTS):
        for message in range(12):
            words = sentence().rstrip(".").split()
            words.insert(2, planted(client) if message % 4 == 0 else SHARED_NEW[message % 3])
            rows.append({"client_id": client_id(client), "text": " ".join(words), "locale": locale})
    pq.write_table(pa.Table.from_pylist(rows), folder / "clients.parquet")

    launch = {
        "name": "tiny",
        "locale": "en-US",
        "features": ["NWP"],
        "seed": 5,
        "trust": "server",
        "tuning": "public text",
        "public_text": {
            "source": "files",
            "train": [str(folder / "train.json.gz")],
            "validation": [str(folder / "validation.json.gz")],
            "max_tokens": 20_000,
            "max_validation_tokens": 2_000,
        },
        "private_text": {
            "source": "files",
            "name": "tiny-clients",
            "paths": [str(folder / "clients.parquet")],
            "max_words_per_device": 60,
            "test_fraction": 0.35,
        },
        "vocabulary": {"base_size": 80, "max_new_words": 8, "filters": ["digits", "one-letter"]},
        "model": SIZES["model"],
        "pretrain": SIZES["pretrain"],
        "discovery": SIZES["discovery"],
        "adapt": SIZES["adapt"],
        "mechanism": MECHANISM,
        "local_training": SIZES["local_training"] | {"epochs": 1},
        "server": {"learning_rate": 0.5},
        "audit": SIZES["audit"],
        "ab_test": {"buckets": 5},
        "policy": POLICY,
        "report": SIZES["report"],
        "runtime": {"chunk_devices": 4, "checkpoint_every_rounds": 1, "evaluate_every_rounds": 1},
    }
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(launch | changes), encoding="utf-8")
    return path


def leaks(places: list[Path], texts: dict[str, str], needles: list[str]) -> list[str]:
    """Where a planted string occurs in files under ``places`` or in ``texts`` (name -> content)."""
    found = []
    wanted = [needle.encode() for needle in needles]
    for place in places:
        for path in sorted(path for path in place.rglob("*") if path.is_file()):
            content = path.read_bytes()
            found += [f"{path}: {needle.decode()}" for needle in wanted if needle in content]
    for name, content in texts.items():
        found += [f"{name}: {needle}" for needle in needles if needle in content]
    return found
