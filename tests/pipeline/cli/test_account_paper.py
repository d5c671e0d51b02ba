"""``tacit account --paper``: the table, the exit status, and what is left out."""

import pytest

from federated.accounting import published
from federated.accounting.published_rows import Row
from federated.mechanisms import Tree
from tests.helpers.launches.account_command import answer, run


def only(monkeypatch: pytest.MonkeyPatch, *rows: Row) -> None:
    monkeypatch.setattr(published, "ROWS", rows)


def test_paper_as_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row for row in published.ROWS if row.row in ("NWP de-DE", "pt-PT TreeAgg-7", "BandMF band=342")]
    only(monkeypatch, *rows)
    told = answer("--paper")
    assert (told["ok"], len(told["skipped"])) == (True, 2), "two numbers of one row"
    assert {"source", "table", "row", "published", "ours", "match"} <= set(told["rows"][0])
    text = run("--paper").stdout
    assert "1 of 1 numbers that follow from their inputs match" in text
    # Without a terminal too, a row of the table stands on one line.
    assert "│ Xu et al. 2023            │ 1     │ NWP de-DE       │ rho      │      0.48 │ 0.479592 │ yes   │" in text
    assert "* pt-PT TreeAgg-7: three times what" in text
    assert "left out, as it takes minutes: BandMF band=342; add --slow" in text


def test_a_number_that_no_longer_follows_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, *(row for row in published.ROWS if row.row == "NWP de-DE"))
    assert run("--paper").exit_code == 0
    right = Tree.sensitivity_squared
    monkeypatch.setattr(Tree, "sensitivity_squared", lambda *row: right(*row) + 2)
    assert answer("--paper", code=65)["ok"] is False
    assert "differs: Xu et al. 2023, table 1, NWP de-DE, rho: 0.48, ours 0.5" in run("--paper", code=65).stdout


def test_slow_rows_are_computed_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    only(monkeypatch, *(row for row in published.ROWS if row.slow))
    monkeypatch.setattr(published, "check", lambda row: asked.append(row) or published.Comparison(row, 1.0, True))
    run("--paper")
    assert asked == []
    run("--paper", "--slow")
    assert len(asked) == 2
