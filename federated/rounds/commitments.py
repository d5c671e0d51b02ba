"""Commitments to finished rounds: digests of cohort, released sum and model, as leaves of one Merkle tree.

Whoever holds the root can later choose rounds that must then be run again, bit by bit (``train.rerun``). Released sums
and models are accounted releases, so a digest of them tells nothing more; a cohort is private, so its digest is keyed.

Shape legend: T rounds, P parameters.
"""

import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pretrain.files import write_text
from pretrain.randomness.noise import subkey

_DIGEST = 32
FIELDS = ("cohort", "released", "model")


@dataclass(frozen=True)
class Commitment:
    """Leaf of one round, 32 bytes each.

    Attributes:
      cohort: HMAC-SHA256 of its devices under a key of the run.
      released: SHA-256 of what the server's optimiser was given, and of the released bits of adaptive clipping.
      model: SHA-256 of the model that devices are sent next, float32.
    """

    cohort: bytes
    released: bytes
    model: bytes

    def content(self, round_number: int) -> bytes:
        """Content of the leaf; a leaf is bound to its round."""
        return b"tacit round 1" + round_number.to_bytes(8, "big") + self.cohort + self.released + self.model


def commit(
    key: bytes, round_number: int, cohort: np.ndarray, released_P: np.ndarray, bits: float, weights_P: np.ndarray
) -> Commitment:
    """The commitment to a round.

    Args:
      key: of the run's noise.
      bits: released sum of the bits of adaptive clipping; 0 without.
      weights_P: of the model after the round.
    """
    devices = round_number.to_bytes(8, "big") + np.sort(cohort).astype("<i8").tobytes()
    released = hashlib.sha256(np.ascontiguousarray(released_P, dtype="<f8").data)
    released.update(np.array(bits, dtype="<f8").tobytes())
    return Commitment(
        hmac.digest(subkey(key, "cohort commitments"), devices, hashlib.sha256),
        released.digest(),
        model_digest(weights_P),
    )


def model_digest(weights_P: np.ndarray) -> bytes:
    """SHA-256 of a model's weights as devices get them."""
    with np.errstate(over="ignore"):  # of a model that diverges
        return hashlib.sha256(weights_P.astype("<f4").data).digest()


def write(commitments: Sequence[Commitment], path: Path) -> None:
    """Write the leaves as JSON, in hexadecimal digits, for anyone who is to compute the root."""
    rows = [{name: getattr(each, name).hex() for name in FIELDS} for each in commitments]
    write_text(path, json.dumps({"rounds": rows}) + "\n")


def read(path: Path) -> tuple[Commitment, ...]:
    """Read the leaves from JSON.

    Raises:
      ValueError: it holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        made = tuple(Commitment(*(bytes.fromhex(row[name]) for name in FIELDS)) for row in content["rounds"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path.name}: holds no commitments to rounds; restore it: {error}") from error
    return made


def save(commitments: Sequence[Commitment]) -> np.ndarray:
    """Write them as an array, uint8 ``[T, 96]``, for a checkpoint."""
    content = b"".join(each.cohort + each.released + each.model for each in commitments)
    return np.frombuffer(content, dtype=np.uint8).reshape(len(commitments), len(FIELDS) * _DIGEST)


def load(digests_TB: np.ndarray) -> tuple[Commitment, ...]:
    """Read them from an array."""
    cuts = range(0, len(FIELDS) * _DIGEST, _DIGEST)
    return tuple(Commitment(*(row[cut : cut + _DIGEST].tobytes() for cut in cuts)) for row in digests_TB)
