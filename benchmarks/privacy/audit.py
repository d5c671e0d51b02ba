"""Cost of the audits: 27 canaries ranked among 2,000,000, and direction canaries in each round of training.

    .venv/stages/bin/python -m benchmarks.privacy.audit [--repeats 3] [--threads 2]

Paper-size model (CIFG-LSTM 670, 96), vocabulary of 10,000. Canaries are attacked on threads, as in a launch;
each product stays on one. No canary is memorised, which is the slow case: counting is tried and given up
for each. The naive way scores every reference, as the paper's procedure says; a share of it is timed on the
same threads and scaled up. Wall-clock time means little where other work runs; CPU time is of all threads.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from evaluation.audit import exposure
from evaluation.audit.canaries import SECRET_WORDS, Canary
from evaluation.audit.directions import Directions
from evaluation.audit.search import best_first
from evaluation.inference import NUM_SPECIALS, float64_copy
from pretrain.config import ModelConfig
from pretrain.model.keyboard_lm import KeyboardLM, build_model, parameter_count
from tests.helpers.audits.sampled_rank import rank_by_sampling

WORDS, CANARIES, REFERENCES, NAIVE_SHARE = 10_000, 27, 2_000_000, 4096


def zipf_model() -> KeyboardLM:
    """Random weights with the word frequencies of text: steep enough that importance sampling has work to do."""
    model = build_model(ModelConfig(embedding_dim=96, hidden_dim=670, tied=False), WORDS + NUM_SPECIALS, 0)
    with torch.no_grad():
        model.projection *= 4
        model.embedding *= 4
        model.output_bias.copy_(-torch.log(torch.arange(1, WORDS + NUM_SPECIALS + 1).float()))
    return float64_copy(model)


def timed(repeats: int, task: Callable[[], object]) -> tuple[float, float]:
    """Median seconds on the clock, and of all threads together."""
    wall, spent = [], []
    for _ in range(repeats):
        began, used = time.perf_counter(), time.process_time()
        task()
        wall.append(time.perf_counter() - began)
        spent.append(time.process_time() - used)
    return statistics.median(wall), statistics.median(spent)


def main() -> None:
    """Print two small tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    repeats, threads = options.repeats, options.threads
    torch.set_num_threads(1)
    model, rng = zipf_model(), np.random.default_rng(0)
    canaries = [
        Canary(("",) * 5, tuple(rng.integers(NUM_SPECIALS, WORDS + NUM_SPECIALS, 5).tolist()), 1, 1)
        for _ in range(CANARIES)
    ]
    ranks: list[exposure.Rank] = []

    def search(one: Canary) -> None:
        exposure.beam_search(model, one.prefix, SECRET_WORDS, 5)
        best_first(model, one.prefix, SECRET_WORDS, 5)

    with ThreadPoolExecutor(threads) as pool:

        def rank_all() -> None:
            ranks[:] = pool.map(lambda numbered: exposure.rank(model, numbered[1], REFERENCES, numbered[0]), numbers)

        def score_a_share() -> None:
            list(pool.map(lambda seed: rank_by_sampling(model, canaries[seed], NAIVE_SHARE, seed), shares))

        numbers, shares = list(enumerate(canaries)), list(range(threads))
        # A canary and a share more or less: what starts first finds caches and threads cold.
        search(canaries[0])
        ranking, searching = timed(repeats, rank_all), timed(repeats, lambda: list(pool.map(search, canaries)))
        naive_wall, naive_spent = timed(repeats, score_a_share)
    scale = CANARIES * REFERENCES / (NAIVE_SHARE * threads)
    rows = {
        "ranks": ranking,
        "beam search and best first, top 5": searching,
        "every reference scored (projected)": (naive_wall * scale, naive_spent * scale),
    }
    print(f"{f'27 canaries among 2,000,000, {threads} threads':<46}{'wall s':>10}{'CPU s':>10}{'CPU ratio':>11}")
    for name, (wall, spent) in rows.items():
        print(f"{name:<46}{wall:>10.1f}{spent:>10.1f}{spent / ranking[1]:>11.2f}")
    errors = [one.standard_error / one.rank for one in ranks]
    print(f"relative standard error of a rank: median {statistics.median(errors):.3f}, largest {max(errors):.3f}\n")

    size = parameter_count(model)
    directions = Directions((size,), 1000, 0)
    vector_P = rng.standard_normal(size)
    directions.project(vector_P)
    print(f"{f'direction canaries, {size:,} parameters':<46}{'wall s':>10}{'CPU s':>10}")
    tasks = {
        "1,000 inner products (a round)": lambda: directions.project(vector_P),
        "one update (a canary and round)": lambda: directions.update(5),
    }
    for name, task in tasks.items():
        wall, spent = timed(repeats, task)
        print(f"{name:<46}{wall:>10.2f}{spent:>10.2f}")


if __name__ == "__main__":
    main()
