"""One DAG for the whole installation: once a day, what is private of launches goes whose time is over.

It waits for no launch and needs none: text outlives its window by a day at most, whether its launch ended or not. What
could not be erased fails the task, and people are told; its log names each such launch, and why.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Context

from launch_file import HOME, LaunchFile
from stage_task import TacitOperator

# Whom a notice names, where the other DAGs name their launch file.
_ALL = LaunchFile(
    path=HOME, name="tacit-expiry", locale="", features=(), schedule=None, reviewers=(), on_gpu=frozenset()
)


class EraseExpired(TacitOperator):
    """``tacit erase --expired``."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            launch=_ALL,
            task_id="erase",
            queue="cpu",
            pool="cpu",
            execution_timeout=timedelta(hours=12),  # with a retention time, launches are verified first
            doc_md="`tacit erase --expired`; see `tacit erase --help`.",
            **kwargs,
        )

    def command(self, context: Context) -> list[str]:
        return ["erase", "--expired", "--json"]


with DAG(
    dag_id=_ALL.name,
    description="erases text and keys of launches whose time is over",
    doc_md=__doc__,
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=False,  # a window that nobody switched on would be none
    tags=["privacy"],
) as dag:
    EraseExpired()
