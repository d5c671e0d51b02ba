"""Links and layouts say what the stage graph says, and in-toto's rules refuse the rest."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from in_toto.exceptions import RuleVerificationError
from in_toto.models.layout import Step
from in_toto.models.metadata import Metadata
from in_toto.verifylib import verify_all_item_rules

from pipeline.ground import keys
from pipeline.ground.errors import KeyUnusable, PermanentError
from pipeline.ground.settings import Settings
from pipeline.launch.config import launch_id
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.log.note import Inclusion
from pipeline.run import proof
from pipeline.run.known import as_it_lies
from pipeline.run.run_dir import ABSENT, GIVEN, RESULT, RunDir, StageRecord, record_digest, record_text
from pipeline.run.runner import run_stage
from pipeline.run.stage import concludes
from pipeline.stages.graph import STAGES
from pretrain.files import text_sha256, write_text
from tests.helpers.launches.installed import registered
from tests.helpers.launches.pipeline_launch import Calls, launch_config
from tests.helpers.launches.spends import device, reserve

DIGEST = "5a" * 32


def record(stage: str, inputs: Mapping[str, str] | None = None, **changes: object) -> StageRecord:
    fields = {
        "launch_id": "trial-0123abcd",
        "stage": stage,
        "config_digest": "c0" * 32,
        "inputs": inputs or {},
        "outputs": {"model.bin": DIGEST},
        "private_outputs": False,
        "started_at": "2026-11-28T10:00:00+00:00",
        "seconds": 1.0,
        "processor": "one",
        "result": {"value": 1, "published": False},
    }
    return StageRecord.model_validate(fields | changes)


def whole_launch() -> dict[str, StageRecord]:
    """Every stage opened a file and the result of every stage that it declares."""
    made: dict[str, StageRecord] = {}
    for name, stage in STAGES.items():
        opened = {f"{other}/model.bin": DIGEST for other in stage.opens}
        made[name] = record(name, opened | {f"{other}/{RESULT}": record_digest(made[other]) for other in stage.opens})
    return made


def accepted(records: Mapping[str, StageRecord], settings: Settings) -> bool:
    layout = proof.layout(whole_launch(), STAGES, keys.public_keys(settings, "launch")[-1])
    try:
        verify_all_item_rules(layout.steps, {name: proof.link(each) for name, each in records.items()})
    except RuleVerificationError:
        return False
    return True


def test_a_layout_holds_exactly_the_edges_of_the_stage_graph(settings: Settings):
    records, key = whole_launch(), keys.public_keys(settings, "launch")[-1]
    steps: list[Step] = proof.layout(records, STAGES, key).steps
    opened = {
        step.name: {rule[-1] for rule in step.expected_materials if rule[0] == "MATCH" and rule[3] == "PRODUCTS"}
        for step in steps
    }
    assert opened == {name: set(stage.opens) for name, stage in STAGES.items()}
    assert all(step.expected_materials[-1] == ["DISALLOW", "*"] for step in steps)
    without = {name: each for name, each in records.items() if name != "audit"}
    named = str([step.expected_materials for step in proof.layout(without, STAGES, key).steps])
    assert "'audit'" not in named
    assert "'audit_releases'" in named


def test_a_stage_may_open_what_it_declares_and_nothing_else(settings: Settings):
    records = whole_launch()
    assert accepted(records, settings)
    for name, stage in STAGES.items():
        for other in STAGES.keys() - stage.opens:
            forged = records | {name: record(name, {f"{other}/model.bin": DIGEST})}
            assert not accepted(forged, settings), f"{name} opened {other}"
        changed = [records | {name: record(name, {f"{other}/model.bin": "bb" * 32})} for other in stage.opens]
        assert not any(accepted(each, settings) for each in changed), name
        assert not accepted(records | {name: record(name, config_digest="00" * 32)}, settings), name


@pytest.mark.parametrize("name", STAGES)
def test_only_a_stage_that_asks_people_takes_a_file_of_theirs(settings: Settings, name: str):
    asked = whole_launch() | {name: record(name, {f"{GIVEN}/blocklist.txt": DIGEST})}
    assert accepted(asked, settings) == (name == "build_vocabulary")


def test_a_link_names_the_record_as_a_file_and_what_it_states():
    made = record("adapt", {"pretrain/result.json": DIGEST, "audit/result.json": ABSENT, "pretrain/model.bin": DIGEST})
    link = proof.link(made)
    digests = {name: hashes["sha256"] for name, hashes in link.products.items()}
    assert digests == {
        "adapt/model.bin": DIGEST,
        "adapt/result.json": text_sha256(record_text(made)),
        "adapt/result": record_digest(made),
    }
    assert link.materials.keys() == {"launch/config", "pretrain/result", "pretrain/model.bin"}


def test_a_concluding_stage_signs_the_layout_and_every_link_again(settings: Settings, tmp_path: Path):
    run, records = RunDir(tmp_path, "trial-0123abcd", as_it_lies), whole_launch()
    folder, old = run.path / "public" / proof.FOLDER, keys.public_keys(settings, "launch")[-1]
    for name in STAGES:
        if not concludes(name, STAGES):
            write_text(run.public(name) / RESULT, record_text(records[name]))
            proof.add(run, records[name], STAGES, settings)
    expected = {proof.link_name(name, old) for name in STAGES if not concludes(name, STAGES)}
    assert {path.name for path in folder.iterdir()} == expected
    keys.add(settings.keys_dir, "launch")
    new = keys.public_keys(settings, "launch")[-1]
    proof.add(run, records["decide"], STAGES, settings)
    expected = {proof.link_name(name, new) for name in records if not concludes(name, STAGES) or name == "decide"}
    assert {path.name for path in folder.iterdir()} == expected | {proof.LAYOUT, proof.KEY, proof.LOG_KEYS}
    for path in folder.glob("*.l*"):
        Metadata.load(str(path)).verify_signature({"keyid": new.keyid, **new.to_dict()})


def test_receipts_are_proven_under_the_newest_checkpoint_and_no_older_proof_is_left(settings: Settings, tmp_path: Path):
    ledger, run = PrivacyLedger.of(settings), RunDir(tmp_path, "trial-0123abcd", as_it_lies)
    registered(ledger, "people")
    reserved, folder = reserve(ledger, run.launch_id, device(0.4)), run.path / "public" / proof.FOLDER
    receipts = {"reserve": reserved.hash, "commit": ledger.commit(run.launch_id, "fine_tune", device(0.3)).hash}
    receipts["result"] = ledger.bind_result(run.launch_id, "fine_tune", "d" * 64)
    write_text(run.public("fine_tune") / RESULT, record_text(record("fine_tune", ledger=receipts)))
    sizes = []
    for left in ({"reserve", "commit", "result"}, {"reserve", "result"}):
        kept = record("fine_tune", ledger={kind: each for kind, each in receipts.items() if kind in left})
        write_text(run.public("fine_tune") / RESULT, record_text(kept))
        proof.add(run, record("decide"), STAGES, settings)
        made = {path.name: Inclusion.parsed(path.read_text("utf-8")) for path in folder.glob("*.tlog-proof")}
        assert made.keys() == {f"fine_tune.{kind}.tlog-proof" for kind in left}
        sizes.append({each.signed.checkpoint.size for each in made.values()})
        reserve(ledger, f"later-{left}", device(0.1))
    assert sizes == [{4}, {5}]


def test_no_entry_of_another_launch_leaves_by_an_edited_receipt(settings: Settings, tmp_path: Path):
    """Receipts are beside what the ledger's digest of a record covers."""
    ledger, run = PrivacyLedger.of(settings), RunDir(tmp_path, "trial-0123abcd", as_it_lies)
    registered(ledger, "people")
    other = reserve(ledger, "another", device(0.4))
    write_text(run.public("fine_tune") / RESULT, record_text(record("fine_tune", ledger={"reserve": other.hash})))
    with pytest.raises(PermanentError, match=rf"no entry {other.hash[:12]} of this launch.*fine_tune\.reserve"):
        proof.add(run, record("decide"), STAGES, settings)
    assert not list((run.path / "public" / proof.FOLDER).glob("*.tlog-proof"))


def test_nothing_is_spent_without_the_keys_that_sign(settings: Settings):
    proof.require_keys(settings)
    (settings.keys_dir / "model-1.pem").unlink()
    config = launch_config()
    with pytest.raises(KeyUnusable, match=r"model-1\.pem: missing"):
        run_stage("ingest_private", config, launch_id(config), settings, Calls().stages)
    assert PrivacyLedger.of(settings).entries() == []


def test_a_file_that_is_not_listed_does_not_join_the_proof():
    with pytest.raises(ValueError, match=r"proof/notes\.txt: no source in pipeline/run/public_fields\.py"):
        proof.require_listed("notes.txt")
