"""One DAG for the whole installation: once a day, it erases the private files of expired launches.

It depends on no launch: text outlives its window by at most a day, whether its launch ended or not. If an erasure
fails, the task fails with a notification; its log names each such launch with the reason.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Context

from launch_file import HOME, LaunchFile
from stage_task import TacitOperator

# Name in notifications, in place of the other DAGs' launch file.
_ALL = LaunchFile(path=HOME, name="tacit-expiry")


class EraseExpired(TacitOperator):
    """``tacit erase --expired``."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            launch=_ALL,
            task_id="erase",
            execution_timeout=timedelta(hours=12),  # with a retention time, launches are verified first
            doc_md="`tacit erase --expired`; see `tacit erase --help`.",
            **kwargs,
        )

    def command(self, context: Context) -> list[str]:
        return ["erase", "--expired", "--json"]


with DAG(
    dag_id=_ALL.name,
    description="erases text and keys of expired launches",
    doc_md=__doc__,
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=False,  # a paused DAG would not enforce the window
    tags=["privacy"],
) as dag:
    EraseExpired()
