"""The site: launches of this machine in every state, those that only the ledger knows, and what a population lost."""

import re
import shutil
from datetime import timedelta

import pytest

from pipeline.ground import clock
from pipeline.ground.settings import Settings
from pipeline.ledger.budget import Ceilings
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.loss import added, releases
from pipeline.publication import site
from pipeline.publication.site import courses
from pipeline.run import attempts
from pipeline.run.known import as_it_lies, run_folder
from pipeline.run.run_dir import RESULT, StageRecord, record_text
from pretrain.files import sha256
from pretrain.model import export
from pretrain.text import vocabulary
from tests.helpers.launches.command import answered
from tests.helpers.launches.decided import RHO, decided_launch
from tests.helpers.launches.pipeline_launch import spend
from tests.helpers.launches.published import model_of
from tests.helpers.launches.spends import budget
from tests.helpers.reports.keyboard_run import add_published
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
    PrivacyLedger.of(tracked).note("model", "others", "", "keyboard-en-US-NWP", {"population": "others"})
    PrivacyLedger.of(tracked).note("reviewer", "others", "", "others 1", {"account": "ana"})
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
    assert " nothing " not in text[text.index("Launches in the ledger only") :]
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
    assert status["next"][0].startswith("see the fix for exit code 65")


def test_spends_stop_to_count_in_a_window_and_never_for_ever(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    ledger, now = PrivacyLedger.of(settings), clock.now()

    def at(days: int) -> None:
        monkeypatch.setattr(clock, "now", lambda: now + timedelta(days=days))

    ledger.register("people", budget(max_rho=1.0, window_days=10, lifetime_rho=3.0), "tests")
    for day, name, rho in ((0, "one", 0.5), (4, "two", 0.25)):
        at(day)
        ledger.reserve(
            population="people",
            launch_id=name,
            stage="fine_tune",
            spend=spend(rho),
            asked=Ceilings(rho=3.0),
            binding={},
        )
    at(6)
    ledger.change_budget("people", budget(max_rho=2.0, window_days=10, lifetime_rho=3.0), "tests", "more")
    at(30)
    entries = ledger.entries()
    window, ever = courses(entries, "people")
    assert (window.days, ever.days) == (10, None)
    drawn = {(when - now).days: (spent, ceiling) for when, spent, ceiling in window.points}
    assert drawn[0] == (0.5, 1.0)
    assert drawn[4] == (0.75, 1.0)
    assert drawn[6] == (0.75, 2.0)
    assert drawn[10] == (0.25, 2.0), "the first one counts no longer"
    assert drawn[30] == drawn[14] == (0.0, 2.0)
    assert [point[1] for point in ever.points][-1] == 0.75
    for course in (window, ever):
        for when, spent, _ in course.points[1:]:
            since = clock.counts_since(course.days, at=when)
            before = [entry for entry in entries if entry.created_at <= clock.written(when)]
            assert spent == added(each for each in releases(before, "people", "device") if each.written >= since)


def test_nobody_registered(settings: Settings):
    assert courses(PrivacyLedger.of(settings).entries(), "nobody") == []


def test_the_public_model_of_a_keyboard_is_the_file_that_its_stage_recorded(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "ledger_belief_now", lambda url: as_it_lies)
    bundle = add_published(settings.runs_dir, "some-launch")
    start = model_of(vocabulary.load(bundle / "vocabulary.json"), 6)
    stage = settings.runs_dir / "some-launch" / "public" / "adapt"
    stage.mkdir()
    export.save_model(start, stage / "model.safetensors")
    published = StageRecord.model_validate_json((bundle.parent / RESULT).read_bytes())
    outputs = {"model.safetensors": sha256(stage / "model.safetensors")}
    record = published.model_copy(update={"stage": "adapt", "outputs": outputs, "result": {}})
    (stage / RESULT).write_text(record_text(record), encoding="utf-8")
    graph = site.public_models(settings)("some-launch", bundle)
    assert graph is not None
    exact = stage.parent / "exact.onnx"
    export.export_onnx(start, exact)
    export.quantise(exact, stage.parent / "small.onnx")
    assert graph == (stage.parent / "small.onnx").read_bytes()
    (stage / "model.safetensors").write_bytes(b"other weights")
    assert site.public_models(settings)("some-launch", bundle) is None
