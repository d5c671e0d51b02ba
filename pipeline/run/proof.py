"""Proof of a launch for outsiders, in ``public/proof/``: a signed link of each stage, and a signed layout over them.

    STAGE.KEYID.link   in-toto link: digests of the public files that a stage opened and wrote, from its record
    root.layout        in-toto layout: the finished stages, and whose products each of them may open
    launch.pub         public key of both (PEM)

and that the launch's entries in the privacy ledger stand in its transparency log, which a witness cosigned:

    STAGE.RECEIPT.tlog-proof   an entry that the stage's record names, without its time, binding and note; its place in
                               the log's tree; and the checkpoint of the tree (C2SP: tlog-proof)
    log-keys.json              public keys of the log and of the witness, signed by the launch's key

``publication.provenance`` adds the published model's Statement and signature. ``in-toto-verify`` checks links and
layout without code of tacit; every file is a DSSE envelope that in-toto's library writes.

Two artifacts are content rather than files, as records hold their digests: ``launch/config`` is the launch file as
``config_digest`` reads it, and ``STAGE/result`` is what ``record_digest`` covers of ``result.json``.
"""

import json
from collections.abc import Container, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.ground import keys
from pipeline.ground.errors import PermanentError
from pipeline.ground.settings import Settings
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.log.note import SUFFIX
from pipeline.run.bookkeeping import CONTENT, PROCESSORS
from pipeline.run.public_fields import PROOF
from pipeline.run.run_dir import ABSENT, ERASED, GIVEN, RESULT, STATE, RunDir, StageRecord, record_digest, record_text
from pipeline.run.stage import Stage, Stages, concludes, imported
from pretrain.files import atomic, remove_leavings, text_sha256, write_bytes, write_text

if TYPE_CHECKING:
    from in_toto.models.layout import Layout
    from in_toto.models.link import Link
    from in_toto.models.metadata import Envelope
    from securesystemslib.signer import CryptoSigner, SSlibKey

FOLDER, LAYOUT, KEY, LOG_KEYS = "proof", "root.layout", "launch.pub", "log-keys.json"
_LOG_KEYS_TYPE = "application/vnd.tacit.log-keys+json"
CONFIG = "launch/config"
OUTCOME = "outcome.json"  # beside launch.json: what was decided about the published model
# All files of ``public/`` that are no stage's, by folder. They change after a launch has ended, and no link names them.
BESIDE: Mapping[str, frozenset[str]] = {
    "launch": frozenset({"launch.json", ERASED, OUTCOME, STATE}),
    "planning": frozenset({"frontier.png", "frontier.svg"}),
    FOLDER: frozenset({LAYOUT, KEY, LOG_KEYS, "provenance.json", "model.sig", "model.pub"}),
}
INSPECTION = "public"
_STATED = "result"  # beside ``result.json``, which also holds times and receipts
_NEVER = "9999-12-31T23:59:59Z"  # a layout states what happened, which does not expire
_ROLES: tuple[keys.Role, ...] = ("launch", "model")
_FIRST_OF_ID = 8  # characters of a key's id in the name of a link, as in-toto has them


def require_keys(settings: Settings) -> None:
    """Refuse an installation that could not sign a launch's proof, before the launch spends.

    Raises:
      KeyUnusable: a private key is missing or damaged.
    """
    for role in _ROLES:
        keys.signer(settings, role)


def add(run: RunDir, record: StageRecord, stages: Stages, settings: Settings) -> None:
    """Add a stage's link; with that of a concluding stage, the layout, the links and the receipts of all finished
    stages, and what the stage attests.

    Links are functions of records, so those that another machine or an older key signed are replaced. Receipts are
    proven anew, under the log's checkpoint of now.

    Raises:
      PermanentError: the ledger does not hold a receipt that a record names.
      LedgerTampered, ServiceUnavailable: the witness refuses the log, or does not answer.
    """
    folder, signer = run.public(FOLDER), keys.signer(settings, "launch")
    if not concludes(record.stage, stages):
        write_link(folder, record, signer)
        return
    records = {each.stage: each for each in run.records() if each.stage in stages} | {record.stage: record}
    remove_leavings(folder, below=False)  # of stages that were killed; no other stage runs beside this one
    written = {write_link(folder, each, signer) for each in records.values()}
    for old in folder.glob("*.link"):
        if old not in written:
            old.unlink()
    require_listed(KEY)
    write_bytes(folder / KEY, keys.pem(signer.public_key))
    _write(folder / LAYOUT, layout(records, stages, signer.public_key), signer)
    _add_receipts(run, records.values(), PrivacyLedger.of(settings), signer)
    if attests := stages[record.stage].attests:
        imported(attests)(run, settings, record)


def receipts(records: Iterable[StageRecord]) -> dict[str, str]:
    """Hashes of the ledger's entries that records name, by the files that prove them."""
    return {f"{record.stage}.{kind}{SUFFIX}": receipt for record in records for kind, receipt in record.ledger.items()}


def _add_receipts(run: RunDir, records: Iterable[StageRecord], ledger: PrivacyLedger, signer: "CryptoSigner") -> None:
    from in_toto.models.metadata import Envelope

    folder, wanted = run.public(FOLDER), receipts(records)
    proofs = ledger.inclusions(run.launch_id, frozenset(wanted.values()))
    for name, receipt in wanted.items():
        if receipt not in proofs:
            raise PermanentError(
                f"{run.launch_id}: the ledger holds no entry {receipt[:12]} of this launch, which a record names "
                f"({name}); restore result.json"
            )
        require_listed(name)
        write_text(folder / name, proofs[receipt].text)
    for old in folder.glob(f"*{SUFFIX}"):
        if old.name not in wanted:
            old.unlink()
    payload = json.dumps(ledger.verifier_keys(), sort_keys=True).encode()
    write_signed(folder / LOG_KEYS, Envelope(payload, _LOG_KEYS_TYPE, {}), signer)


def write_link(folder: Path, record: StageRecord, signer: "CryptoSigner") -> Path:
    """Write a stage's signed link, and return its path."""
    path = folder / link_name(record.stage, signer.public_key)
    _write(path, link(record), signer)
    return path


def _write(path: Path, content: "Link | Layout", signer: "CryptoSigner") -> None:
    from in_toto.models.metadata import Envelope

    write_signed(path, Envelope.from_signable(content), signer)


def write_signed(path: Path, envelope: "Envelope", signer: "CryptoSigner") -> None:
    """Sign an envelope, and write it as a file of the proof."""
    require_listed(path.name)
    envelope.create_signature(signer)
    with atomic(path) as temporary:
        envelope.dump(str(temporary))


def require_listed(name: str) -> None:
    """ValueError for a file of the proof that ``run.public_fields`` does not list."""
    if not any(fnmatchcase(name, pattern) for pattern in PROOF):
        raise ValueError(f"{FOLDER}/{name}: no source in pipeline/run/public_fields.py, so it may not leave")


def link_name(stage: str, key: "SSlibKey") -> str:
    """Name under which ``in-toto-verify`` looks for a stage's link."""
    return f"{stage}.{key.keyid[:_FIRST_OF_ID]}.link"


def link(record: StageRecord) -> "Link":
    """Link of a stage: its materials are its record's inputs, its products the record's outputs and the record."""
    from in_toto.models.link import Link

    materials = {CONFIG: record.config_digest}
    materials |= {_named(path): digest for path, digest in record.inputs.items() if digest != ABSENT}
    products = {f"{record.stage}/{name}": digest for name, digest in record.outputs.items()}
    products[f"{record.stage}/{RESULT}"] = text_sha256(record_text(record))
    products[f"{record.stage}/{_STATED}"] = record_digest(record)
    return Link(
        name=record.stage,
        materials={name: {"sha256": digest} for name, digest in materials.items()},
        products={name: {"sha256": digest} for name, digest in products.items()},
        command=_command(record),
        byproducts={},
        environment={},
    )


def _command(record: StageRecord) -> list[str]:
    return ["tacit", "stage", record.stage, record.launch_id]


def _named(path: str) -> str:
    """Artifact of an input: an input ``STAGE/result.json`` has the digest of what that record states."""
    stage, _, name = path.partition("/")
    return f"{stage}/{_STATED}" if name == RESULT else path


def layout(finished: Mapping[str, StageRecord], stages: Stages, key: "SSlibKey") -> "Layout":
    """Layout of the finished stages: the edges of the stage graph as rules.

    Guarantee: ``in-toto-verify`` fails if a stage opened anything but the launch file, products of the stages that it
    declares and, where it declares them, a person's files; if it wrote into another stage's folder; if two stages had
    different launch files; or if a file in ``public/`` is neither the one that its stage wrote nor named here.
    """
    from in_toto.models.layout import Inspection, Layout, Step

    steps = [stage for name, stage in stages.items() if name in finished]
    return Layout(
        keys={key.keyid: {"keyid": key.keyid, **key.to_dict()}},
        steps=[
            Step(
                name=stage.name,
                pubkeys=[key.keyid],
                threshold=1,
                expected_command=_command(finished[stage.name]),
                expected_materials=_materials(stage, finished, steps[0].name),
                expected_products=[["CREATE", f"{stage.name}/*"], ["DISALLOW", "*"]],
            )
            for stage in steps
        ],
        inspect=[
            Inspection(
                name=INSPECTION,
                run=["true"],
                expected_materials=[
                    *(_match(stage.name) for stage in steps),
                    *(["ALLOW", f"{name}/{hidden}"] for name in sorted(finished) for hidden in (CONTENT, PROCESSORS)),
                    *(["ALLOW", f"{folder}/{name}"] for folder, names in BESIDE.items() for name in sorted(names)),
                    *(["ALLOW", f"{FOLDER}/{link_name(name, key)}"] for name in sorted(finished)),
                    *(["ALLOW", f"{FOLDER}/{name}"] for name in sorted(receipts(finished.values()))),
                    # Evidence that failed may have left files, which no other stage opened.
                    *(["ALLOW", f"{name}/*"] for name in _failing(stages) if name not in finished),
                    ["DISALLOW", "*"],
                ],
                expected_products=[],
            )
        ],
        expires=_NEVER,
        readme="run in-toto-verify in the folder public/, whose files the inspection compares with the links",
    )


def _failing(stages: Stages) -> tuple[str, ...]:
    """Names of the stages without which a launch is held, and still reported."""
    return tuple(name for name in stages if any(name in stage.evidence for stage in stages.values()))


def _materials(stage: Stage, finished: Container[str], first: str) -> list[list[str]]:
    return [
        ["ALLOW", CONFIG] if stage.name == first else ["MATCH", CONFIG, "WITH", "MATERIALS", "FROM", first],
        *(_match(other) for other in stage.opens if other in finished),
        *([["ALLOW", f"{GIVEN}/*"]] if stage.asks_people else []),
        ["DISALLOW", "*"],
    ]


def _match(stage: str) -> list[str]:
    return ["MATCH", f"{stage}/*", "WITH", "PRODUCTS", "FROM", stage]
