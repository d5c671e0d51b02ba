"""Receipts of the privacy ledger in MLflow: what the ledger ended with when a launch last wrote to it.

A text of receipts (``pipeline.ledger.receipts.heads``) is a tag of the locale's experiment and of the launch's own run.
The last entry's hash covers all entries before it, so a ledger from which one of them was taken away shows.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pipeline.ground.settings import Settings
from pipeline.tracking import experiment
from pipeline.tracking.client import answering, connect

if TYPE_CHECKING:
    from pipeline.tracking.client import MlflowClient

_TAG = "tacit.ledger"


def of_locale(settings: Settings, locale: str) -> Mapping[str, str]:
    """The receipts that MLflow has of a locale and its launches, by where.

    Raises:
      ServiceUnavailable: MLflow does not answer.
    """
    client = connect(settings)
    with answering():
        logged = client.get_experiment_by_name(experiment.name(locale))
        if logged is None:
            return {}
        places = {f"experiment {logged.name} in MLflow": logged.tags.get(_TAG)}
        for run in client.search_runs([logged.experiment_id], "tags.`tacit.launch` LIKE '%'"):
            places[f"run {run.data.tags['tacit.launch']} in MLflow"] = run.data.tags.get(_TAG)
    return {place: text for place, text in places.items() if text}


def keep(client: "MlflowClient", experiment_id: str, run_id: str, heads: str) -> None:
    """Keep the receipts of the ledger's last entries."""
    with answering():
        client.set_experiment_tag(experiment_id, _TAG, heads)
        client.set_tag(run_id, _TAG, heads)
