"""Cumulative privacy loss of a population's devices over time, from the ledger, for the site's figures."""

from collections.abc import Collection
from datetime import datetime, timedelta

from federated.config.population import PopulationKey
from pipeline.ledger import clock
from pipeline.ledger.budget import Asked, ceilings, registered
from pipeline.ledger.entries import Entry
from pipeline.ledger.loss import releases, together
from reports.figures.trends import Course


def courses(entries: Collection[Entry], population: PopulationKey) -> list[Course]:
    """Rho of one device of a population against each of its ceilings, from its registration to now.

    What was spent is as the ledger counts it by now: what came of a reservation, since that was made.
    """
    theirs = [entry for entry in entries if entry.population == population]
    changes = [entry.created_at for entry in theirs if entry.kind in ("register", "budget")]
    counted, now = releases(theirs, population, "device"), clock.written(clock.now())

    def ceiling(days: int | None, at: str) -> float | None:
        then = registered((entry for entry in theirs if entry.created_at <= at), population)
        return next((each.amount for each in ceilings(then, Asked(), "device") if each.days == days), None)

    def point(days: int | None, at: str) -> tuple[datetime, float, float | None]:
        since = clock.counts_since(days, at=datetime.fromisoformat(at))
        spent = together(each for each in counted if since <= each.written <= at)[0]
        return datetime.fromisoformat(at), spent, ceiling(days, at)

    rows = []
    for days in dict.fromkeys(each.days for each in ceilings(registered(theirs, population), Asked(), "device")):
        times = {*changes, *(each.written for each in counted), now}
        if days is not None:  # It stops to count just after the last window that has it.
            over = timedelta(days=days, microseconds=1)
            times |= {clock.written(datetime.fromisoformat(each.written) + over) for each in counted}
        rows.append(Course(population, days, tuple(point(days, at) for at in sorted(times) if at <= now)))
    return rows
