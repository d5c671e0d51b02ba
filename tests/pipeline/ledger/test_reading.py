"""Operations read the entries of their population or of their kind, but for the check that reads them all."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from pipeline.ground.errors import ReleaseRefused
from pipeline.ground.settings import Settings
from pipeline.ledger import rows
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.preflight.foresee import forecast, foresee
from pipeline.publication.approvals import rollback
from pipeline.releases.release import Outlook
from pipeline.releases.terms import Terms
from pipeline.run import runner
from pipeline.verify import expiry
from tests.helpers.launches.installed import registered
from tests.helpers.launches.pipeline_launch import launch_config
from tests.helpers.launches.spends import device, item, reserve


def refused_rollback(settings: Settings) -> None:
    with suppress(ReleaseRefused):  # there is no version to restore
        rollback("en-US", "NWP", settings, "worse", "me")


TERMS = Terms(launch_config(), Outlook(0.0, None), {"discover": item(1.0), "fine_tune": device(0.1)})
OPERATIONS: dict[str, Callable[[Settings], object]] = {
    "withdraw": lambda settings: PrivacyLedger.of(settings).withdraw("people", ["a"]),
    "withdrawn": lambda settings: PrivacyLedger(settings.ledger_url).withdrawn("people"),
    "sweep": expiry.sweep,
    "reserve": lambda settings: reserve(PrivacyLedger.of(settings), "next", device(0.1)),
    "budget left": lambda settings: runner.budget_left(PrivacyLedger.of(settings), "people"),
    "foresee": lambda settings: foresee(TERMS, settings, "next"),
    "forecast": lambda settings: forecast(TERMS, settings, ["next"], lambda _: []),
    "rollback": refused_rollback,
}


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_no_operation_reads_what_grows_with_other_populations(
    tracked: Settings, monkeypatch: pytest.MonkeyPatch, operation: Callable[[Settings], object]
):
    ledger, read, select = registered(PrivacyLedger.of(tracked), "people"), list[object](), rows.selected
    ledger.withdraw("people", ["a"])
    reserve(ledger, "first", device(0.1))
    operation(tracked)
    monkeypatch.setattr(rows, "selected", lambda *given: [read.append(each) or each for each in select(*given)])
    operation(tracked)
    alone = len(read)
    registered(ledger, *(others := [f"others-{number}" for number in range(9)]))
    for name in others:
        reserve(ledger, name, device(0.1), population=name)
    read.clear()
    operation(tracked)
    assert len(read) == alone < len(ledger.entries()) // 2
