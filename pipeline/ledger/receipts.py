"""Receipts of ledger entries, kept outside the database, so that a removed entry is detected.

An entry's receipt is its place in its chain and its hash, which covers every entry before it. Each is kept in the
public folder of its launch (``runs/<launch id>/public/launch/receipts.json``) or, for entries without a launch on this
machine, beside the launches (``runs/receipts.json``); MLflow has those of the last entries
(``pipeline.tracking.mlflow_tracker``).

Guarantee: a ledger that lacks an entry which any receipt names, or holds another one in its place, is refused before
any spend, decision, publication, rollback or approval (``PrivacyLedger``). Receipts are written after their
entry and never removed. An entry without one, as after a crash, is valid, and gets its receipt with the next write.
"""

import fcntl
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipeline.ground.errors import PermanentError
from pretrain.files import write_text

FILE = "receipts.json"
Chain = Literal["entry", "result"]
_Chains = dict[str, dict[str, str]]  # chain -> place in it -> hash


@dataclass(frozen=True)
class ChainEntry:
    """Entry of a chain at a place; ``launch_id`` is its launch, and may be empty or another name."""

    chain: Chain
    seq: int
    hash: str
    launch_id: str


@dataclass(frozen=True)
class Receipt:
    """Entry of a chain as of when its receipt was kept; ``kept_in`` names the receipt's place in messages."""

    chain: Chain
    seq: int
    hash: str
    kept_in: str


class Receipts:
    """Receipts on this machine.

    Args:
      root: the folder with a folder for each launch.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self) -> list[Receipt]:
        """Read all receipts.

        Raises:
          PermanentError: a file of receipts is damaged.
        """
        files = (self.root / FILE, *sorted(self.root.glob(f"*/public/launch/{FILE}")))
        return [receipt for path in files if path.is_file() for receipt in parsed(_text(path), str(path))]

    def keep(self, written: Iterable[ChainEntry]) -> None:
        """Write receipts, and keep the existing ones."""
        by_file: dict[Path, _Chains] = {}
        for each in written:
            of_launch = self.root / each.launch_id / "public" / "launch"
            folder = of_launch if each.launch_id and of_launch.is_dir() else self.root
            by_file.setdefault(folder / FILE, {}).setdefault(each.chain, {})[str(each.seq)] = each.hash
        if not by_file:
            return
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / ".receipts.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for path, chains in by_file.items():
                before = _chains(_text(path), str(path)) if path.is_file() else {}
                merged = {
                    chain: chains.get(chain, {}) | before.get(chain, {})
                    for chain in sorted(chains.keys() | before.keys())
                }
                write_text(path, json.dumps(merged, indent=1) + "\n")


def problems(receipts: Iterable[Receipt], written: Iterable[ChainEntry]) -> list[str]:
    """List receipts whose entry the ledger does not hold, as messages."""
    held = {(each.chain, each.seq): each.hash for each in written}
    last = {chain: max((seq for of, seq in held if of == chain), default=0) for chain in ("entry", "result")}
    return [
        f"{receipt.kept_in} holds the receipt of {receipt.chain} {receipt.seq} ({receipt.hash[:12]}), and the ledger "
        + (f"ends at {last[receipt.chain]}" if receipt.seq > last[receipt.chain] else "has another one there")
        for receipt in receipts
        if held.get((receipt.chain, receipt.seq)) != receipt.hash
    ]


def missing(receipts: Iterable[Receipt], written: Iterable[ChainEntry]) -> list[ChainEntry]:
    """List entries without a receipt."""
    places = {(receipt.chain, receipt.seq) for receipt in receipts}
    return [each for each in written if (each.chain, each.seq) not in places]


def heads(written: Iterable[ChainEntry]) -> str:
    """Receipts of the last entries of both chains, which cover all earlier ones, as text for MLflow."""
    last = {each.chain: each for each in sorted(written, key=lambda each: each.seq)}
    return json.dumps({chain: {str(each.seq): each.hash} for chain, each in sorted(last.items())})


def parsed(text: str, kept_in: str) -> Iterator[Receipt]:
    """Parse the receipts of a file, or of a text in MLflow.

    Raises:
      PermanentError: the text is damaged.
    """
    for chain, places in _chains(text, kept_in).items():
        for seq, digest in places.items():
            yield Receipt("entry" if chain == "entry" else "result", int(seq), digest, kept_in)


def _chains(text: str, kept_in: str) -> _Chains:
    try:
        content = json.loads(text)
        chains = {chain: dict(content[chain]) for chain in ("entry", "result") if chain in content}
        if content.keys() - chains.keys() or not all(
            seq.isdecimal() and isinstance(digest, str) for places in chains.values() for seq, digest in places.items()
        ):
            raise ValueError("not chains of places and hashes")
        return chains
    except (ValueError, TypeError, AttributeError) as error:
        raise PermanentError(
            f"{kept_in}: damaged, so its receipts of the privacy ledger cannot be read; restore it from a backup "
            f"({error})"
        ) from error


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def by_place(receipts: Mapping[str, str]) -> list[Receipt]:
    """Parse receipts from elsewhere, by the place that keeps them."""
    return [receipt for place, text in receipts.items() for receipt in parsed(text, place)]
