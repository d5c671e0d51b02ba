"""``tacit runs`` and ``tacit status``: what there is, what runs, what it cost and what is left."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline.ground.settings import Settings
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run.attempts import running
from pipeline.run.known import run_folder
from pipeline.verify.erase import forget
from pretrain import progress
from tests.helpers.launches.command import answered, ended
from tests.helpers.launches.decided import EPSILON, RHO, decided_launch
from tests.helpers.launches.spends import budget


def printed(home: Path, *arguments: str) -> str:
    return ended(*arguments, variables={"TACIT_HOME": str(home), "MLFLOW_TRACKING_URI": None}).stdout


@pytest.mark.slow
def test_runs_say_what_each_launch_was_for_spent_and_gained(tracked: Settings):
    began = datetime.now(UTC)
    held = decided_launch(tracked, "hold")[1]
    passed = decided_launch(tracked, "launch", name="other", features=["OTF", "NWP"])[1]
    begun = decided_launch(tracked, until="plan", name="begun", locale="fr-FR")[1]
    rows = {row["launch_id"]: row for row in answered(tracked.home, "runs")["runs"]}
    assert {name: row["state"] for name, row in rows.items()} == {held: "held", passed: "approved", begun: "unfinished"}
    assert (rows[held]["decision"], rows[passed]["decision"], rows[begun]["decision"]) == ("hold", "launch", None)
    assert (rows[held]["rho"], rows[held]["epsilon"], rows[held]["delta"]) == (RHO, EPSILON, 1e-6)
    assert rows[passed]["features"] == ["OTF", "NWP"]
    assert rows[begun]["rho"] is rows[begun]["top1_gain"] is None
    text = printed(tracked.home, "runs")
    assert "+2.9 points (+2.6 to +3.3)" in text
    assert any(f"{day:%Y-%m-%d}" in text for day in (began, datetime.now(UTC))), "whatever midnight it met"
    assert [row["launch_id"] for row in answered(tracked.home, "runs", "--locale", "fr-FR")["runs"]] == [begun]


def test_what_runs_is_seen_and_not_disturbed(tracked: Settings):
    _, run_id = decided_launch(tracked, until="plan")
    assert running(tracked) == [], "a lock that nobody holds is no stage that runs"
    run = run_folder(tracked, run_id)
    with run.lock("fine_tune"):
        (now,) = running(tracked)
        assert (now.launch_id, now.stage) == (run_id, "fine_tune")
        (row,) = answered(tracked.home, "runs")["runs"]
        assert row["running"] == "fine_tune"
        assert f"running: {run_id}, fine_tune (stage 8 of 13), since" in printed(tracked.home, "status")
        assert "wait, or see how far it is" in printed(tracked.home, "status", run_id)
        with progress.kept_in(run.private("fine_tune") / progress.FILE):
            progress.along("words", 8.0)(2.0)
            (point,) = [each["progress"] for each in answered(tracked.home, "status")["running"]]
            assert (point["what"], point["share"]) == ("words", 0.25)
        assert not (run.private("fine_tune") / progress.FILE).exists()
    assert running(tracked) == []
    (run.path / "private" / "fine_tune" / ".lock").write_text("1")  # runs, and holds nothing
    assert running(tracked) == []


@pytest.mark.slow
def test_status_says_what_is_left_in_the_window_and_for_ever(tracked: Settings):
    ledger = PrivacyLedger(tracked.ledger_url)
    ledger.register("chitchat:windowed", budget(max_rho=1.0, window_days=60, lifetime_rho=3.0), "tests")
    run_id = decided_launch(tracked, "hold", private_text={"name": "windowed"})[1]
    answer = answered(tracked.home, "status")
    assert answer["running"] == []
    assert answer["last"]["launch_id"] == run_id
    left = {(row["population"], row["days"]): row["left"] for row in answer["left"] if row["unit"] == "device"}
    assert left["chitchat:windowed", 60] == 1.0 - RHO
    assert left["chitchat:windowed", None] == 3.0 - RHO
    assert "left:    rho 0.75 of 1 in any 60 days, for chitchat:windowed" in printed(tracked.home, "status")


@pytest.mark.slow
def test_status_of_a_launch_says_what_was_spent_and_what_to_do_next(tracked: Settings):
    begun = decided_launch(tracked, until="fine_tune")[1]
    answer = answered(tracked.home, "status", begun)
    assert answer["spent"] == [{"stage": "fine_tune", "unit": "device", "amount": RHO, "kind": "commit"}]
    assert answer["next"] == [f"go on with it: tacit launch {begun}"]
    assert "8 of 13 stages" in printed(tracked.home, "status", begun)
    assert "not yet: audit, ab_test, decide, report, publish" in printed(tracked.home, "status", begun)
    waiting = decided_launch(tracked, name="other", reviewers=["ana"])[1]
    assert f"main concerns: tacit review {waiting}, then answer" in answered(tracked.home, "status", waiting)["next"][0]


def test_nothing_here_yet(tmp_path: Path):
    assert "begin one: tacit launch FILE" in printed(tmp_path, "runs")
    assert "tacit ledger init" in printed(tmp_path, "status")
    assert not (tmp_path / "runs").exists(), "looking makes nothing"


def test_status_says_what_was_erased_and_that_it_was_not_verified(tracked: Settings):
    _, begun = decided_launch(tracked, until="plan")
    forget(run_folder(tracked, begun), tracked, "its window is over")
    erased, end = answered(tracked.home, "status", begun)["next"]
    assert "without having been verified, because its window is over" in erased
    assert end == "it cannot go on: launch for a later date, or under another name"
