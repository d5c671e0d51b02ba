"""Whatever is changed in a finished launch, `tacit verify` no longer says that it verifies.

Each change with the digests that the launch's own files state is in ``test_matrix.py``; here the ledger's change along.
"""

import sqlite3

import pytest
from safetensors.torch import load_file, save_file

from pipeline.ledger.ledger import PrivacyLedger
from tests.golden.tampering.checking import again, checks, not_passed
from tests.golden.tampering.edits import Launch
from tests.golden.tampering.ways import DERIVED, Tampering

pytestmark = [
    pytest.mark.slow,
    # MLflow's own code uses what SQLAlchemy 2.1 deprecates.
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
]


def subject(identity: str) -> str:
    """What a check belongs to."""
    first = identity.partition(":")[0]
    kinds = {
        "bound": "files",
        "private": "files",
        "spend": "ledger",
        "mechanism": "guarantee",
    }
    derived = {"rho", "epsilon", "mu", "epsilon_pld", "sensitivity_squared"}
    return kinds.get(first, "guarantee" if first in derived else first)


def test_an_honest_launch_verifies(launch: Launch) -> None:
    found = checks(launch)
    assert {name: check.detail for name, check in found.items() if check.passed is not True} == {}
    assert len(found) > 60
    assert sorted(path.name for path in launch.run.path.iterdir()) == ["launch_folder", "private", "public"]
    assert not list((launch.run.path / "private").glob(".*"))


def test_all_that_is_trained_comes_out_again_bit_for_bit(launch: Launch) -> None:
    assert {name: check.detail for name, check in checks(launch, ("trained",)).items()} == {
        f"trained:{stage}": "equal" for stage in ("ingest_public", "pretrain", "adapt", "fine_tune")
    }


@pytest.mark.parametrize("stage", ["pretrain", "adapt", "fine_tune"])
def test_a_weight_that_no_figure_shows_is_noticed_by_training_again(launch: Launch, stage: str) -> None:
    path = launch.run.path / "public" / stage / "model.safetensors"
    weights = load_file(path)
    name = max(weights, key=lambda name: weights[name].numel())
    weights[name].view(-1)[0] += 2e-7
    save_file(weights, path)
    launch.along(stage, ledger_too=True)
    assert f"trained:{stage}" in not_passed(launch, "trained")


@pytest.mark.parametrize("way", [way for way in DERIVED if way.noticed], ids=lambda way: way.name)
def test_it_is_noticed_even_if_the_ledger_was_told_of_it(launch: Launch, way: Tampering) -> None:
    way.edit(launch)
    launch.along(way.stage, ledger_too=True)
    by_files = not_passed(launch, "files")
    assert not {name for name in by_files if name.startswith(("bound:", f"files:{way.stage}"))}, (
        "the edit must be consistent"
    )
    first, _, stage = way.noticed.partition(":")
    if first == "again":
        assert again(launch, stage).passed is not True
    else:
        assert way.noticed in not_passed(launch, subject(way.noticed))


def test_a_result_that_is_no_record_is_noticed(launch: Launch) -> None:
    launch.file("public/audit/result.json").write_text("{", encoding="utf-8")
    assert {"record:audit", "files:audit"} <= not_passed(launch, "files")


def test_without_the_ledger_s_digests_nothing_is_verified(launch: Launch) -> None:
    with sqlite3.connect(launch.settings.runs_dir / "ledger.db") as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")
        database.execute("DELETE FROM privacy_ledger WHERE kind LIKE 'result%'")
    found = not_passed(launch, "files", "ledger")
    assert "ledger" in found
    assert {name for name in found if name.startswith("bound:")}


def test_an_older_record_put_back_is_noticed(launch: Launch) -> None:
    """One that the ledger holds, but not as the last."""
    ledger = PrivacyLedger.of(launch.settings)
    ledger.bind_result(launch.run.launch_id, "audit", "f" * 64)
    assert "bound:audit" in not_passed(launch, "files")
