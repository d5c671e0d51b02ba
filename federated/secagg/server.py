"""Server side of a round of secure aggregation: it sees masked vectors, ciphertexts and shares.

Nothing here has access to an update, to a device's secrets or to the run's key.

Shape legend: N elements of a vector.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from federated.secagg.device import PublicKeys, RevealedShares, pair_seed, pair_sign
from federated.secagg.encode import low_bits
from federated.secagg.masks import combine_shares, word_of
from federated.workers.streams import add_mask


class Server:
    """One round: collect keys, pass messages on, add up masked vectors as they come, take the masks off.

    Guarantee: of a device whose vector was added, only its self mask is asked for; of one that was not,
    only the private key of its masks. Either alone leaves its vector hidden.

    Attributes:
      self_masks, private_keys: shares that survivors handed out, by number, of each device.
    """

    def __init__(self, order: int, bits: int, graph: Sequence[Sequence[int]], threshold: int, round_number: int):
        """``graph``: neighbours of each device; ``order``: N."""
        self.bits, self._graph = bits, graph
        self._threshold, self._round = threshold, round_number
        self._public: dict[int, PublicKeys] = {}
        self._mail: dict[int, dict[int, bytes]] = {index: {} for index in range(len(graph))}
        self._total_N = np.zeros(order, dtype=word_of(bits))
        self._added: set[int] = set()
        self._added_here: set[int] = set()
        self._closed = False
        self.self_masks: dict[int, dict[int, bytes]] = {index: {} for index in range(len(graph))}
        self.private_keys: dict[int, dict[int, bytes]] = {index: {} for index in range(len(graph))}

    @property
    def survivors(self) -> int:
        """Devices whose vectors are in the sum."""
        return len(self._added)

    def advertise(self, index: int, keys: PublicKeys) -> None:
        """Receive a device's public keys."""
        self._public[index] = keys

    def keys_for(self, index: int) -> dict[int, PublicKeys]:
        """Public keys of a device's neighbours."""
        return {other: self._public[other] for other in self._graph[index]}

    def post(self, sender: int, messages: Mapping[int, bytes]) -> None:
        """Take a device's encrypted shares, to be passed on to its neighbours."""
        for receiver, message in messages.items():
            self._mail[receiver][sender] = message

    def mail_for(self, index: int) -> dict[int, bytes]:
        """Encrypted shares for a device, by sender."""
        return self._mail[index]

    def add(self, index: int, masked_N: np.ndarray) -> None:
        """Add one device's masked vector to the running sum.

        Raises:
          ValueError: it has been added, or came after survivors were asked to open secrets.
        """
        if self._closed or index in self._added:
            raise ValueError(f"secagg: a vector of device {index} came twice or too late; it must not be added")
        self._added.add(index)
        self._added_here.add(index)
        self._total_N += masked_N

    def hear(self, index: int) -> None:
        """A device's vector was added, here or by another process of this server."""
        self._added.add(index)

    def question(self, index: int) -> tuple[frozenset[int], frozenset[int]]:
        """Neighbours of a device that are alive, and those that dropped. No vector is taken after this."""
        self._closed = True
        neighbours = frozenset(self._graph[index])
        return neighbours & self._added, neighbours - self._added

    def collect(self, index: int, opened: RevealedShares) -> None:
        """Take the shares that a surviving device opened."""
        for shares, answers in ((self.self_masks, opened.self_masks), (self.private_keys, opened.private_keys)):
            for owner, (number, share) in answers.items():
                shares[owner][number] = share

    def unmasked_sum(self) -> np.ndarray:
        """Sum of the vectors of all survivors modulo 2^bits.

        Of several processes each returns the sum of what it added, under masks that cancel between them.

        Raises:
          OSError: too few survivors answered; the round is lost.
          ArithmeticError: shares that do not fit a device's public key.
        """
        if not self._added:
            raise OSError("secure aggregation lost this round: no device stayed; run it again with others")
        total_N = self._total_N.copy()
        for index in sorted(self._added_here):
            add_mask(total_N, combine_shares(self.self_masks[index], self._threshold), -1)
        for index in sorted(set(range(len(self._graph))) - self._added):
            partners = [other for other in self._graph[index] if other in self._added_here]
            if partners:
                private = self._recovered(index)
                for other in partners:
                    seed = pair_seed(private, self._public[other].masks, self._round)
                    add_mask(total_N, seed, pair_sign(index, other))
        return self.reduced(total_N)

    def reduced(self, total_N: np.ndarray) -> np.ndarray:
        """Reduce a sum modulo 2^bits, in place."""
        total_N &= low_bits(self.bits)
        return total_N

    def _recovered(self, index: int) -> X25519PrivateKey:
        secret = combine_shares(self.private_keys[index], self._threshold)
        private = X25519PrivateKey.from_private_bytes(secret)
        if private.public_key().public_bytes_raw() != self._public[index].masks:
            raise ArithmeticError("secagg: recovered a private key that is not the device's; a share is wrong")
        return private
