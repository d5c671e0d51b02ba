"""Training speed of a device: words of public text per second in float32 and bfloat16, and the time of a round.

    .venv/stages/bin/python -m benchmarks.speed.on_device --device cuda [--round-devices 6500]

Wall time of steps as ``pretrain`` takes them on a GPU, at the demo's and the paper's size; then the sum of a round's
clipped updates at 100 and 1,600 words a device. By bandwidth alone an H200 needs 0.21 s and 2.0 s for rounds of 6,500
devices. ``--device cpu`` runs the same code, to see that it runs.
"""

import argparse
import statistics
import time
from dataclasses import replace

import torch

from benchmarks.speed.pretraining import SIZES, made_up
from benchmarks.speed.workloads import CASES, CLIP, clipped_sum, typed
from pretrain.config import ModelConfig
from pretrain.model.keyboard_lm import KeyboardLM, build_model, placed
from pretrain.text.batches import batches
from pretrain.training.train import gradients_by_autograd

_CHUNK = {"cpu": 2, "cuda": 512}


def now(device: str) -> float:
    """Seconds of a clock, once the device has done all that it was asked."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def public_words(device: str, steps: int, sentences: int) -> None:
    """Words a second of public training."""
    for size, (vocabulary, embedding, hidden) in SIZES.items():
        rows = made_up(vocabulary, 200_000)
        for bfloat16 in (False, True):
            model = placed(KeyboardLM(vocabulary, embedding, hidden, tied=True), device)
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
            schedule = batches(rows, sentences, 0, 0)
            with gradients_by_autograd(model, rows, 1 / (12 * sentences), bfloat16=bfloat16) as add_gradient:
                rates = []
                for step in range(steps + 1):
                    began = now(device)
                    _, words = add_gradient(next(schedule), step)
                    optimizer.step()
                    rates.append(words / (now(device) - began))
            kind = "bfloat16" if bfloat16 else "float32"
            print(f"{size}, {kind}, {sentences} sentences a step: {statistics.median(rates[1:]):,.0f} words/s")


def a_round(device: str, count: int, turns: int) -> None:
    """Seconds of a round's sum."""
    for name in ("100", "1600"):
        case = replace(CASES[name], devices=count)
        model = placed(build_model(ModelConfig.model_validate(case.model), case.vocabulary, 0), device)
        devices, spent = typed(case), []
        for _ in range(turns + 1):
            began = now(device)
            clipped_sum(model, devices, case.training, CLIP, _CHUNK[device])
            spent.append(now(device) - began)
        print(f"round of {count:,} devices, {case.name}: {statistics.median(spent[1:]):.2f} s (first {spent[0]:.2f} s)")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--round-devices", type=int, default=6_500)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--sentences", type=int, default=1_024)
    parser.add_argument("--turns", type=int, default=3)
    asked = parser.parse_args()
    public_words(asked.device, asked.steps, asked.sentences)
    a_round(asked.device, asked.round_devices, asked.turns)


if __name__ == "__main__":
    main()
