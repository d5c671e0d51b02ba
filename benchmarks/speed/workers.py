"""A round's time by the number of processes.

    .venv/stages/bin/python -m benchmarks.speed.workers [--rounds 6] [--cases tiny,100] [--processes 1,2]

Whole rounds of ``federated.train``: cohort, rows, training, one sum over all processes, noise, server step. Wall
seconds are the median round of worker 0, CPU seconds those of all workers together, by the round. One process
with two threads is there to compare. The last column says whether the model is the first row's to the bit.
"""

import argparse
import hashlib
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.speed.workloads import CASES, CLIP, text
from federated import train
from federated.config.blt_presets import PRESETS
from federated.config.mechanism import BltMechanism
from federated.config.training import RuntimeConfig, ServerConfig
from federated.rounds import server
from federated.rounds.rule import RoundRule
from federated.workers.worker import Worker, joined
from pipeline.run.gang import torchrun
from pretrain.model.keyboard_lm import build_model
from pretrain.randomness.noise import seeded_key
from pretrain.text.vocabulary import join_owners

_PRODUCTION = {"theta": PRESETS["min-sep-100"].theta, "omega": PRESETS["min-sep-100"].omega}
COHORTS = {"tiny": 256, "100": 24, "1600": 4}


@dataclass(frozen=True)
class Way:
    """One row: processes, and threads of each."""

    processes: int
    threads: int

    @property
    def name(self) -> str:
        """For the table."""
        threads = f", {self.threads} threads" if self.threads > 1 else ""
        return f"{self.processes} process{'es' * (self.processes > 1)}{threads}"


def run(name: str, rounds: int, way: Way, directory: Path, process: Worker) -> dict[str, object]:
    """Some rounds by this process and the others; a round before them compiles and fills caches."""
    case, rng = CASES[name], np.random.default_rng(0)
    cohort = COHORTS[name]
    devices = join_owners([text(rng, case.words, case.vocabulary) for _ in range(4 * cohort)])
    held_out = join_owners([text(rng, case.words, case.vocabulary)])
    seconds: list[float] = []
    spent = 0.0
    for count in (1, rounds):
        fields = {"noise_multiplier": 7.0, "clip_norm": CLIP, "rounds": count, "report_goal": cohort, "min_sep": 1}
        fields |= {"max_participations": count, "delta": 1e-6, "randomness": "seeded"}
        model, began = build_model(case.model, case.vocabulary, 0), time.process_time()
        seconds.clear()
        train.fine_tune(
            model,
            train.TrainingData(devices, np.zeros(len(devices), dtype=bool), held_out),
            RoundRule(BltMechanism(kind="blt", **_PRODUCTION, **fields), 1, seeded_key(1)),
            case.training,
            ServerConfig(learning_rate=0.5),
            train.Workplace(
                directory / f"{count}",
                RuntimeConfig(chunk_devices=case.chunk, checkpoint_every_rounds=count, evaluate_every_rounds=count),
                way.threads,
                process,
                lambda message: seconds.append(message["seconds"]),
            ),
        )
        spent = time.process_time() - began
    weights = hashlib.sha256(server.flat_weights(model).tobytes()).hexdigest()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    # The last round measures and writes a checkpoint.
    return {"wall": statistics.median(seconds[:-1] or [0.0]), "cpu": spent / rounds, "mib": peak, "weights": weights}


def table(name: str, rounds: int, ways: list[Way]) -> None:
    """Print one case."""
    case = CASES[name]
    print(f"\n{case.name}: {COHORTS[name]} devices of {case.words} words a round, {rounds} rounds")
    print(f"{'':<30}{'wall s':>9}{'of first':>10}{'CPU s':>9}{'MiB each':>10}{'same bits':>11}")
    first: dict[str, object] = {}
    for way in ways:
        with tempfile.TemporaryDirectory() as folder:
            told = [folder, name, str(rounds), str(way.threads)]
            command = torchrun(way.processes, ["benchmarks.speed.workers", "--worker", *told], port=29_500)
            subprocess.run(command, cwd=Path(__file__).parents[2], check=True, stderr=subprocess.PIPE)
            done = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json"))]
        first = first or done[0]
        cpu, most = sum(each["cpu"] for each in done), max(each["mib"] for each in done)
        wall, same = done[0]["wall"], all(each["weights"] == first["weights"] for each in done)
        print(f"{way.name:<30}{wall:>9.3f}{wall / first['wall']:>9.2f}x{cpu:>9.3f}{most:>10.0f}{same!s:>11}")


def worker(folder: str, name: str, rounds: str, threads: str) -> None:
    """The work of one process."""
    with joined() as process:
        way = Way(process.size, int(threads))
        told = run(name, int(rounds), way, Path(folder) / "run", process)
        (Path(folder) / f"{process.rank}.json").write_text(json.dumps(told))


def main() -> None:
    """Print every table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--cases", default="tiny,100")
    parser.add_argument("--processes", default="1,2")
    options = parser.parse_args()
    counts = [int(count) for count in options.processes.split(",")]
    ways = [Way(1, 1), Way(1, 2), *(Way(count, 1) for count in counts if count > 1)]
    for name in options.cases.split(","):
        table(name, options.rounds, ways)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(*sys.argv[2:])
    else:
        main()
