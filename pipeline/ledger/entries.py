"""One entry of the privacy ledger, and what makes entries a chain."""

import hashlib
import json
from typing import Literal

from pydantic import BaseModel, ConfigDict

from pipeline.stage import Spend

GENESIS = "0" * 64


class Entry(BaseModel):
    """One line of the ledger."""

    model_config = ConfigDict(frozen=True, extra="forbid", from_attributes=True)

    seq: int
    kind: Literal["reserve", "commit"]
    population: str
    launch_id: str
    stage: str
    unit: str
    adjacency: str
    rho: float | None
    epsilon: float
    delta: float
    binding: str  # canonical JSON of digests that make a retry the same release
    note: str
    created_at: str
    prev_hash: str
    hash: str

    def expected_hash(self) -> str:
        """SHA-256 of the canonical JSON of everything but the hash itself."""
        # A tampered entry may hold a value of any type; it must hash to something else, not fail.
        content = self.model_dump(exclude={"hash"}, warnings=False)
        return hashlib.sha256(canonical(content).encode()).hexdigest()

    @property
    def spend(self) -> Spend:
        """The entry's amounts."""
        return Spend(
            unit=self.unit,
            adjacency=self.adjacency,
            rho=self.rho,
            epsilon=self.epsilon,
            delta=self.delta,
            note=self.note,
        )


def canonical(value: object) -> str:
    """JSON with one spelling: sorted keys, no blanks, shortest float that reads back equal."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def chain_problems(entries: list[Entry]) -> list[str]:
    """Where the chain is broken, in words."""
    found, previous = [], GENESIS
    for position, entry in enumerate(entries, start=1):
        name = f"entry {entry.seq} ({entry.kind} of {entry.launch_id}/{entry.stage})"
        if entry.seq != position:
            found.append(f"{name} stands at place {position}: an entry is missing or out of order")
        if entry.prev_hash != previous:
            found.append(f"{name} does not follow the entry before it")
        if entry.hash != entry.expected_hash():
            found.append(f"{name} is not what was written: its content does not match its hash")
        previous = entry.hash
    return found
