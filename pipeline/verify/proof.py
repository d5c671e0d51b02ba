"""Verify a launch's proof: signatures, links that match the records, the stage graph's layout, the receipts of the
privacy ledger in its witnessed log, and the model's own.

Needs public files alone. The same follows from ``in-toto-verify`` and ``model_signing verify``, which are not tacit's.
"""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pipeline.launch.config import LaunchConfig
from pipeline.publication.provenance import MODEL_KEY, SIGNATURE, STATEMENT, statement
from pipeline.run import proof
from pipeline.run.proof import FOLDER, KEY, LAYOUT, LOG_KEYS
from pipeline.run.run_dir import RunDir, StageRecord
from pipeline.stages.graph import STAGES
from pipeline.verify import receipts
from pipeline.verify.check import Check, in_words, strict_json
from pretrain.files import sha256

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey


def proven(
    config: LaunchConfig, run: RunDir, records: Mapping[str, StageRecord], trusted: str | None = None
) -> Iterator[Check]:
    """Check every file of the proof; nothing for a launch that its gates have not decided.

    Args:
      trusted: SHA-256 of the ``launch.pub`` that the reader trusts; None: the reader compares.
    """
    if "decide" not in records:
        return
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from securesystemslib.signer import SSlibKey

    path = run.path / "public" / FOLDER / KEY
    yield _fingerprint(sha256(path), trusted)
    key = SSlibKey.from_crypto(load_pem_public_key(path.read_bytes()))
    yield _names(run, records, key)
    yield _chain(run, records, key)
    yield _receipts(config, run, records, key)
    if "publish" in records and records["publish"].result["published"]:
        yield _statement(config, run, records["publish"], key)
        yield _model(run)


def _fingerprint(found: str, trusted: str | None) -> Check:
    if trusted is None:
        detail = f"the rest is signed by the key with SHA-256 {found}; compare it with the one that its owner publishes"
        return Check(id="proof:key", passed=True, detail=detail)
    same = trusted.lower() == found
    detail = f"SHA-256 {found}, " + ("the trusted one" if same else f"and the trusted one has {trusted}")
    return Check(id="proof:key", passed=same, detail=detail)


def _names(run: RunDir, records: Mapping[str, StageRecord], key: "SSlibKey") -> Check:
    folder = run.path / "public" / FOLDER
    expected = {KEY, LAYOUT, LOG_KEYS, *(proof.link_name(stage, key) for stage in records)}
    expected |= proof.receipts(records.values()).keys()
    if "publish" in records and records["publish"].result["published"]:
        expected |= {STATEMENT, SIGNATURE, MODEL_KEY}
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    wrong = [f"{name} is lost" for name in sorted(expected - present)]
    wrong += [f"{name} was added" for name in sorted(present - expected)]
    return Check(id="proof:files", passed=not wrong, detail=in_words(wrong) or f"{len(expected)} files")


def _chain(run: RunDir, records: Mapping[str, StageRecord], key: "SSlibKey") -> Check:
    """Check links against the records, the layout against the stage graph, and both together as in-toto does."""
    from in_toto.exceptions import RuleVerificationError
    from in_toto.models.metadata import Envelope
    from in_toto.verifylib import verify_all_item_rules

    links = {name: proof.link(record) for name, record in records.items()}
    rules = proof.layout(records, STAGES, key)
    expected = {proof.link_name(name, key): link for name, link in links.items()} | {LAYOUT: rules}
    wrong = []
    for name, content in expected.items():
        if (signed := _signed(run, name, key)) is None:
            wrong.append(f"{name} is not signed by {KEY}")
        elif signed != json.loads(Envelope.from_signable(content).payload):
            wrong.append(f"{name} does not follow from the records and the stage graph")
    try:
        verify_all_item_rules(rules.steps, links)
    except RuleVerificationError as error:
        wrong.append(str(error).partition("\n")[0])
    detail = in_words(wrong) or f"{len(links)} stages opened only products of those that the stage graph names"
    return Check(id="proof:links", passed=not wrong, detail=detail)


def _receipts(config: LaunchConfig, run: RunDir, records: Mapping[str, StageRecord], key: "SSlibKey") -> Check:
    named = _signed(run, LOG_KEYS, key)
    if named is None:
        return Check(id="proof:log", passed=False, detail=f"{LOG_KEYS} is not signed by {KEY}")
    return receipts.logged(run.path / "public" / FOLDER, records, config.population, named)


def _statement(config: LaunchConfig, run: RunDir, record: StageRecord, key: "SSlibKey") -> Check:
    signed = _signed(run, STATEMENT, key)
    if signed is None:
        return Check(id="proof:statement", passed=False, detail=f"{STATEMENT} is not signed by {KEY}")
    same = signed == statement(config, run, record)
    detail = f"names the {len(signed.get('subject', ()))} files of the bundle, their code, environments and inputs"
    wrong = f"{STATEMENT} does not follow from the launch's public files"
    return Check(id="proof:statement", passed=same, detail=detail if same else wrong)


def _model(run: RunDir) -> Check:
    from model_signing.verifying import Config

    public = run.path / "public"
    folder, bundle = public / FOLDER, public / "publish" / "bundle"
    try:
        Config().use_elliptic_key_verifier(public_key=folder / MODEL_KEY).verify(bundle, folder / SIGNATURE)
    except Exception as error:  # noqa: BLE001 - the library raises what its parsers do
        return Check(id="proof:model", passed=False, detail=f"{SIGNATURE} does not verify: {error}")
    return Check(id="proof:model", passed=True, detail="the bundle, its disclosure included, is as signed")


def _signed(run: RunDir, name: str, key: "SSlibKey") -> dict[str, Any] | None:
    """Payload of a file of the proof; None if it is unreadable, or the key has not signed it."""
    from in_toto.models.metadata import Envelope
    from securesystemslib.exceptions import VerificationError

    try:
        content = strict_json((run.path / "public" / FOLDER / name).read_bytes())
        envelope: Envelope = Envelope.from_dict(content)
        envelope.verify([key], threshold=1)
        return strict_json(envelope.payload)
    except (OSError, ValueError, KeyError, TypeError, VerificationError):
        return None
