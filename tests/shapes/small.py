"""A shipped launch file in small: its shape, at a size for a test."""

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from federated.config.population import SyntheticPopulation
from federated.devices.synthetic import typists
from pipeline.ground.settings import account
from pipeline.launch.config import all_fields
from pipeline.rehearsal.stand_ins import NOT_EXERCISED

# Sizes alone: what a file says beside them is launched as it stands.
_SIZES: dict[str, dict[str, Any]] = {
    "vocabulary": {"base_size": 60, "max_new_words": 8},
    "model": {"embedding_dim": 16, "hidden_dim": 24},
    "pretrain": {"steps": 15, "batch_sentences": 32, "sequence_words": 10, "learning_rate": 0.01}
    | {"evaluate_every_steps": 5},
    "adapt": {"steps": 15, "batch_sentences": 32, "learning_rate": 0.01},
    "local_training": {"learning_rate": 0.5, "batch_sentences": 4, "sequence_words": 10, "max_words": 60},
    "mechanism": {
        "noise_multiplier": 0.3,
        "rounds": 12,
        "report_goal": 24,
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
    "planning": {"population_estimate": 200, "max_report_goal": 24, "target_rho": 4.0},
    "audit": {"users": [1], "repeats": 1, "examples": [1, 400]},
    "ab_test": {"buckets": 5},
    "runtime": {
        "device": "cpu",
        "workers": 1,  # training by several processes gives the bits of one: test_workers.py
        "chunk_devices": 4,
        "checkpoint_every_rounds": 2,
        "evaluate_every_rounds": 2,
    },
    "server": {"learning_rate": 0.5},
    "evaluation": {"noise_multiplier": 0.05},
    # Ceilings that so few people need.
    "policy": {
        "population_delta": 1e-4,
        "max_rho": 330.0,  # a month's budget holds three launches
        "max_total_epsilon": 1e3,
        "population_max_rho": 1e3,
        "population_max_words_epsilon": 1e5,
        "budget": {"rho": 1e3, "days": 60},
    },
}
DEVICES = 280
_SENTENCES = (
    "see you later at the {} today",
    "i will call you from the {} now",
    "thank you for the {} my friend",
    "we go to the {} with them",
    "what time is the {} this week",
    "can you come to the {} with me",
)
_KNOWN = ("house", "water", "party", "train")
_NEW = ("lol", "haha") * 3


def _sentence(rng: np.random.Generator, words: tuple[str, ...]) -> str:
    return _SENTENCES[rng.integers(len(_SENTENCES))].format(words[rng.integers(len(words))])


def _public_of_others(launch: dict[str, Any], rng: np.random.Generator) -> tuple[list[str], list[str]]:
    """Public text beside a synthetic population, to train on and held out, of the words of others who type alike.

    Words of such typists follow no others: all that people can teach a model is how often they type each. So text to
    train on has each word as often as any other; held-out text, which an experiment's simulated typists type, is as
    these others typed it.
    """
    everybody = SyntheticPopulation.model_validate(launch["private_text"] | {"devices": DEVICES + 60})
    typed = [texts for _, texts in typists(everybody, launch["locale"], launch["seed"]).devices][DEVICES:]
    others = [text for texts in typed for text in texts]
    counts = Counter(word for text in others for word in text[:-1].split())
    known = [word for word, _ in counts.most_common(_SIZES["vocabulary"]["base_size"])]
    return [" ".join(rng.choice(known, size=8)) + "." for _ in range(2_400)], others


def _write_public(folder: Path, **texts: Sequence[str]) -> dict[str, Any]:
    for name, sentences in texts.items():
        with gzip.open(folder / f"{name}.json.gz", "wt", encoding="utf-8") as file:
            for number in range(0, len(sentences), 12):
                file.write(json.dumps({"text": " ".join(sentences[number : number + 12])}) + "\n")
    files = {name: [str(folder / f"{name}.json.gz")] for name in texts}
    return {"source": "files", **files, "max_tokens": 20_000, "max_validation_tokens": 2_000}


def _write_private(folder: Path, locale: str) -> dict[str, Any]:
    """Made-up people of a locale, who typed yesterday, and words of whom no public text knows."""
    rng, typed_at = np.random.default_rng(2), datetime.now(UTC) - timedelta(days=1)
    rows = [
        {"client_id": f"device-{device:04d}", "text": _sentence(rng, _KNOWN + _NEW), "locale": locale, "ts": typed_at}
        for device in range(DEVICES)
        for _ in range(10)
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "clients.parquet")
    return {"paths": [str(folder / "clients.parquet")], "max_words_per_device": 60, "test_fraction": 0.35}


def _fields(path: Path) -> dict[str, Any]:
    """Every field that the launch file sets, with our sizes in place of its own."""
    launch = {name: value for name, value in all_fields(path).items() if value is not None}
    sizes = _SIZES | {"policy": _SIZES["policy"] | NOT_EXERCISED}
    for block in launch.keys() & sizes:
        launch[block] |= {name: value for name, value in sizes[block].items() if name in launch[block]}
    launch["audit"] |= {"directions": 64}
    if launch["mechanism"]["kind"] == "independent":
        # Some directions join no round of a sample, and more of them need a larger model.
        launch["audit"]["directions"], launch["model"]["hidden_dim"] = 80, 24
    if "adaptive_clipping" in launch["mechanism"]:
        launch["mechanism"]["adaptive_clipping"]["bit_noise_std"] = 5.0
    return launch


@dataclass(frozen=True)
class Small:
    """A launch file in small, and the gates that it lets everything through."""

    file: Path
    not_exercised: tuple[str, ...]


def small(path: Path, folder: Path) -> Small:
    """Write the launch file with every field that it sets, at a size for a test, on made-up text."""
    launch = _fields(path)
    # Typing at noise, or of phrases, cannot be told from the start's with so few people: recall decides.
    typed = "evaluation" not in launch and len(launch["features"]) == 1 and launch["ab_test"].get("session_words") != 0
    launch["ab_test"]["session_words"] = 400 if typed else 0
    population, rng = launch["private_text"], np.random.default_rng(1)
    sentences = [f"{_sentence(rng, _KNOWN)}." for _ in range(2_640)]
    train, held_out = sentences[240:], sentences[:240]
    if population["source"] == "synthetic":
        population |= {"devices": DEVICES, "max_words_per_device": 60}
        train, held_out = _public_of_others(launch, rng)
        launch["mechanism"]["noise_multiplier"], launch["server"]["learning_rate"] = 0.18, 2.0
    else:
        text = _write_private(folder, launch["locale"])
        launch["private_text"] = text | {"source": "made_up_files", "name": population["name"]}
    launch["public_text"] = _write_public(folder, train=train, validation=held_out)
    if launch.get("reviewers"):
        launch["reviewers"] = [account(), *launch["reviewers"][1:]]  # this one answers by the command line
    written = folder / path.name
    written.write_text(yaml.safe_dump(launch), encoding="utf-8")
    gates = [f"policy.{name}" for name in NOT_EXERCISED if name in launch["policy"]]
    return Small(written, (*gates, *([] if typed else ["ab_test.session_words"]), "runtime.device"))
