"""What counts of what a tracking server gives back: records whose digest the ledger holds.

Whoever reaches the server can write there, and a file of it is fetched by a digest that the same server states.
"""

import logging
import os
from pathlib import Path

from pydantic import ValidationError

from pipeline.errors import LedgerMissing
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run_dir import RESULT, Fetch, RunDir, StageRecord, receipt_digest, record_text
from pretrain.files import write_text

_log = logging.getLogger(__name__)


def write_down(record: StageRecord, ledger_url: str) -> dict[str, str]:
    """The receipt of a finished stage's record in the ledger; none where there is no ledger yet.

    A stage that spends was refused without one, and a rehearsal may come before it.
    """
    try:
        ledger = PrivacyLedger(ledger_url)
    except LedgerMissing:
        return {}
    return {"result": ledger.bind_result(record.launch_id, record.stage, receipt_digest(record))}


def written_down(record: StageRecord, run: RunDir, ledger_url: str) -> StageRecord:
    """A public stage's record that was made before there was a ledger, written down in it now; any other as it is."""
    if record.content is None or "result" in record.ledger or not (receipt := write_down(record, ledger_url)):
        return record
    record = record.model_copy(update={"ledger": record.ledger | receipt})
    write_text(run.public(record.stage) / RESULT, record_text(record))
    return record


def is_known(record: StageRecord, ledger_url: str) -> bool:
    """Whether the ledger holds this record as the last of its stage.

    Guarantee: a record that no stage under this ledger made, or that was changed since, is not known.
    """
    try:
        bound = PrivacyLedger(ledger_url).bound_results(record.launch_id).get(record.stage)
    except LedgerMissing:
        return False
    return bound is not None and bound[0] == receipt_digest(record)


def fetch_known(fetch: Fetch, ledger_url: str, launch_id: str) -> Fetch:
    """``fetch`` that leaves records of a launch where they are unless the ledger knows them.

    Other files are fetched as they come: ``RunDir`` holds them against the digests of their record.
    """

    def fetch_it(stage: str, filename: str, destination: Path) -> bool:
        if filename != RESULT:
            return fetch(stage, filename, destination)
        fetched = destination.with_name(f".{RESULT}.{os.getpid()}.tmp")
        try:
            if not fetch(stage, filename, fetched):
                return False
            record = StageRecord.model_validate_json(fetched.read_bytes())
            if (record.launch_id, record.stage) != (launch_id, stage) or not is_known(record, ledger_url):
                _log.warning(
                    "%s/%s: the ledger does not know what MLflow holds of it, so it does not count", launch_id, stage
                )
                return False
            fetched.replace(destination)
        except ValidationError:
            _log.warning("%s/%s: what MLflow holds is no record, so it does not count", launch_id, stage)
            return False
        finally:
            fetched.unlink(missing_ok=True)
        return True

    return fetch_it
