"""The part of one device's text that one round trains on.

Shape legend: R rows, T steps (``sequence_words``).
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from federated.config.training import LocalTrainingConfig
from pretrain.model.keyboard_lm import sentence_rows
from pretrain.text.vocabulary import EOS, PAD, TokenStream

_OFFSET_STREAM = 0x6F6666736574  # "offset": apart from every other use of the launch's seed


@dataclass(frozen=True)
class DeviceRows:
    """Training rows of one device in the order typed.

    Attributes:
      inputs_RT: int32, ``PAD`` at the tails.
      targets_RT: int32, ``PAD`` for positions without a target.
    """

    inputs_RT: np.ndarray
    targets_RT: np.ndarray

    @property
    def words(self) -> int:
        """Number of target words, without sentence ends."""
        return int(_words_R(self.targets_RT).sum())

    def steps(self, batch_sentences: int, epochs: int) -> int:
        """SGD steps of one round; the last batch of an epoch may be short."""
        return epochs * -(-len(self.targets_RT) // batch_sentences)

    def batch(self, step: int, batch_sentences: int) -> slice:
        """Rows of one step; every epoch goes through them in the same order."""
        start = step % self.steps(batch_sentences, 1) * batch_sentences
        return slice(start, start + batch_sentences)


def rows_digest(devices: Iterable[DeviceRows]) -> np.ndarray:
    """A digest of several devices' rows as int64 ``[1]``: a sum modulo 2^64, independent of their order. Private."""
    total_1 = np.zeros(1, dtype=np.int64)
    for device in devices:
        content = hashlib.blake2b(repr(device.targets_RT.shape).encode(), digest_size=8)
        for array in (device.inputs_RT, device.targets_RT):
            content.update(np.ascontiguousarray(array, dtype="<i4").data)
        total_1 += np.frombuffer(content.digest(), dtype="<i8")
    return total_1


def round_offset(seed: int, round_number: int) -> float:
    """Start of every device in its text in this round, as a fraction in [0, 1).

    A function of (seed, round), so a retried round trains on the same words.
    """
    sequence = np.random.SeedSequence([_OFFSET_STREAM, seed, round_number])
    return float(np.random.Generator(np.random.Philox(sequence)).random())


def round_rows(
    devices: TokenStream, cohort: np.ndarray, local: LocalTrainingConfig, seed: int, round_number: int
) -> list[DeviceRows]:
    """Text of one round's devices, each from the same relative offset in its text."""
    return cohort_rows(devices, cohort, local, round_offset(seed, round_number))


def cohort_rows(stream: TokenStream, cohort: np.ndarray, local: LocalTrainingConfig, offset: float) -> list[DeviceRows]:
    """Rows of each device of a cohort, in the order given."""
    return [device_rows(stream.owner(device), local, offset) for device in cohort]


def device_rows(tokens_N: np.ndarray, local: LocalTrainingConfig, offset: float) -> DeviceRows:
    """Rows with at most ``local.max_words`` words (sentence ends not counted) of one device.

    A device with more text starts at the row at relative position ``offset``, and wraps around to its first row.
    Whole rows are used while they fit; a first row that does not fit is cut. Rows stay in this order.
    """
    inputs_RT, targets_RT = sentence_rows(tokens_N, local.sequence_words)
    words_R = _words_R(targets_RT)
    if words_R.sum() <= local.max_words:
        return DeviceRows(inputs_RT, targets_RT)
    order_R = np.roll(np.arange(len(words_R)), -int(offset * len(words_R)))
    fits = int(np.searchsorted(np.cumsum(words_R[order_R]), local.max_words, side="right"))
    order_R = order_R[: max(fits, 1)]
    inputs_RT, targets_RT = inputs_RT[order_R], targets_RT[order_R]
    if not fits:
        inputs_RT[:, local.max_words :] = PAD
        targets_RT[:, local.max_words :] = PAD
    return DeviceRows(inputs_RT, targets_RT)


def _words_R(targets_RT: np.ndarray) -> np.ndarray:
    return np.sum((targets_RT != PAD) & (targets_RT != EOS), axis=1)
