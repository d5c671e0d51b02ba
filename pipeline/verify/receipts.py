"""Verify from public files that a launch's entries in the privacy ledger stand in its witnessed log.

Guarantee: if ``logged`` passes, the log that the keys name has, for each receipt of a record, an entry of this launch
and stage that says what the record says (its spend, its launch file, the digest of its result), under a checkpoint that
the witness cosigned. Of entries that no record names it says nothing.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from federated.config.population import PopulationKey
from pipeline.ledger.entries import WITNESS, Leaf, Spend
from pipeline.ledger.log import note, witness
from pipeline.ledger.log.note import Inclusion, Signed
from pipeline.ledger.outside import is_successor
from pipeline.run.proof import LOG_KEYS, receipts
from pipeline.run.run_dir import StageRecord, receipt_digest
from pipeline.verify.check import Check, in_words


def logged(
    folder: Path, records: Mapping[str, StageRecord], population: PopulationKey, keys: Mapping[str, Sequence[Any]]
) -> Check:
    """Check the proof of each receipt.

    Args:
      folder: the launch's proof.
      keys: verifier keys of the ``log`` and of its ``witness``, and the witness' ``rotations``.

    Raises:
      ValueError: a verifier key is damaged.
    """
    checkpoints, named, count, wrong = set[Signed](), set[str](), 0, list[str]()
    for record in records.values():
        spent = () if record.result.get("spend") is None else ("reserve", "commit")
        wrong += [f"{record.stage} names no {kind}" for kind in (*spent, "result") if kind not in record.ledger]
        for (name, receipt), kind in zip(receipts([record]).items(), record.ledger, strict=True):
            try:
                found = Inclusion.parsed((folder / name).read_text(encoding="utf-8"))
            except (OSError, ValueError):
                wrong.append(f"{name} is lost or damaged")
                continue
            fault = _fault(found, receipt) or _contradiction(found, kind, record, population)
            wrong += [f"{name} {fault}"] if fault else []
            checkpoints.add(found.signed)
            named.add(json.loads(found.extra).get(WITNESS, ""))
            count += 1
    of_witness = [key for _, key in map(note.parsed_key, keys["witness"])]
    for first in sorted(named - {""}):
        of_witness = [key for key in of_witness if is_successor(key.hex(), first, keys["rotations"])]
        if not of_witness:
            wrong.append(f"the population was registered with the witness {first[:16]}, of which {LOG_KEYS} has no key")
    wrong += [fault for each in checkpoints for fault in _unwitnessed(each, keys["log"], of_witness)]
    detail = in_words(wrong) or (
        f"{count} entries of the launch stand in a log that the witness {' '.join(keys['witness'])} cosigned"
    )
    return Check(id="proof:log", passed=not wrong, detail=detail)


def _fault(found: Inclusion, receipt: str) -> str:
    """Reason why a proof is not that of a receipt; empty if it is."""
    if hashlib.sha256(found.extra).hexdigest() != receipt:
        return "is not the entry that the record names"
    leaf = Leaf(json.loads(found.extra)["seq"], receipt)
    return "" if found.holds(leaf.content) else "is not in the tree of its checkpoint"


def _contradiction(found: Inclusion, kind: str, record: StageRecord, population: PopulationKey) -> str:
    """Reason why an entry says something else than a record; empty if it says the same."""
    says: dict[str, object] = {"launch_id": record.launch_id, "stage": record.stage}
    if kind == "result":
        says["digest"] = receipt_digest(record)
    else:
        says["population"] = population
    if kind in ("reserve", "commit"):
        says["config"] = record.config_digest
    if kind == "commit":
        says |= Spend.model_validate(record.result["spend"]).model_dump(exclude={"note"})
    shown = json.loads(found.extra)
    same = shown["kind"].partition(" ")[0] == kind
    wrong = [name for name, value in says.items() if shown.get(name) != value]
    return "" if same and not wrong else f"says another {in_words(wrong or ['kind'])} than the record"


def _unwitnessed(signed: Signed, of_log: Iterable[str], of_witness: Collection[bytes]) -> Iterator[str]:
    head = signed.checkpoint
    if not signed.is_signed_by(key for name, key in map(note.parsed_key, of_log) if name == head.origin):
        yield f"the checkpoint of {head.size} leaves is not signed by a key of the log in {LOG_KEYS}"
    if signed.cosigned_at(witness.NAME, of_witness) is None:
        yield f"the checkpoint of {head.size} leaves is not cosigned by a key of the witness in {LOG_KEYS}"
