"""The audits' price: 27 canaries ranked among 2,000,000, and direction canaries in each round of training.

    .venv/stages/bin/python benchmarks/audit.py [--repeats 3]

Paper-size model (CIFG-LSTM 670, 96), vocabulary of 10,000, one thread, CPU time. No canary is memorised, which is
the slow case: counting is tried and given up for each. The naive way scores every reference, as the
paper's procedure says; a share of it is timed and scaled up.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from evaluation import exposure
from evaluation.best_first import best_first
from evaluation.canaries import SECRET_WORDS, Canary
from evaluation.directions import Directions
from evaluation.inference import NUM_SPECIALS, float64_copy
from pretrain.config import ModelConfig
from pretrain.model import KeyboardLM, build_model, parameter_count

WORDS, CANARIES, REFERENCES, NAIVE_SHARE = 10_000, 27, 2_000_000, 4096


def zipf_model() -> KeyboardLM:
    """Random weights with the word frequencies of text: steep enough that importance sampling has work to do."""
    model = build_model(ModelConfig(embedding_dim=96, hidden_dim=670, tied=False), WORDS + NUM_SPECIALS, 0)
    with torch.no_grad():
        model.projection *= 4
        model.embedding *= 4
        model.output_bias.copy_(-torch.log(torch.arange(1, WORDS + NUM_SPECIALS + 1).float()))
    return float64_copy(model)


def seconds(repeats: int, task: Callable[[], object]) -> float:
    """Median CPU time."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        task()
        times.append(time.process_time() - began)
    return statistics.median(times)


def main() -> None:
    """Print two small tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    model, rng = zipf_model(), np.random.default_rng(0)
    canaries = [
        Canary(("",) * 5, tuple(rng.integers(NUM_SPECIALS, WORDS + NUM_SPECIALS, 5).tolist()), 1, 1)
        for _ in range(CANARIES)
    ]
    ranks: list[exposure.Rank] = []

    def rank_all() -> None:
        ranks[:] = [exposure.rank(model, one, REFERENCES, seed) for seed, one in enumerate(canaries)]

    def search_all() -> None:
        for one in canaries:
            exposure.beam_search(model, one.prefix, SECRET_WORDS, 5)
            best_first(model, one.prefix, SECRET_WORDS, 5)

    ranking = seconds(repeats, rank_all)
    searching = seconds(1, search_all)
    naive = seconds(repeats, lambda: exposure.rank_by_sampling(model, canaries[0], NAIVE_SHARE, 0))
    naive *= CANARIES * REFERENCES / NAIVE_SHARE
    errors = [one.standard_error / one.rank for one in ranks]
    print(f"{'27 canaries among 2,000,000':<46}{'CPU seconds':>14}{'ratio':>10}")
    print(f"{'ranks':<46}{ranking:>14.1f}{1:>10.0f}")
    print(f"{'beam search and best first, top 5':<46}{searching:>14.1f}{searching / ranking:>10.2f}")
    print(f"{'every reference scored (projected)':<46}{naive:>14.0f}{naive / ranking:>10.0f}")
    print(f"relative standard error of a rank: median {statistics.median(errors):.3f}, largest {max(errors):.3f}\n")

    size = parameter_count(model)
    directions = Directions((size,), 1000, 0)
    vector_P = rng.standard_normal(size)
    directions.project(vector_P)
    print(f"{f'direction canaries, {size:,} parameters':<46}{'CPU seconds':>14}")
    print(f"{'1,000 inner products (a round)':<46}{seconds(repeats, lambda: directions.project(vector_P)):>14.2f}")
    print(f"{'one update (a canary and round)':<46}{seconds(repeats, lambda: directions.update(5)):>14.2f}")


if __name__ == "__main__":
    main()
