"""``tacit site``: launches of this machine in every state, and those that only the ledger knows."""

import re
import shutil

import pytest

from pipeline.ground.settings import Settings
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run import attempts
from pipeline.run.known import run_folder
from tests.helpers.launches.command import answered
from tests.helpers.launches.decided import RHO, decided_launch
from tests.helpers.reports.reports_example import visible


@pytest.mark.slow
def test_the_site_lists_what_runs_lists_and_what_only_the_ledger_knows(tracked: Settings):
    held = decided_launch(tracked, "hold")[1]
    passed = decided_launch(tracked, "launch", name="other", features=["OTF", "NWP"])[1]
    gone = decided_launch(tracked, until="fine_tune", name="gone", private_text={"name": "others"})[1]
    shutil.rmtree(tracked.runs_dir / gone)
    failed = decided_launch(tracked, until="plan", name="failed", locale="fr-FR")[1]
    with (
        pytest.raises(OSError, match="disk"),
        attempts.noted(run_folder(tracked, failed).private("fine_tune"), "fine_tune"),
    ):
        raise OSError("the disk is full")
    # Whose the name of a registered model is, as publication writes it down: no launch.
    PrivacyLedger(tracked.ledger_url).note("model", "others", "", "keyboard-en-US-NWP", {"population": "others"})
    made = answered(tracked.home, "site")
    assert made == {"index": str(tracked.runs_dir / "index.html"), "keyboards": [], "without": 0}
    page = (tracked.runs_dir / "index.html").read_text(encoding="utf-8")
    rows = {
        name: " ".join(visible(text).split())
        for name, text in re.findall(r'<tbody role="rowgroup" id="([^"]*)"[^>]*>(.*?)</tbody>', page, flags=re.DOTALL)
    }
    assert set(rows) == {row["launch_id"] for row in answered(tracked.home, "runs")["runs"]} == {held, passed, failed}
    assert f"hold, held {RHO:.4f}" in rows[held]
    assert "OTF, NWP launch, approved" in rows[passed]
    assert "fine_tune stopped at" in rows[failed]
    assert "exit code 75 (OSError); its log says why" in rows[failed]
    text = " ".join(visible(page).split())
    assert f"{gone} chitchat:others rho {RHO} by fine_tune" in text
    assert " nothing " not in text[text.index("Known to the ledger alone") :]
    # Two launches of one population: its budget is drawn once a locale.
    assert "rho 0.5000 of 1" in page
    assert page.count("Gain of each launch, en-US</title>") == 1
    assert "Budget spent, fr-FR" in page


@pytest.mark.slow
def test_what_failed_is_said_by_runs_and_status(tracked: Settings):
    run_id = decided_launch(tracked, until="plan")[1]
    with (
        pytest.raises(ValueError, match="bad"),
        attempts.noted(run_folder(tracked, run_id).private("discover"), "discover"),
    ):
        raise ValueError("bad data")
    (row,) = answered(tracked.home, "runs")["runs"]
    assert (row["state"], row["failed"]) == ("unfinished", True)
    status = answered(tracked.home, "status", run_id)
    assert "discover stopped at" in status["detail"]
    assert status["next"][0].startswith("see what exit code 65 asks for")
