"""Total privacy loss over all launches on a population, for the disclosure."""

from collections.abc import Collection
from dataclasses import replace

from federated.config.population import PopulationKey
from pipeline.ledger.budget import Ceilings
from pipeline.ledger.entries import Entry
from pipeline.ledger.loss import added, most_in_any, releases
from reports.disclosure.guarantee import Composition, PopulationSpend, WindowLoss


def composition(entries: Collection[Entry], population: PopulationKey, asked: Ceilings) -> Composition:
    """Total privacy loss of one device of a population, and the releases that it adds up.

    Args:
      asked: the launch file's ceilings, stated beside the loss.
    """
    spending = [entry for entry in entries if entry.population == population and entry.rho is not None]
    latest = {(entry.launch_id, entry.stage): entry for entry in spending}
    counted, window = releases(entries, population, "device"), asked.window
    failures = [replace(each, amount=of.failure) for each, of in zip(counted, latest.values(), strict=True)]
    return Composition(
        spends=[
            PopulationSpend(
                launch_id=entry.launch_id,
                stage=entry.stage,
                kind=entry.kind,
                rho=entry.rho or 0.0,
                split=entry.split,
                failure=entry.failure,
                reserved=release.written[: len("2026-01-31")],
            )
            for entry, release in zip(latest.values(), counted, strict=True)
        ],
        total_rho=added(counted),
        total_failure=added(failures),
        ceiling_rho=asked.rho,
        window=window
        and WindowLoss(days=window.days, ceiling_rho=window.rho, most_rho=most_in_any(counted, window.days)),
    )
