"""Withdrawn devices, known by keyed hashes of their ids: every reader of text leaves them out."""

import hashlib
import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from federated.config.population import PopulationKey
from federated.devices.ids import normal_form

if TYPE_CHECKING:
    import pyarrow as pa

HASH_BYTES = 16


@dataclass(frozen=True)
class Withdrawals:
    """The devices of one population that are left out. Private, as is the key.

    Guarantee: it holds no id. With the key, only membership of a known id can be tested.

    Attributes:
      key: of the hashes, as hex digits.
      hashes: of the normal forms of ids (``ids.normal_form``), as hex digits.
      case_sensitive_ids: of the population's registration.
    """

    key: str
    hashes: frozenset[str]
    case_sensitive_ids: bool = False

    def hashed(self, device_id: str) -> str:
        """The keyed hash of an id's normal form, as hex digits."""
        content = normal_form(device_id, case_sensitive=self.case_sensitive_ids).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(content, digest_size=HASH_BYTES, key=bytes.fromhex(self.key)).hexdigest()

    def has(self, device_id: str) -> bool:
        """True if the person of a device withdrew."""
        return bool(self.hashes) and self.hashed(device_id) in self.hashes

    def any_of(self, device_ids: Iterable[str]) -> bool:
        """True if the person of any of these devices withdrew."""
        return bool(self.hashes) and any(map(self.has, device_ids))

    def without(self, devices: Iterable[tuple[str, Iterable[str]]]) -> Iterator[tuple[str, Iterable[str]]]:
        """Devices with their texts, without the withdrawn ones."""
        return (device for device in devices if not self.has(device[0]))

    def staying(self, device_ids: "pa.Array") -> "pa.Array | None":
        """Mask of the rows of devices that did not withdraw; None if that is all rows."""
        if not self.hashes:
            return None
        import pyarrow as pa  # Slow to import, and most populations have no withdrawals.
        import pyarrow.compute as pc

        gone = [device for device in pc.unique(device_ids).to_pylist() if device is not None and self.has(device)]
        if not gone:
            return None
        return pc.invert(pc.is_in(device_ids, value_set=pa.array(gone, device_ids.type)))

    @property
    def digest(self) -> str:
        """SHA-256 of the hashes; empty if no device withdrew."""
        return hashlib.sha256(" ".join(sorted(self.hashes)).encode()).hexdigest() if self.hashes else ""


NOBODY = Withdrawals("", frozenset())


def withdrawal_key(population: PopulationKey, secret: bytes) -> str:
    """Key of a population's withdrawn devices, from its key and the secret of its registration."""
    return hmac.digest(secret, f"tacit withdrawn {population}".encode(), hashlib.sha256).hex()
