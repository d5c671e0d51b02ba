"""Memory layout of the training kernel: the place of each word of a chunk's batches in its arrays.

Shape legend: C devices of a chunk, R rows, T steps of a row, N positions, K steps of SGD, U distinct words of
a device.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
import torch
from torch import Tensor

from federated.config.training import LocalTrainingConfig
from federated.local_training.rows import DeviceRows
from pretrain.text.vocabulary import PAD, UNK


@dataclass(frozen=True)
class Chunk:
    """The rows of a chunk's devices one after the other.

    Attributes:
      tokens_RT: rows of each device's own input table (or of the vocabulary).
      targets_RT: vocabulary ids; 0 where the loss counts nothing.
      lengths_R: steps of each row up to its last target.
      first_C1: offset of each device's rows; the end is last.
    """

    tokens_RT: np.ndarray
    targets_RT: np.ndarray
    lengths_R: np.ndarray
    first_C1: np.ndarray

    @staticmethod
    def join(devices: Sequence[DeviceRows], tokens: Sequence[np.ndarray], local: LocalTrainingConfig) -> "Chunk":
        """``tokens``: of each device, with the numbers of its own table."""
        targets_RT = _counted(np.concatenate([device.targets_RT for device in devices]), local)
        lengths_R = np.max((targets_RT != 0) * np.arange(1, targets_RT.shape[1] + 1), axis=1, initial=0)
        first_C1 = np.concatenate([[0], np.cumsum([len(device.targets_RT) for device in devices])])
        return Chunk(np.concatenate(tokens), targets_RT, lengths_R, first_C1)

    def batch(self, batches: Sequence[slice]) -> "Batch":
        """Lay out one batch of each of the first devices."""
        start_C = np.array([rows.start for rows in batches]) + self.first_C1[: len(batches)]
        stop_C = np.minimum(start_C + [rows.stop - rows.start for rows in batches], self.first_C1[1 : len(batches) + 1])
        return Batch(*_lay_out(self.tokens_RT, self.targets_RT, self.lengths_R, start_C, stop_C))


@dataclass(frozen=True)
class Batch:
    """One step of the devices still training.

    Rows of a device are sorted by length, longest first (their order within a batch is irrelevant),
    so that the unfinished rows at step t are the first ``sizes_T[t]`` ones.
    Position ``sum(sizes_T[:t]) + row`` is step t of a row.

    Attributes:
      tokens_CN: as in ``Chunk``; 0 where a device has no word.
      targets_CN: vocabulary ids; 0 where the loss counts nothing.
      sizes_T: rows at each step, the most of any device.
    """

    tokens_CN: np.ndarray
    targets_CN: np.ndarray
    sizes_T: np.ndarray


@numba.njit(nogil=True, cache=True)
def _lay_out(
    tokens_RT: np.ndarray, targets_RT: np.ndarray, lengths_R: np.ndarray, start_C: np.ndarray, stop_C: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    longest = 1
    for device in range(len(start_C)):
        for row in range(start_C[device], stop_C[device]):
            longest = max(longest, lengths_R[row])
    sizes_T = np.zeros(longest, dtype=np.int64)
    sizes_T[:] = 1  # a step has at least one row
    own_T = np.empty(longest, dtype=np.int64)
    for device in range(len(start_C)):
        own_T[:] = 0
        for row in range(start_C[device], stop_C[device]):
            own_T[: lengths_R[row]] += 1
        sizes_T = np.maximum(sizes_T, own_T)
    starts_T = np.cumsum(sizes_T) - sizes_T
    tokens_CN = np.zeros((len(start_C), sizes_T.sum()), dtype=np.int64)
    targets_CN = np.zeros((len(start_C), sizes_T.sum()), dtype=np.int64)
    for device in range(len(start_C)):
        rows = np.arange(start_C[device], stop_C[device])
        order = np.argsort(-lengths_R[start_C[device] : stop_C[device]], kind="mergesort")
        for rank in range(len(rows)):
            row = rows[order[rank]]
            for step in range(lengths_R[row]):
                tokens_CN[device, starts_T[step] + rank] = tokens_RT[row, step]
                targets_CN[device, starts_T[step] + rank] = targets_RT[row, step]
    return tokens_CN, targets_CN, sizes_T


@dataclass(frozen=True)
class Steps:
    """All steps of SGD of a chunk in one shape: B rows of T words each, position ``t * B + row``.

    Attributes:
      tokens_KCN: rows of each device's own input table (or of the vocabulary); 0 where a device has no word.
      targets_KCN: vocabulary ids; 0 where the loss counts nothing.
      active_K: number of devices that train in each step; they are the first ones.
    """

    tokens_KCN: np.ndarray
    targets_KCN: np.ndarray
    active_K: np.ndarray

    @staticmethod
    def lay_out(
        devices: Sequence[DeviceRows], tokens: Sequence[np.ndarray], local: LocalTrainingConfig, time_steps: int
    ) -> "Steps":
        """Lay out devices with the most steps first; ``tokens`` as for ``Chunk.join``."""
        batch = local.batch_sentences
        steps_C = np.array([device.steps(batch, local.epochs) for device in devices])
        laid = np.zeros((2, steps_C[0], len(devices), time_steps * batch), dtype=np.int64)
        for number, (device, own_RT) in enumerate(zip(devices, tokens, strict=True)):
            rows_RT = np.zeros((2, device.steps(batch, 1) * batch, time_steps), dtype=np.int64)
            rows_RT[:, : len(own_RT), : own_RT.shape[1]] = own_RT, _counted(device.targets_RT, local)
            # The tail of a shorter row holds arbitrary words of the table; without targets they have no gradient.
            once = rows_RT.reshape(2, -1, batch, time_steps).swapaxes(2, 3).reshape(2, -1, time_steps * batch)
            laid[:, : steps_C[number], number] = np.tile(once, (1, local.epochs, 1))
        active_K = np.sum(steps_C[None] > np.arange(steps_C[0])[:, None], axis=1)
        return Steps(laid[0], laid[1], active_K)


def _counted(targets_RT: np.ndarray, local: LocalTrainingConfig) -> np.ndarray:
    """Targets that the loss counts, ``PAD`` in place of the others."""
    return np.where(targets_RT > UNK, targets_RT, PAD) if local.loss else targets_RT


def padded(ids: Sequence[np.ndarray], longest: int, place: torch.device) -> Tensor:
    """Ids of each device, ``[C, longest]``; ``PAD`` beyond them."""
    padded_CU = np.full((len(ids), longest), PAD)
    for row_U, words_U in zip(padded_CU, ids, strict=True):
        row_U[: len(words_U)] = words_U
    return torch.from_numpy(padded_CU).long().to(place)
