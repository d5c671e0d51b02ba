"""What a population lost over time, against the ledger's own sums."""

from datetime import timedelta

import pytest

from pipeline.cli.launches.courses import courses
from pipeline.ground.settings import Settings
from pipeline.ledger import clock
from pipeline.ledger.budget import Asked
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.loss import total_spent
from tests.helpers.launches.pipeline_launch import spend
from tests.helpers.launches.spends import budget


def test_spends_stop_to_count_in_a_window_and_never_for_ever(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    ledger, now = PrivacyLedger(settings.ledger_url), clock.now()

    def at(days: int) -> None:
        monkeypatch.setattr(clock, "now", lambda: now + timedelta(days=days))

    ledger.register("people", budget(max_rho=1.0, window_days=10, lifetime_rho=3.0), "tests")
    for day, name, rho in ((0, "one", 0.5), (4, "two", 0.25)):
        at(day)
        ledger.reserve(
            population="people", launch_id=name, stage="fine_tune", spend=spend(rho), asked=Asked(rho=3.0), binding={}
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
            assert spent == total_spent(before, "people", "device", since)


def test_nobody_registered(settings: Settings):
    assert courses(PrivacyLedger(settings.ledger_url).entries(), "nobody") == []
