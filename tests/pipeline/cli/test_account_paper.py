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
    assert [row["match"] for row in told["rows"]] == [True, False, False]
    assert told["rows"][1]["departs"].startswith("three times what")
    text = run("--paper").stdout
    assert "1 of 3 numbers agree, to half a unit of the last printed digit" in text
    # Without a terminal too, a row of the table stands on one line.
    assert "│ Xu et al. 2023            │ 1     │ NWP de-DE       │ rho      │      0.48 │ 0.479592 │ yes   │" in text
    assert "pt-PT TreeAgg-7, rho: 1.33, ours 0.438776: three times what" in text
    assert "left out, as it takes minutes: BandMF band=342; add --slow" in text


def test_a_number_that_no_longer_follows_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, *(row for row in published.ROWS if row.row == "NWP de-DE"))
    assert run("--paper").exit_code == 0
    right = Tree.sensitivity_squared
    monkeypatch.setattr(Tree, "sensitivity_squared", lambda *row: right(*row) + 2)
    assert answer("--paper", code=65)["ok"] is False
    said = run("--paper", code=65).stdout
    assert "differs: Xu et al. 2023, table 1, NWP de-DE, rho: 0.48, ours 0.5: no known reason" in said


def test_what_cannot_be_computed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, *(row for row in published.ROWS if row.row == "es-ES BandMF-1.411"))
    said = run("--paper").stdout
    assert "0 of 0 numbers agree" in said
    assert said.count("not computed: es-ES BandMF-1.411: its strategy") == 1


def test_slow_rows_are_computed_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    only(monkeypatch, *(row for row in published.ROWS if row.slow))
    monkeypatch.setattr(published, "check", lambda row: asked.append(row) or published.Comparison(row, 1.0, True))
    run("--paper")
    assert asked == []
    run("--paper", "--slow")
    assert len(asked) == 2
