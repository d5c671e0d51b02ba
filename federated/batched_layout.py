"""Where each word of a chunk's batches lies in the kernel's arrays.

Shape legend: C devices of a chunk, R rows, T steps, N positions, L labelled positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np

from federated.rows import DeviceRows


@dataclass(frozen=True)
class Chunk:
    """The rows of a chunk's devices one after the other.

    Attributes:
      tokens_RT: rows of each device's own input table (or of the vocabulary).
      targets_RT: vocabulary ids; 0 where nothing is to be predicted.
      lengths_R: targets of each row.
      first_C1: where each device's rows begin; the end is last.
    """

    tokens_RT: np.ndarray
    targets_RT: np.ndarray
    lengths_R: np.ndarray
    first_C1: np.ndarray

    @staticmethod
    def join(devices: Sequence[DeviceRows], tokens: Sequence[np.ndarray]) -> "Chunk":
        """``tokens``: of each device, with the numbers of its own table."""
        targets_RT = np.concatenate([device.targets_RT for device in devices])
        first_C1 = np.concatenate([[0], np.cumsum([len(device.targets_RT) for device in devices])])
        return Chunk(np.concatenate(tokens), targets_RT, np.count_nonzero(targets_RT, axis=1), first_C1)

    def batch(self, batches: Sequence[slice]) -> "Batch":
        """One step of the first devices."""
        start_C = np.array([rows.start for rows in batches]) + self.first_C1[: len(batches)]
        stop_C = np.minimum(start_C + [rows.stop - rows.start for rows in batches], self.first_C1[1 : len(batches) + 1])
        return Batch(*_lay_out(self.tokens_RT, self.targets_RT, self.lengths_R, start_C, stop_C))


@dataclass(frozen=True)
class Batch:
    """One step of the devices still training.

    Rows of a device are put in order of length, longest first (their order within a batch means
    nothing), so that the rows still going on at step t are the first ``sizes_T[t]`` ones.
    Position ``sum(sizes_T[:t]) + row`` is step t of a row.

    Attributes:
      tokens_CN: as in ``Chunk``; 0 where a device has no word.
      targets_CN: vocabulary ids; 0 where nothing is to be predicted.
      sizes_T: rows at each step, the most of any device.
      labelled_C: targets of each device.
    """

    tokens_CN: np.ndarray
    targets_CN: np.ndarray
    sizes_T: np.ndarray
    labelled_C: np.ndarray


@numba.njit(nogil=True, cache=True)
def _lay_out(tokens_RT, targets_RT, lengths_R, start_C, stop_C):
    longest = 1
    for device in range(len(start_C)):
        for row in range(start_C[device], stop_C[device]):
            longest = max(longest, lengths_R[row])
    sizes_T = np.zeros(longest, dtype=np.int64)
    sizes_T[:] = 1  # a step has a row even where nobody has a word
    own_T = np.empty(longest, dtype=np.int64)
    for device in range(len(start_C)):
        own_T[:] = 0
        for row in range(start_C[device], stop_C[device]):
            own_T[: lengths_R[row]] += 1
        sizes_T = np.maximum(sizes_T, own_T)
    starts_T = np.cumsum(sizes_T) - sizes_T
    tokens_CN = np.zeros((len(start_C), sizes_T.sum()), dtype=np.int64)
    targets_CN = np.zeros((len(start_C), sizes_T.sum()), dtype=np.int64)
    labelled_C = np.zeros(len(start_C), dtype=np.int64)
    for device in range(len(start_C)):
        rows = np.arange(start_C[device], stop_C[device])
        order = np.argsort(-lengths_R[start_C[device] : stop_C[device]], kind="mergesort")
        for rank in range(len(rows)):
            row = rows[order[rank]]
            length = lengths_R[row]
            labelled_C[device] += length
            for step in range(length):
                tokens_CN[device, starts_T[step] + rank] = tokens_RT[row, step]
                targets_CN[device, starts_T[step] + rank] = targets_RT[row, step]
    return tokens_CN, targets_CN, sizes_T, labelled_C
