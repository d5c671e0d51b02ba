"""Peak memory of training a 10K-word model with a report goal of 6,500 on a CPU.

    .venv/stages/bin/python -m benchmarks.speed.memory [--rounds 2] [--words 8] [--threads 2]

Real rounds of ``federated.train.fine_tune`` in a process of its own, peak resident memory as the system counts it
(``ru_maxrss``): devices of a few words, so that it ends in minutes. Rows of a whole cohort are held during a
round; so what cohorts of the heaviest devices (1,600 words) take, with a chunk of them in training, is measured apart
and added.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.speed.workloads import CASES, CLIP, RATE, clipped_sum, text
from federated import train
from federated.config.mechanism import TreeMechanism
from federated.config.training import LocalTrainingConfig, RuntimeConfig, ServerConfig
from federated.local_training.rows import cohort_rows
from federated.rounds.rule import RoundRule
from pretrain.kernel.threads import one_torch_thread
from pretrain.model.keyboard_lm import build_model
from pretrain.randomness.noise import seeded_key
from pretrain.text.vocabulary import TokenStream, join_owners

REPORT_GOAL, LIMIT_MB, HEAVY_WORDS = 6_500, 2_000, 1_600
_CASE = CASES["1600"]


def peak_mb() -> float:
    """Most resident memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def typists(devices: int, words: int) -> TokenStream:
    """Devices of equal size."""
    rng = np.random.default_rng(0)
    return join_owners([text(rng, words, _CASE.vocabulary) for _ in range(devices)])


def local_training(words: int) -> LocalTrainingConfig:
    """As in the benchmark of speed."""
    return LocalTrainingConfig(
        learning_rate=RATE, batch_sentences=_CASE.batch, sequence_words=10, epochs=1, max_words=words
    )


def run_rounds(rounds: int, words: int, threads: int) -> dict[str, float]:
    """Rounds over as many devices as they need."""
    devices = typists(2 * REPORT_GOAL, words)
    imported = peak_mb()
    mechanism = TreeMechanism(
        kind="tree",
        noise_multiplier=7.0,
        clip_norm=CLIP,
        rounds=rounds,
        report_goal=REPORT_GOAL,
        min_sep=2,
        max_participations=rounds,
        delta=1e-10,
        randomness="seeded",
    )
    took = []
    with tempfile.TemporaryDirectory() as folder:
        result = train.fine_tune(
            build_model(_CASE.model, _CASE.vocabulary, 0),
            train.TrainingData(devices, np.zeros(len(devices), dtype=bool), typists(50, 40)),
            RoundRule(mechanism, 1, seeded_key(1)),
            local_training(words),
            ServerConfig(learning_rate=1.0),
            train.Workplace(
                Path(folder) / "rounds",
                RuntimeConfig(chunk_devices=_CASE.chunk, checkpoint_every_rounds=1),
                threads,
                on_round=lambda message: took.append(message["seconds"]),
            ),
        )
    return {"rounds": result.rounds, "before_mb": imported, "peak_mb": peak_mb(), "round_seconds": max(took)}


def hold_rows(cohorts: int) -> dict[str, float]:
    """Rows of cohorts of the heaviest devices, and a chunk of them in training."""
    local = local_training(HEAVY_WORDS)
    devices, model = typists(REPORT_GOAL, HEAVY_WORDS), build_model(_CASE.model, _CASE.vocabulary, 0)
    with one_torch_thread():
        clipped_sum(model, cohort_rows(devices, np.arange(1), local, 0.0), local, CLIP, 1)
        before, began = peak_mb(), time.process_time()
        held = [cohort_rows(devices, np.arange(REPORT_GOAL), local, offset / 3) for offset in range(cohorts)]
        seconds = (time.process_time() - began) / max(cohorts, 1)
        clipped_sum(model, held[0][: _CASE.chunk], local, CLIP, _CASE.chunk)
    return {"rows_mb": peak_mb() - before, "text_mb": devices.tokens_N.nbytes / 2**20, "row_seconds": seconds}


def apart(act: str, *arguments: int) -> dict[str, float]:
    """``act`` of this file in a process of its own: memory that was used before would hide its peak."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.speed.memory",
        "--act",
        act,
        *(f"--with={argument}" for argument in arguments),
    ]
    done = subprocess.run(command, check=True, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def main() -> None:
    """Print the table; exit code 1 above the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--words", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--act", choices=["run_rounds", "hold_rows"], help=argparse.SUPPRESS)
    parser.add_argument("--with", type=int, action="append", dest="arguments", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.act:
        print(json.dumps({"run_rounds": run_rounds, "hold_rows": hold_rows}[options.act](*options.arguments)))
        return
    run = apart("run_rounds", options.rounds, options.words, options.threads)
    rows = apart("hold_rows", 2)
    total = run["peak_mb"] + rows["rows_mb"] + rows["text_mb"]
    print(f"10K words, report goal {REPORT_GOAL}, {options.threads} threads, {options.rounds} rounds, resident MB")
    print(f"{'before the first round':<58}{run['before_mb']:>6.0f}")
    print(f"{f'peak, devices of {options.words} words':<58}{run['peak_mb']:>6.0f}")
    print(f"{f'rows of two cohorts, devices of {HEAVY_WORDS} words':<58}{rows['rows_mb']:>6.0f}")
    print(f"{'their text, if it is not mapped from a file':<58}{rows['text_mb']:>6.0f}")
    print(f"{f'a run with devices of {HEAVY_WORDS} words, at most':<58}{total:>6.0f}")
    print(f"a round took {run['round_seconds']:.0f} s; making a heavy cohort's rows {rows['row_seconds']:.1f} CPU s")
    if total > LIMIT_MB:
        sys.exit(f"above {LIMIT_MB} MB")


if __name__ == "__main__":
    main()
