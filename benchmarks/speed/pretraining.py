"""Training speed in words per CPU second: our step, exact and sampled, against padded rows and nn.LSTM.

    .venv/stages/bin/python -m benchmarks.speed.pretraining [--turns 7] [--batch-sentences 64]

All do forward, backward and one step of Adam on the same batches, on one thread and in turn, so that a busy machine
slows all of them alike; figures are medians of CPU time, the first turn left out. Sentences are made up: lengths are
geometric with mean 12, words Zipf-distributed. nn.LSTM has a fourth gate (it is not coupled) and torch's fused cell;
it gets packed sequences and the softmax over all words.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence

from pretrain.kernel import columns
from pretrain.kernel.gradient import loss_and_gradient
from pretrain.kernel.weights import pack_alone, unpack
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.text.batches import Rows, batches, find_rows
from pretrain.text.vocabulary import EOS, PAD

SIZES = {"demo": (4000, 64, 256), "paper": (10_000, 96, 670)}
Step = Callable[[np.ndarray], None]


class Reference(nn.Module):
    """torch's own LSTM with a projection, tied embeddings and an output bias."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, proj_size=embedding)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def loss(self, rows: Rows, rows_B: np.ndarray) -> torch.Tensor:
        """Mean cross entropy of a batch."""
        rows_B = rows_B[np.argsort(-rows.length_R[rows_B], kind="stable")]
        inputs_BT, targets_BT = rows.batch(rows_B)
        lengths = torch.from_numpy(rows.length_R[rows_B])
        words = pack_padded_sequence(self.embedding(inputs_BT), lengths, batch_first=True)
        targets = pack_padded_sequence(targets_BT, lengths, batch_first=True).data
        features, _ = self.lstm(words)
        return functional.cross_entropy(features.data @ self.embedding.weight.T + self.bias, targets)


def made_up(vocabulary: int, words: int) -> Rows:
    """Rows of made-up sentences."""
    rng = np.random.default_rng(0)
    chance = 1 / np.arange(1, vocabulary - 3)
    tokens_N = 4 + rng.choice(vocabulary - 4, size=words, p=chance / chance.sum())
    tokens_N[rng.random(words) < 1 / 13] = EOS
    tokens_N[-1] = EOS
    return find_rows(tokens_N.astype(np.int32), 20)


def adam(model: nn.Module) -> torch.optim.Adam:
    """The optimizer that all of them use."""
    return torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)


def with_graph(model: nn.Module, loss_of: Callable[[np.ndarray], torch.Tensor]) -> Step:
    """A step by autograd."""
    optimizer = adam(model)

    def step(rows_B: np.ndarray) -> None:
        optimizer.zero_grad()
        loss_of(rows_B).backward()
        optimizer.step()

    return step


def padded_rows(model: KeyboardLM, rows: Rows) -> Step:
    """A step of padded rows: autograd through every time step, the softmax over all words."""

    def loss_of(rows_B: np.ndarray) -> torch.Tensor:
        inputs_BT, targets_BT = rows.batch(rows_B)
        features_BTE, _ = model.features(inputs_BT)
        real_BT = targets_BT != PAD
        logits_MV = torch.addmm(model.output_bias, features_BTE[real_BT], model.output_VE.T)
        return functional.cross_entropy(logits_MV, targets_BT[real_BT])

    return with_graph(model, loss_of)


def ours(model: KeyboardLM, rows: Rows, *, sampled: bool) -> Step:
    """The step of pretraining on a CPU."""
    optimizer = adam(model)
    chance_V = columns.chances(rows.tokens_N, model.vocabulary_size)
    generator = np.random.default_rng(0)

    def step(rows_B: np.ndarray) -> None:
        packed, weights = rows.packed(rows_B), pack_alone(model)
        gradients = weights.zeros_like()
        chosen = columns.draw(chance_V, packed.targets_P, generator) if sampled and chance_V is not None else None
        loss_and_gradient(weights, packed, chosen, gradients, 1 / len(packed.targets_P))
        for name, gradient in unpack(gradients).items():
            model.get_parameter(name).grad = gradient[0]
        optimizer.step()

    return step


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--batch-sentences", type=int, default=64)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print("| size | vocabulary, embedding, hidden | step | words a CPU second | over padded rows | over nn.LSTM |")
    print("|---|---|---|---|---|---|")
    for name, shape in SIZES.items():
        rows = made_up(shape[0], 200_000)
        reference = Reference(*shape)
        steps = {
            "nn.LSTM": with_graph(reference, lambda rows_B, m=reference, r=rows: m.loss(r, rows_B)),
            "padded rows": padded_rows(KeyboardLM(*shape, tied=True), rows),
            "exact": ours(KeyboardLM(*shape, tied=True), rows, sampled=False),
            "sampled": ours(KeyboardLM(*shape, tied=True), rows, sampled=True),
        }
        schedule = batches(rows, chosen.batch_sentences, 0, 0)
        speed: dict[str, list[float]] = {step: [] for step in steps}
        for turn in range(chosen.turns + 1):
            todo = [next(schedule) for _ in range(4)]
            words = sum(int(rows.length_R[rows_B].sum()) for rows_B in todo)
            for label, step in steps.items():
                began = time.process_time()
                for rows_B in todo:
                    step(rows_B)
                if turn:
                    speed[label].append(words / (time.process_time() - began))
        middle = {label: statistics.median(values) for label, values in speed.items()}
        for label, value in middle.items():
            ratios = f"{value / middle['padded rows']:.2f} | {value / middle['nn.LSTM']:.2f}"
            print(f"| {name} | {', '.join(map(str, shape))} | {label} | {value:,.0f} | {ratios} |", flush=True)


if __name__ == "__main__":
    main()
