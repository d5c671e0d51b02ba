"""From public files alone: what the witnessed log does not have, or has otherwise, is named."""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from federated.config.population import PopulationKey, population_key
from pipeline.ground.settings import Settings
from pipeline.ledger.budget import Ceilings
from pipeline.ledger.ledger import PrivacyLedger, rotate
from pipeline.ledger.log import witness
from pipeline.ledger.log.note import COSIGNATURE, Inclusion, Signed, cosign, verifier_key
from pipeline.run import proof
from pipeline.run.known import as_it_lies
from pipeline.run.run_dir import RESULT, RunDir, StageRecord, receipt_digest, record_text
from pipeline.stages.graph import STAGES
from pipeline.verify.receipts import logged
from pretrain.files import write_text
from tests.helpers.launches.installed import installed, registered
from tests.helpers.launches.spends import device

CONFIG = "c0" * 32
PEOPLE = population_key("people")


@dataclass
class Proof:
    """A launch's records and proof, and the keys that its reader has, to be changed."""

    folder: Path
    records: dict[str, StageRecord]
    keys: dict[str, list[str]]
    home: Path
    population: PopulationKey = PEOPLE

    def change(self, **changes: object) -> None:
        """Change the record of training."""
        self.records["fine_tune"] = self.records["fine_tune"].model_copy(update=changes)

    def spent(self, **amounts: float) -> None:
        """Change the spend that the record states."""
        record = self.records["fine_tune"]
        self.change(result=record.result | {"spend": record.result["spend"] | amounts})

    def proven(self, kind: str, change: Callable[[Inclusion], Inclusion]) -> None:
        """Change the proof of a receipt."""
        path = self.folder / f"fine_tune.{kind}.tlog-proof"
        write_text(path, change(Inclusion.parsed(path.read_text(encoding="utf-8"))).text)

    def problem(self) -> str:
        """Faults that the check names; empty if it passes."""
        check = logged(self.folder, self.records, self.population, self.keys)
        return "" if check.passed else check.detail


@pytest.fixture
def made(settings: Settings, tmp_path: Path) -> Proof:
    """Training of a launch spent, and the launch was decided."""
    ledger, run = PrivacyLedger.of(settings), RunDir(tmp_path / "runs" / "launches", "trial-0123abcd", as_it_lies)
    registered(ledger, "people")
    amounts = {"population": PEOPLE, "launch_id": run.launch_id, "stage": "fine_tune"}
    binding = {"config": CONFIG, "inputs": "i", "key": "k"}
    reserved = ledger.reserve(**amounts, spend=device(0.4), asked=Ceilings(), binding=binding)
    receipts = {"reserve": reserved.hash, "commit": ledger.commit(run.launch_id, "fine_tune", device(0.3)).hash}
    records = {}
    for stage, ledgers, result in (
        ("fine_tune", receipts, {"spend": device(0.3).model_dump()}),
        ("decide", {}, {"decision": "launch"}),
    ):
        stated = StageRecord(
            launch_id=run.launch_id,
            stage=stage,
            config_digest=CONFIG,
            inputs={},
            outputs={},
            private_outputs=False,
            started_at="2026-11-28T10:00:00+00:00",
            seconds=1.0,
            processor="one",
            result=result,
        )
        bound = {"result": ledger.bind_result(run.launch_id, stage, receipt_digest(stated))}
        records[stage] = stated.model_copy(update={"ledger": ledgers | bound})
        write_text(run.public(stage) / RESULT, record_text(records[stage]))
    proof.add(run, records["decide"], STAGES, settings)
    return Proof(run.path / "public" / proof.FOLDER, records, ledger.verifier_keys(), tmp_path)


def in_another_log(made: Proof) -> None:
    """The same leaves in a log of another installation, whose checkpoint its own witness cosigned."""
    other = installed(made.home / "other", "people")
    entry = other.note("attempt", PEOPLE, "another", "fine_tune", {})
    signed = other.inclusions("another", {entry.hash})[entry.hash].signed
    made.proven("commit", lambda found: replace(found, signed=Signed(signed.checkpoint, found.signed.lines)))


def another_witness(made: Proof) -> None:
    """All checkpoints cosigned by a witness of one's own, which the signed keys of the log name."""
    other = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))

    def cosigned(found: Inclusion) -> Inclusion:
        line = cosign(found.signed.checkpoint, witness.NAME, other, 1)
        return replace(found, signed=Signed(found.signed.checkpoint, (found.signed.lines[0], line)))

    for path in made.folder.glob("*.tlog-proof"):
        write_text(path, cosigned(Inclusion.parsed(path.read_text("utf-8"))).text)
    made.keys["witness"] = [verifier_key(witness.NAME, COSIGNATURE, other.public_key().public_bytes_raw())]


FORGERIES: dict[str, tuple[Callable[[Proof], object], str]] = {
    "half of the spend in the record": (lambda made: made.spent(rho=0.15), "commit.* says another rho than the record"),
    "another launch file": (lambda made: made.change(config_digest="c1" * 32), "says another config than the record"),
    "another result": (lambda made: made.change(seconds=2.0), "result.* says another digest than the record"),
    "another population": (
        lambda made: setattr(made, "population", population_key("others")),
        "says another population",
    ),
    "another launch": (lambda made: made.change(launch_id="trial-4567abcd"), "says another launch_id"),
    "no commit": (
        lambda made: made.change(ledger={"result": made.records["fine_tune"].ledger["result"]}),
        "fine_tune names no reserve; fine_tune names no commit",
    ),
    "a reservation for a commit": (
        lambda made: made.proven(
            "commit", lambda _: Inclusion.parsed((made.folder / "fine_tune.reserve.tlog-proof").read_text("utf-8"))
        ),
        "commit.* is not the entry that the record names",
    ),
    "half of the spend in the log": (
        lambda made: made.proven(
            "commit",
            lambda found: replace(found, extra=json.dumps(json.loads(found.extra) | {"rho": 0.15}).encode()),
        ),
        "commit.* is not the entry that the record names",
    ),
    "a hash of the tree": (
        lambda made: made.proven("commit", lambda found: replace(found, path=(bytes(32), *found.path[1:]))),
        "commit.* is not in the tree",
    ),
    "a place in the tree": (
        lambda made: made.proven("commit", lambda found: replace(found, index=found.index - 1)),
        "commit.* is not in the tree",
    ),
    "no proof": (lambda made: (made.folder / "decide.result.tlog-proof").unlink(), "decide.* is lost or damaged"),
    "half a proof": (
        lambda made: write_text(made.folder / "decide.result.tlog-proof", "c2sp.org/tlog-proof@v1\n"),
        "decide.* is lost or damaged",
    ),
    "a checkpoint without the witness": (
        lambda made: made.proven(
            "commit", lambda found: replace(found, signed=Signed(found.signed.checkpoint, found.signed.lines[:1]))
        ),
        "not cosigned by a key of the witness",
    ),
    "a checkpoint without the log": (
        lambda made: made.proven(
            "commit", lambda found: replace(found, signed=Signed(found.signed.checkpoint, found.signed.lines[1:]))
        ),
        "not signed by a key of the log",
    ),
    "another witness than the population's": (another_witness, "population was registered with the witness"),
    "another log": (in_another_log, "not in the tree.*not signed by a key of the log"),
    "another log's keys": (
        lambda made: made.keys.update(installed(made.home / "other").verifier_keys()),
        "not signed by a key of the log.*not cosigned by a key of the witness",
    ),
}


def test_a_launch_s_receipts_stand_in_the_witnessed_log(made: Proof):
    check = logged(made.folder, made.records, made.population, made.keys)
    (named,) = made.keys["witness"]
    expected = f"4 entries of the launch stand in a log that the witness {named} cosigned"
    assert (check.passed, check.detail) == (True, expected)


@pytest.mark.parametrize("name", FORGERIES)
def test_what_the_log_does_not_say_is_named(made: Proof, name: str):
    forge, named = FORGERIES[name]
    forge(made)
    assert re.search(named, made.problem())


def test_keys_of_before_a_rotation_are_among_those_that_count(made: Proof, settings: Settings):
    for role in ("ledger", "witness"):
        rotate(settings, role)
    ledger = PrivacyLedger.of(settings)
    made.keys = ledger.verifier_keys()
    for path in made.folder.glob("*.tlog-proof"):
        found = Inclusion.parsed(path.read_text("utf-8"))
        receipt = hashlib.sha256(found.extra).hexdigest()
        write_text(path, ledger.inclusions("trial-0123abcd", {receipt})[receipt].text)
    assert [len(named) for named in made.keys.values()] == [2, 2, 1]
    assert made.problem() == ""
