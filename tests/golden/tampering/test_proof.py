"""A launch's proof as outsiders check it: four tools, each on its own, on a real launch and on forgeries."""

import base64
import json
import re
import runpy
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from in_toto.models.metadata import ENVELOPE_PAYLOAD_TYPE, Envelope
from model_signing.signing import Config
from securesystemslib.signer import CryptoSigner

from pipeline.ground import keys
from pipeline.ground.errors import PERMANENT
from pipeline.ground.settings import Settings
from pipeline.ledger.log import note, witness
from pipeline.ledger.outside import rotation_text
from pipeline.publication import provenance
from pipeline.run import proof
from pipeline.run.known import as_it_lies
from pipeline.run.run_dir import RESULT, RunDir, StageRecord, record_digest, record_text
from pipeline.stages.graph import STAGES, is_evidence
from pipeline.verify.check import Check
from pipeline.verify.launch import verify_public
from pretrain.files import sha256
from tests.golden.tampering import edits
from tests.golden.tampering.edits import Launch
from tests.helpers.launches.command import answered
from tests.helpers.processes.forked import Forked

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")]

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent
BUNDLE = "publish/bundle"


@dataclass(frozen=True)
class Published:
    """A copy of a launch's public folder, and the public keys that its reader trusts.

    Attributes:
      signer: the installation's key, for forgeries that its owner could make.
      forked: for the tool that takes seconds to load; the page's test and those of shapes start it as it is installed.
    """

    public: Path
    settings: Settings
    launch_key: Path
    model_key: Path
    signer: CryptoSigner
    forked: Forked

    @property
    def run(self) -> RunDir:
        return RunDir(self.public.parent.parent, self.public.parent.name, as_it_lies)

    def record(self, stage: str) -> StageRecord:
        record = self.run.record(stage)
        assert record is not None, stage
        return record

    def link(self, stage: str) -> Path:
        return self.public / "proof" / proof.link_name(stage, self.signer.public_key)


@pytest.fixture
def published(launch: Launch, tmp_path: Path, forked: Forked) -> Published:
    folder = tmp_path / "got" / launch.run.launch_id
    shutil.copytree(launch.file("public"), folder / "public")
    trusted = []
    for role in ("launch", "model"):
        trusted.append(tmp_path / f"{role}.pub")
        trusted[-1].write_bytes(keys.pem(keys.public_keys(launch.settings, role)[-1]))
    signer = keys.signer(launch.settings, "launch")
    return Published(folder / "public", launch.settings, trusted[0], trusted[1], signer, forked)


def tacit(got: Published) -> bool:
    return not not_passed(got)


def not_passed(got: Published) -> set[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checks: list[Check] = list(verify_public(got.public, got.settings, sha256(got.launch_key)))
    return {check.id for check in checks if check.passed is not True}


def in_toto(got: Published) -> bool:
    command = [BIN / "in-toto-verify", "--layout", "proof/root.layout", "--link-dir", "proof"]
    accepted = _accepts([*command, "--verification-keys", got.launch_key], got.public)
    (got.public / f"{proof.INSPECTION}.link").unlink(missing_ok=True)  # its own, of the inspection
    return accepted


def model_signing(got: Published) -> bool:
    command = [got.forked.python, "-m", "model_signing", "verify", "key", BUNDLE, "--signature", "proof/model.sig"]
    return _accepts([*command, "--public_key", got.model_key], got.public)


def standard_library(got: Published) -> bool:
    """Isolated, without site-packages: nothing that is installed can help it."""
    command = [sys.executable, "-I", "-S", ROOT / "docs" / "check_proof.py", got.public, sha256(got.launch_key)]
    return _accepts(command, got.public)


def _accepts(command: list[object], folder: Path) -> bool:
    return not subprocess.run([*map(str, command)], cwd=folder, capture_output=True, check=False).returncode


TOOLS: Mapping[str, Callable[[Published], bool]] = {
    "tacit": tacit,
    "in-toto": in_toto,
    "model_signing": model_signing,
    "standard library": standard_library,
}
ALL = {*TOOLS}
OF_STAGES = ALL - {"model_signing"}  # which sees the bundle alone
OF_STATEMENTS = {"tacit", "standard library"}


def one_byte(place: str) -> Callable[[Published], None]:
    def edit(got: Published) -> None:
        path = got.public / place
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)

    return edit


def forged(got: Published, stage: str, **changes: object) -> None:
    """A link that the installation's own key signs, of a record that says something else."""
    record = got.record(stage).model_copy(update=changes)
    proof.write_link(got.public / "proof", record, got.signer)


def of_another_launch(got: Published) -> None:
    forged(got, "adapt", launch_id="another", config_digest="ab" * 32)


def unlisted_input(got: Published) -> None:
    """The audit opened what training kept private, which no stage has written."""
    forged(got, "audit", inputs=got.record("audit").inputs | {"fine_tune/update.npy": "ab" * 32})


def undeclared_input(got: Published) -> None:
    """It is a product, but of a stage that the graph does not let pretraining open."""
    record = got.record("ingest_private")
    opened = {f"{record.stage}/{RESULT}": record_digest(record)}
    forged(got, "pretrain", inputs=got.record("pretrain").inputs | opened)


def into_another_folder(got: Published) -> None:
    forged(got, "adapt", outputs={"../pretrain/model.safetensors": "ab" * 32})


def _stages(got: Published) -> set[str]:
    return {path.parent.name for path in got.public.glob(f"*/{RESULT}")}


def by_another_key(got: Published) -> None:
    """Everything that the launch key signs, with the public key replaced too: only the reader's own copy differs."""
    signer, folder = CryptoSigner.generate_ed25519(), got.public / "proof"
    for path in folder.glob("*.link"):
        path.unlink()
    records = {stage: got.record(stage) for stage in _stages(got)}
    for record in records.values():
        proof.write_link(folder, record, signer)
    rules = proof.layout(records, STAGES, signer.public_key)
    proof.write_signed(folder / proof.LAYOUT, Envelope.from_signable(rules), signer)
    (folder / proof.KEY).write_bytes(keys.pem(signer.public_key))
    for name in (provenance.STATEMENT, proof.LOG_KEYS):
        sign_again(folder / name, signer)


def sign_again(path: Path, signer: CryptoSigner) -> None:
    envelope = Envelope.load(str(path))
    proof.write_signed(path, Envelope(envelope.payload, envelope.payload_type, {}), signer)


def one_link_by_another_key(got: Published) -> None:
    """Under the name of the right one."""
    path, other = got.link("fine_tune"), CryptoSigner.generate_ed25519()
    proof.write_link(path.parent, got.record("fine_tune"), other).rename(path)


def model_by_another_key(got: Published) -> None:
    other, key = CryptoSigner.generate_ecdsa(), got.public.parent / "key.pem"
    key.write_bytes(other.private_bytes)
    (got.public / "proof" / provenance.MODEL_KEY).write_bytes(keys.pem(other.public_key))
    place = got.public / "proof" / provenance.SIGNATURE
    Config().use_elliptic_key_signer(private_key=key).sign(got.public / BUNDLE, place)


def of_another_model(got: Published) -> None:
    """A Statement that the launch key signs, about other files."""
    path = got.public / "proof" / provenance.STATEMENT
    stated = json.loads(Envelope.load(str(path)).payload)
    stated["subject"][0]["digest"]["sha256"] = "ab" * 32
    envelope = Envelope(json.dumps(stated).encode(), ENVELOPE_PAYLOAD_TYPE, {})
    proof.write_signed(path, envelope, got.signer)


def in_copy(edit: edits.Edit) -> Callable[[Published], None]:
    return lambda got: edit(Launch(got.settings, got.run))


def a_link_to(place: str, target: str) -> Callable[[Published], None]:
    """The same bytes, from elsewhere: who fetches the folder gets a link, and follows it."""

    def edit(got: Published) -> None:
        path, moved = got.public / place, got.public.parent / target
        path.rename(moved)
        path.symlink_to(moved)

    return edit


def more_in(place: str) -> Callable[[Published], None]:
    def edit(got: Published) -> None:
        path = got.public / place
        path.parent.mkdir(exist_ok=True)
        path.write_text("<p>epsilon 0.89</p>", encoding="utf-8")

    return edit


def said_twice(place: str) -> Callable[[Published], None]:
    """A key of a JSON file stands twice: readers that take the last one, or the first, differ."""

    def edit(got: Published) -> None:
        path = got.public / place
        path.write_text(path.read_text("utf-8").replace("{", '{"payloadType": "x", "stage": "x", ', 1), "utf-8")

    return edit


def longer_signature(got: Published) -> None:
    path = got.link("decide")
    envelope = json.loads(path.read_bytes())
    content = base64.b64decode(envelope["signatures"][0]["sig"]) + b"more"
    envelope["signatures"][0]["sig"] = base64.b64encode(content).decode()
    path.write_text(json.dumps(envelope), encoding="utf-8")


def without_an_audit(got: Published) -> None:
    """By the owner, who signs a layout without the audits of the releases."""
    records = {stage: got.record(stage) for stage in _stages(got) if stage != "audit_releases"}
    rules = proof.layout(records, STAGES, got.signer.public_key)
    proof.write_signed(got.public / "proof" / proof.LAYOUT, Envelope.from_signable(rules), got.signer)
    got.link("audit_releases").unlink()
    for path in (got.public / "proof").glob("audit_releases.*"):
        path.unlink()
    shutil.rmtree(got.public / "audit_releases")
    for stage in ("decide", "report"):
        record = got.record(stage)
        inputs = {name: each for name, each in record.inputs.items() if not name.startswith("audit_releases/")}
        forged(got, stage, inputs=inputs)
        (got.public / stage / RESULT).write_text(record_text(record.model_copy(update={"inputs": inputs})), "utf-8")


def test_the_script_knows_the_stage_graph_and_the_files_beside_it():
    its = runpy.run_path(str(ROOT / "docs" / "check_proof.py"))
    assert {name: tuple(opens.split()) for name, opens in its["STAGES"].items()} == {
        name: stage.opens for name, stage in STAGES.items()
    }
    assert {folder: frozenset(names) for folder, names in its["BESIDE"].items()} == proof.BESIDE
    assert set(its["EVIDENCE"]) == {name for name in STAGES if is_evidence(name)}
    assert its["OPTIONAL"] == {name: stage.block for name, stage in STAGES.items() if stage.block}


def test_the_script_takes_the_registered_witness_and_those_that_it_named(published: Published, tmp_path: Path):
    """Populations of people are registered with a witness; that of this launch is made up, and has none."""
    its = runpy.run_path(str(ROOT / "docs" / "check_proof.py"))
    pairs = [Ed25519PrivateKey.generate() for _ in range(3)]
    hexadecimal = [pair.public_key().public_bytes_raw().hex() for pair in pairs]
    first, second, other = [
        note.verifier_key(witness.NAME, note.COSIGNATURE, bytes.fromhex(public)) for public in hexadecimal
    ]
    receipt = next((published.public / "proof").glob("*.reserve.tlog-proof")).read_text(encoding="utf-8")
    extra = re.search(r"^extra (.*)$", receipt, re.MULTILINE)
    assert extra is not None
    shown = json.loads(base64.b64decode(extra[1])) | {"witness": hexadecimal[0]}
    named = base64.b64encode(json.dumps(shown).encode()).decode()
    (tmp_path / "fine_tune.reserve.tlog-proof").write_text(receipt.replace(extra[1], named), encoding="utf-8")
    signature = pairs[0].sign(rotation_text("witness", 2, hexadecimal[1])).hex()
    rotations = [{"number": 2, "public": hexadecimal[1], "signature": signature}]
    assert its["registered"](tmp_path, {"witness": [first, second, other], "rotations": rotations}) == [first, second]
    for wrong in ([other], []):
        with pytest.raises(SystemExit):
            its["registered"](tmp_path, {"witness": wrong, "rotations": rotations})
    with pytest.raises(SystemExit):
        its["registered"](tmp_path, {"witness": [second], "rotations": []})


def test_the_list_of_stages_is_not_the_owner_s(published: Published):
    without_an_audit(published)
    assert in_toto(published)
    command = [sys.executable, "-I", "-S", ROOT / "docs" / "check_proof.py", published.public]
    done = subprocess.run(
        [*map(str, command), sha256(published.launch_key)], capture_output=True, text=True, check=False
    )
    assert "no stage is left out: audit_releases" in done.stderr


def keys_of_another_log(got: Published) -> None:
    """The log's keys, replaced by others that another launch key signed."""
    sign_again(got.public / "proof" / proof.LOG_KEYS, CryptoSigner.generate_ed25519())


def added(got: Published) -> None:
    (got.public / BUNDLE / "more.bin").write_bytes(b"more")


def removed(name: str) -> Callable[[Published], None]:
    return lambda got: (got.public / "proof" / name).unlink()


# Who must refuse; a tool that does not see what was changed accepts the rest.
FORGERIES: Mapping[str, tuple[Callable[[Published], None], set[str]]] = {
    "a byte of the model": (one_byte(f"{BUNDLE}/model.onnx"), ALL),
    "a byte of the bundle's disclosure": (one_byte(f"{BUNDLE}/disclosure.json"), ALL),
    "a byte of the report's disclosure": (one_byte("report/disclosure.json"), OF_STAGES),
    "a byte of a result": (one_byte("decide/result.json"), OF_STAGES),
    "a file added to the bundle": (added, ALL),
    **{
        f"a file added under {folder}/": (more_in(f"{folder}/report.html"), OF_STAGES)
        for folder in ("launch", "planning", "proof", "count", "report", "more")
    },
    "a file added below proof/": (more_in("proof/decide.0a1b2c3d.link"), OF_STATEMENTS),  # in-toto looks at no .link
    "a symbolic link": (a_link_to("report/report.html", "elsewhere.html"), OF_STATEMENTS),
    "a key that stands twice in a result": (said_twice("decide/result.json"), OF_STAGES),
    "a key that stands twice in the log's keys": (said_twice("proof/log-keys.json"), OF_STATEMENTS),
    "bytes after a signature": (longer_signature, OF_STAGES),
    "a layout of the owner without an audit": (without_an_audit, OF_STATEMENTS),
    "a link of another launch": (of_another_launch, OF_STAGES),
    "a stage left out": (lambda got: got.link("decide").unlink(), OF_STAGES),
    "an input that no stage wrote": (unlisted_input, OF_STAGES),
    "an input of a stage that the graph does not name": (undeclared_input, OF_STAGES),
    "an output in another stage's folder": (into_another_folder, OF_STAGES),
    "a link by another key": (one_link_by_another_key, OF_STAGES),
    "everything by another key": (by_another_key, OF_STAGES),
    "a Statement of another model": (of_another_model, OF_STATEMENTS),
    "no Statement": (removed(provenance.STATEMENT), OF_STATEMENTS),
    "a place in the log": (in_copy(edits.receipt(edits.another_place)), OF_STATEMENTS),
    "a spend in the log": (in_copy(edits.receipt(edits.half_spent)), OF_STATEMENTS),
    "a spend of another launch in the log": (in_copy(edits.receipt_of_another), OF_STATEMENTS),
    "a checkpoint without the witness": (in_copy(edits.receipt(edits.unwitnessed)), OF_STATEMENTS),
    "no place in the log": (removed("fine_tune.commit.tlog-proof"), OF_STATEMENTS),
    "the log's keys by another key": (keys_of_another_log, OF_STATEMENTS),
    "no layout": (removed(proof.LAYOUT), OF_STAGES),
    "the model's signature by another key": (model_by_another_key, OF_STATEMENTS | {"model_signing"}),
}


def test_every_tool_accepts_the_proof_of_a_launch(published: Published):
    assert not not_passed(published)
    assert {name for name, accepts in TOOLS.items() if accepts(published)} == ALL
    # None of them left anything behind, or needed what is not public.
    assert not not_passed(published)


def test_the_page_leads_an_outsider_through_all_three(published: Published, tmp_path: Path):
    """In its order, in one folder: what one command leaves is in the next one's way."""
    home = tmp_path / "outsider"
    trusted = home / "trusted"
    trusted.mkdir(parents=True)
    shutil.copy(published.launch_key, trusted / "launch-1.pub.pem")
    shutil.copy(published.model_key, trusted / "model-1.pub.pem")
    shutil.copy(ROOT / "docs" / "check_proof.py", trusted)
    found = re.search(r"```bash\n(.*?)```", (ROOT / "docs" / "proof.md").read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    environment = {"HOME": str(home), "PATH": f"{BIN}:/usr/bin:/bin"}
    command = ["bash", "-ec", found[1]]
    done = subprocess.run(command, cwd=published.public, env=environment, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout + done.stderr
    assert not not_passed(published)


@pytest.mark.parametrize("name", FORGERIES)
def test_every_tool_refuses_a_forgery_that_it_sees(published: Published, name: str):
    forge, refuse = FORGERIES[name]
    forge(published)
    assert {tool for tool, accepts in TOOLS.items() if not accepts(published)} == refuse


def test_the_command_compares_the_key_of_a_launch_and_refuses_options_of_other_checks(published: Published):
    home, name = published.settings.home, published.public.parent.name
    done = answered(home, "verify", "--public", name, "--key", "ab" * 32, code=PERMANENT)
    assert {check["id"] for check in done["checks"] if not check["passed"]} == {"proof:key"}
    for option, refused in ((("--key", "ab" * 32), "--key: "), (("--public", "--thorough"), "--thorough: ")):
        assert answered(home, "verify", name, *option, code=PERMANENT)["error"].startswith(refused)
    elsewhere = answered(home, "verify", "--public", str(home / "runs"), code=PERMANENT)
    assert "is not the folder public/ of a launch" in elsewhere["error"]
