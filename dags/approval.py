"""The human gate between a launch's report and its publication."""

from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from launch_file import LaunchFile

ANSWER = "answer"

_BODY = """
Launch `{{ ti.xcom_pull(task_ids='check')['launch_id'] }}` passed every automatic gate.
{% set shown = ti.xcom_pull(task_ids='decide')['headline'] %}
{% set spent = shown if 'rho' in shown else ti.xcom_pull(task_ids='fine_tune') %}
- device-level rho {{ spent['rho'] }}, epsilon {{ spent['epsilon'] }} at delta {{ spent['delta'] }}
- report: {{ ti.xcom_pull(task_ids='report')['files'] | join(', ') }}
- decision: {{ ti.xcom_pull(task_ids='decide')['reasons'] | join('; ') }}

Read the report before you answer. Without an answer the launch is rejected after seven days.
"""


class LaunchApproval(ApprovalOperator):
    """Waits for one of the launch's reviewers; a rejection skips publication and is recorded.

    It can only hold a launch back: the automatic gates come before it and it cannot override them.
    """

    def __init__(self, *, launch: LaunchFile, **kwargs: Any) -> None:
        super().__init__(
            task_id="approve",
            pool="cpu",
            subject=f"Publish {launch.feature} for {launch.locale}?",
            body=_BODY,
            assigned_users=[{"id": reviewer, "name": reviewer} for reviewer in launch.reviewers],
            response_timeout=timedelta(days=7),
            defaults=self.REJECT,
            # An answer in the second after the question can fail the task; it then asks again.
            retries=2,
            retry_delay=timedelta(seconds=5),
            **kwargs,
        )

    def execute(self, context: Context) -> Any:
        if context["dag_run"].triggering_user_name == "dag_test":
            # `airflow dags test` has no server to answer through and would wait for ever.
            raise AirflowSkipException(
                "nobody can approve without a server: run this launch under `make up`; finished stages are not redone"
            )
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        # ApprovalOperator leaves no XCom on a rejection, so who answered what is kept under a key of our own.
        answer = {key: event.get(key) for key in ("chosen_options", "responded_by_user", "responded_at")}
        context["ti"].xcom_push(key=ANSWER, value=answer)
        return super().execute_complete(context, event)
