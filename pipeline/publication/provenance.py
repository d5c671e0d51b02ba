"""Proof of a published model: an SLSA provenance Statement, and an OpenSSF signature over its bundle.

    provenance.json   in-toto Statement v1 with predicate SLSA provenance v1, in a DSSE envelope of the launch key
    model.sig         OpenSSF model signature over ``publish/bundle``, the disclosure among its files
    model.pub         public key of that signature (PEM); the Statement has the digests of both

model-signing 1.1.1 signs with ECDSA and certificates alone, so the model has a key of its own, on P-256. The Statement
is signed by the launch key, so that whoever checks a launch compares one fingerprint.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.ground import keys
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, digested, load_kept_launch
from pipeline.run.proof import CONFIG, FOLDER, link, require_listed, write_signed
from pipeline.run.run_dir import RunDir, StageRecord
from pretrain.files import PRIVATE, atomic, scratch, sha256, text_sha256, write_bytes
from reports.disclosure.document import Disclosure

PREDICATE = "https://slsa.dev/provenance/v1"
STATEMENT, SIGNATURE, MODEL_KEY = "provenance.json", "model.sig", "model.pub"
# Names of this kind of build and of who builds, not addresses.
_BUILD = "https://tacit.invalid/launch/v1"
_BUILDER = "https://tacit.invalid/runner/v1"


def attest(run: RunDir, settings: Settings, record: StageRecord) -> None:
    """Sign a published bundle, and state its provenance; a launch that published nothing gets neither."""
    folder = run.public(FOLDER)
    if not record.result["published"]:
        for name in (STATEMENT, SIGNATURE, MODEL_KEY):
            (folder / name).unlink(missing_ok=True)
        return
    from in_toto.models.metadata import ENVELOPE_PAYLOAD_TYPE, Envelope

    _sign_bundle(run, settings)
    config = load_kept_launch(run.public("launch") / "launch.json")
    stated = statement(config, run, record)
    payload = json.dumps(stated, sort_keys=True).encode()
    envelope = Envelope(payload=payload, payload_type=ENVELOPE_PAYLOAD_TYPE, signatures={})
    write_signed(folder / STATEMENT, envelope, keys.signer(settings, "launch"))


def _sign_bundle(run: RunDir, settings: Settings) -> None:
    from model_signing.signing import Config

    folder, bundle, signer = run.public(FOLDER), run.public("publish") / "bundle", keys.signer(settings, "model")
    for name in (MODEL_KEY, SIGNATURE):
        require_listed(name)
    write_bytes(folder / MODEL_KEY, keys.pem(signer.public_key))
    # The library takes a key as a file.
    with scratch(run.private("publish"), "key") as there, atomic(folder / SIGNATURE) as temporary:
        write_bytes(there / "key.pem", signer.private_bytes, PRIVATE)
        Config().use_elliptic_key_signer(private_key=there / "key.pem").sign(bundle, temporary)


def statement(config: LaunchConfig, run: RunDir, record: StageRecord) -> dict[str, Any]:
    """Statement of a published model as JSON values, from public files alone, so that anyone can derive it again.

    Args:
      record: that of the publication.
    """
    from google.protobuf.json_format import MessageToDict, ParseDict
    from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance
    from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
    from in_toto_attestation.v1.statement import Statement

    public, bundle = run.path / "public", {name: digest for name, digest in record.outputs.items() if "/" in name}
    disclosed = Disclosure.model_validate_json((public / record.stage / "bundle" / "disclosure.json").read_bytes())
    launch = digested(config)
    byproducts = (f"{FOLDER}/{SIGNATURE}", f"{FOLDER}/{MODEL_KEY}", "report/disclosure.json")
    provenance = {
        "buildDefinition": {
            "buildType": _BUILD,
            # As text, since its SHA-256 is that of the artifact in every link.
            "externalParameters": {CONFIG: launch, "sha256": text_sha256(launch)},
            "resolvedDependencies": [*_tool(disclosed), *_named(_inputs(record))],
        },
        "runDetails": {
            "builder": {"id": _BUILDER, "version": {disclosed.tool.name: disclosed.tool.version}},
            "metadata": {"invocationId": run.launch_id, "finishedOn": _hour(record)},
            "byproducts": [*_named({name: sha256(public / name) for name in byproducts})],
        },
    }
    # By way of the library's message, which knows the fields of a provenance.
    predicate = MessageToDict(ParseDict(provenance, Provenance()))
    subjects = [
        ResourceDescriptor(name=f"{record.stage}/{name}", digest={"sha256": digest}).pb
        for name, digest in bundle.items()
    ]
    stated = Statement(subjects, PREDICATE, predicate)
    stated.validate()
    return MessageToDict(stated.pb)


def _inputs(record: StageRecord) -> dict[str, str]:
    return {name: hashes["sha256"] for name, hashes in link(record).materials.items()}


def _tool(disclosed: Disclosure) -> Iterator[dict[str, object]]:
    """Code and locked environments that made the launch."""
    if disclosed.tool.git_commit:
        yield {"name": disclosed.tool.name, "digest": {"gitCommit": disclosed.tool.git_commit}}
    yield from _named({f"requirements/{name}": digest for name, digest in disclosed.tool.lock_digests.items()})


def _named(digests: Mapping[str, str]) -> Iterator[dict[str, object]]:
    for name, digest in digests.items():
        yield {"name": name, "digest": {"sha256": digest}}


def _hour(record: StageRecord) -> str:
    """Hour of the publication, as protobuf writes a time."""
    return record.started_at.replace("+00:00", "Z")
