"""The committed matrix says what finds each change: public files alone, but for what only private records show."""

import pytest

from tests.golden.tampering import matrix
from tests.golden.tampering.edits import Launch
from tests.golden.tampering.matrix import REASONS, WAYS, applied, by_everything, by_public, rows
from tests.golden.tampering.ways import DERIVED

slow = pytest.mark.slow
pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")


def test_every_change_is_found_or_has_a_reason() -> None:
    found = rows()
    assert found.keys() == WAYS.keys()
    assert len(found) >= 60
    assert all(row["public"] or row["reason"] in REASONS for row in found.values())
    # Whatever is derived, the ledger holds the digest of its record.
    assert all(found[way.name]["all"] == f"bound:{way.stage}" for way in DERIVED)
    unfound = {name for name, row in found.items() if not (row["public"] or row["all"])}
    assert {found[name]["reason"] for name in unfound} <= {"alias", "written again"}


def test_the_table_is_made_of_the_matrix() -> None:
    assert matrix.TABLE.read_text(encoding="utf-8") == matrix.table()


@slow
@pytest.mark.parametrize("name", WAYS)
def test_a_change_is_found_as_the_matrix_says(launch: Launch, name: str) -> None:
    row = rows()[name]
    applied(launch, WAYS[name])
    if row["public"]:
        assert by_public(launch) == row["public"]
    if row["all"]:
        subjects = ("tracked", "registered") if row["reason"] == "MLflow" else ("files", "ledger")
        assert by_everything(launch, *subjects) == row["all"]
