"""Device side of a round of secure aggregation (Bonawitz et al. 2017, figure 4; Bell et al. 2020).

Two key pairs, because the private key of the masks may become known to the server if the device drops
out, and that must not open the channels its shares travel on. The server is taken to be honest but
curious: there is no public-key infrastructure and no signed list of survivors (their protocol for an
active server).

Shape legend: N elements of a vector.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from federated.secagg.encode import low_bits
from federated.secagg.masks import split_secret
from federated.workers.streams import add_mask
from pretrain.randomness import noise

_NUMBER_BYTES = 4
_SECRET_BYTES = 32
# Every channel key encrypts one message.
_NONCE = bytes(12)


@dataclass(frozen=True)
class PublicKeys:
    """X25519 keys as 32 bytes each: for the channel of shares, and for the masks."""

    channel: bytes
    masks: bytes


@dataclass(frozen=True)
class Share:
    """One neighbour's part of a device's two secrets."""

    number: int
    self_mask: bytes
    private_key: bytes


@dataclass(frozen=True)
class RevealedShares:
    """Shares that a survivor reveals to the server: (number, share) by the device whose secret it is part of."""

    self_masks: Mapping[int, tuple[int, bytes]]
    private_keys: Mapping[int, tuple[int, bytes]]


class Device:
    """One device in one round: advertise keys, share secrets, send a masked vector, open what is asked for.

    Guarantee: under the Diffie-Hellman assumption of X25519 and AES as a pseudo-random function, what
    ``masked`` returns is uniform to anyone who lacks either its self mask or the masks of one
    neighbour, and of these two secrets ``open`` hands out a share of one, once.
    """

    def __init__(self, index: int, round_number: int, bits: int, threshold: int, key: bytes):
        """``key``: 32 secret bytes of this device; every round gets secrets of its own from it."""

        def secret(purpose: str) -> bytes:
            return noise.subkey(key, f"secagg {purpose}|{round_number}")

        self.index = index
        self.rounding_key = secret("rounding")
        self._round, self._bits, self._threshold = round_number, bits, threshold
        self._channel = X25519PrivateKey.from_private_bytes(secret("channel"))
        self._masks = X25519PrivateKey.from_private_bytes(secret("masks"))
        self._self_mask = secret("self mask")
        self._neighbours: Mapping[int, PublicKeys] = {}
        self._held: dict[int, Share] = {}
        self._opened = False

    def advertise(self) -> PublicKeys:
        """Round 0: this device's public keys, for its channels and for its masks."""
        return PublicKeys(
            self._channel.public_key().public_bytes_raw(),
            self._masks.public_key().public_bytes_raw(),
        )

    def share(self, neighbours: Mapping[int, PublicKeys]) -> dict[int, bytes]:
        """Round 1: for each neighbour its shares of the self mask and of the masks' private key, encrypted."""
        self._neighbours = dict(sorted(neighbours.items()))
        secrets = (self._self_mask, self._masks.private_bytes_raw())
        parts = [split_secret(secret, self._threshold, len(neighbours)) for secret in secrets]
        messages = {}
        for number, (other, *two) in enumerate(zip(self._neighbours, *parts, strict=True), start=1):
            plain = number.to_bytes(_NUMBER_BYTES, "big") + b"".join(two)
            messages[other] = self._cipher(self.index, other).encrypt(_NONCE, plain, None)
        return messages

    def receive(self, sender: int, message: bytes) -> None:
        """Keep a neighbour's share.

        Raises:
          cryptography.exceptions.InvalidTag: somebody changed the message.
        """
        plain = self._cipher(sender, self.index).decrypt(_NONCE, message, None)
        number, both = int.from_bytes(plain[:_NUMBER_BYTES], "big"), plain[_NUMBER_BYTES:]
        self._held[sender] = Share(number, both[:_SECRET_BYTES], both[_SECRET_BYTES:])

    def masked(self, vector_N: np.ndarray) -> np.ndarray:
        """Round 2: ``x_u + PRG(b_u) + sum_{v > u} PRG(s_uv) - sum_{v < u} PRG(s_uv)`` modulo 2^bits.

        Args:
          vector_N: unsigned, of the type and range that ``encode`` returns.
        """
        masked_N = vector_N.copy()
        add_mask(masked_N, self._self_mask, 1)
        for other, keys in self._neighbours.items():
            add_mask(masked_N, pair_seed(self._masks, keys.masks, self._round), pair_sign(self.index, other))
        masked_N &= low_bits(self._bits)
        return masked_N

    def open(self, alive: frozenset[int], dropped: frozenset[int]) -> RevealedShares:
        """Round 3: shares of the self masks of those alive, and of the private keys of those that dropped.

        Raises:
          ValueError: a server that asks for both secrets of a device, or asks again.
        """
        if self._opened or alive & dropped:
            raise ValueError("secagg: the server asked for both secrets of a device; no device answers that")
        self._opened = True
        return RevealedShares(
            {other: (self._held[other].number, self._held[other].self_mask) for other in alive},
            {other: (self._held[other].number, self._held[other].private_key) for other in dropped},
        )

    def _cipher(self, sender: int, receiver: int) -> ChaCha20Poly1305:
        other = receiver if sender == self.index else sender
        secret = self._channel.exchange(X25519PublicKey.from_public_bytes(self._neighbours[other].channel))
        return ChaCha20Poly1305(noise.subkey(secret, f"secagg channel|{self._round}|{sender}|{receiver}"))


def pair_seed(private: X25519PrivateKey, public: bytes, round_number: int) -> bytes:
    """The seed of the masks between two devices; both sides, and nobody else, can compute it."""
    secret = private.exchange(X25519PublicKey.from_public_bytes(public))
    return noise.subkey(secret, f"secagg pair|{round_number}")


def pair_sign(index: int, other: int) -> int:
    """One of the two adds the mask, the other subtracts it."""
    return 1 if index < other else -1
