"""``KeyboardLM``: a next-word model of one recurrent layer, Gboard's CIFG-LSTM.

Shape legend: B rows, T steps, V vocabulary, E embedding and projection, H hidden, G gates.

Layer and recurrent projection follow Xu et al. 2023, section 1 (670 hidden units, embedding and projection 96); the
cell's own equations are in ``cells``.
"""

import copy
import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from pretrain.cells.cell import Cell
from pretrain.cells.cifg import CIFG
from pretrain.config import ModelConfig
from pretrain.text.batches import find_rows

State = tuple[Tensor, Tensor]


class KeyboardLM(nn.Module):
    """Next-word logits from words.

    Parameters: ``embedding [V, E]``, ``gates_x [E, G]``, ``gates_r [E, G]``, ``gates_b [G]``,
    ``projection [H, E]``, ``output [V, E]`` unless tied, ``output_bias [V]``.
    """

    def __init__(
        self, vocabulary_size: int, embedding_dim: int, hidden_dim: int, *, tied: bool, cell: Cell = CIFG
    ) -> None:
        super().__init__()
        self.cell = cell
        self.vocabulary_size, self.embedding_dim, self.hidden_dim, self.tied = (
            vocabulary_size,
            embedding_dim,
            hidden_dim,
            tied,
        )

        def uniform(*shape: int, fan: int) -> nn.Parameter:
            bound = 1 / math.sqrt(fan)
            return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound))

        self.embedding = uniform(vocabulary_size, embedding_dim, fan=embedding_dim)
        self.gates_x = uniform(embedding_dim, cell.gates * hidden_dim, fan=embedding_dim)
        self.gates_r = uniform(embedding_dim, cell.gates * hidden_dim, fan=embedding_dim)
        self.gates_b = nn.Parameter(cell.start_bias(hidden_dim))
        self.projection = uniform(hidden_dim, embedding_dim, fan=hidden_dim)
        if not tied:
            self.output = uniform(vocabulary_size, embedding_dim, fan=embedding_dim)
        self.output_bias = nn.Parameter(torch.zeros(vocabulary_size))

    @property
    def output_VE(self) -> Tensor:
        """Output embedding; the input embedding itself if tied."""
        return self.embedding if self.tied else self.output

    def initial_state(self, rows: int) -> State:
        """Zero cell ``[B, H]`` and zero recurrent output ``[B, E]``."""
        return self.embedding.new_zeros(rows, self.hidden_dim), self.embedding.new_zeros(rows, self.embedding_dim)

    def recur(self, inputs_BG: Tensor, state: State) -> State:
        """State after one step, from the gates' inputs but for those of the recurrent output."""
        cell_BH, out_BE = state
        gated_BH, cell_BH = self.cell.step(inputs_BG + out_BE @ self.gates_r, cell_BH)
        return cell_BH, gated_BH @ self.projection

    def features(self, tokens_BT: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Recurrent outputs ``[B, T, E]`` before the output layer, and the last state."""
        state = state if state is not None else self.initial_state(tokens_BT.shape[0])
        inputs_BTG = functional.embedding(tokens_BT, self.embedding) @ self.gates_x + self.gates_b
        outputs = []
        for inputs_BG in inputs_BTG.unbind(1):
            state = self.recur(inputs_BG, state)
            outputs.append(state[1])
        return torch.stack(outputs, dim=1), state

    def forward(self, tokens_BT: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Logits ``[B, T, V]`` for the word after each position, and the last state."""
        features_BTE, state = self.features(tokens_BT, state)
        return features_BTE @ self.output_VE.T + self.output_bias, state


def build_model(config: ModelConfig, vocabulary_size: int, seed: int) -> KeyboardLM:
    """A fresh model whose weights are a function of the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return KeyboardLM(vocabulary_size, config.embedding_dim, config.hidden_dim, tied=config.tied)


def require_device(device: str) -> None:
    """OSError if ``runtime.device`` is not there."""
    if device == "cuda" and not torch.cuda.is_available():
        raise OSError("runtime.device: 'cuda', but no GPU is visible here; run on a GPU worker or set 'cpu'")


def placed(model: KeyboardLM, device: str) -> KeyboardLM:
    """A model on ``runtime.device``; itself if it is there, otherwise a copy.

    Raises:
      OSError: a GPU is asked for where there is none.
    """
    require_device(device)
    return model if model.embedding.device.type == device else copy.deepcopy(model).to(device)


def parameter_count(model: nn.Module) -> int:
    """Numbers in the model; a tied matrix counts once."""
    return sum(parameter.numel() for parameter in model.parameters())


def sentence_rows(tokens_N: np.ndarray, sequence_words: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut one owner's sentences into padded training rows.

    A sentence ``w1 .. wn <eos>`` gives inputs ``<bos> w1 .. wn`` and targets ``w1 .. wn <eos>``;
    one longer than ``sequence_words`` continues in the next row, which starts from a zero state
    with the true previous word as input. Nothing crosses a sentence or an owner.

    Returns:
      ``inputs_RT, targets_RT``: int32 ``[rows, sequence_words]``, ``PAD`` at the tails.
    """
    rows = find_rows(tokens_N, sequence_words)
    return rows.cut(np.arange(len(rows)), sequence_words)
