"""Approval of a launch by its reviewers, between report and publication."""

import json
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Context, Param
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from launch_file import LaunchFile
from notify import Notice
from stage_task import PERMANENT, SMALL_POD, asked, trial_days
from tacit_environment import of_review

ANSWER, COMMENT = "answer", "comment"
_COMMENT = "kept for ever in the privacy ledger, with your answer; it may stay empty"

_BODY = """
Launch `{{ ti.xcom_pull(task_ids='check')['launch_id'] }}` waits for an answer:
{{ ti.xcom_pull(task_ids='decide')['reasons'] | join('; ') }}.
**[Read the report](tacit/{{ dag.dag_id | urlencode }}/runs/{{ run_id | urlencode }}/report/report.html)**, in
MLflow too, before you answer. Its page one says:

{% for line in ti.xcom_pull(task_ids='report').get('summary', []) -%}
- {{ line }}
{% endfor -%}
WHAT FOLLOWS

{% if ti.xcom_pull(task_ids='report').get('concerns') %}
Each of its main concerns is a box below: an approval must tick every box.
{% endif %}
Your answer and your comment are recorded in the privacy ledger; the report's disclosure has SHA-256
`{{ ti.xcom_pull(task_ids='report')['disclosure_sha256'] }}`. A rejection is final. Without an answer in seven days
nothing is published; run this task again to be asked again.
"""


def what_follows(launch: LaunchFile, earlier: Sequence[str]) -> list[str]:
    """Lines of the question: the number of this answer, earlier approvals, and who gets the model first."""
    lines = list[str]()
    if days := trial_days(launch):
        lines.append(f"- after publication, some devices try it for {days} days; their logs decide")
    if launch.approvals > 1:
        lines.append(f"- this is answer {len(earlier) + 1} of {launch.approvals}, each by a different person")
    for name in earlier:
        answer = f"ti.xcom_pull(task_ids='{name}', key='{ANSWER}')"  # None if a person marked the task a success
        lines.append(f"{{% if {answer} %}}- {{{{ {answer}['responded_by_user']['id'] }}}} approved it{{% endif %}}")
    return lines


def boxes(context: Context) -> ParamsDict:
    """One box for each main concern of the report, which are known only once it is written, and one for a comment."""
    concerns = (context["ti"].xcom_pull(task_ids="report") or {}).get("concerns", [])
    return ParamsDict(
        {
            f"concern_{number}": Param(False, type="boolean", title="I accept", description=concern)
            for number, concern in enumerate(concerns, start=1)
        }
        | {COMMENT: Param(None, type=["null", "string"], maxLength=500, title="Comment", description=_COMMENT)}
    )


class LaunchApproval(ApprovalOperator):
    """Waits for one of the launch's reviewers; a rejection skips publication and is recorded.

    It can only hold a launch back: the automatic gates come before it, and it cannot override them. ``tacit review``
    reads the answer from Airflow's API, refuses an approval that leaves a box open, and records it in the privacy
    ledger, which publication reads: marking this task a success publishes nothing. Without an answer in time nothing is
    recorded: run the task again to ask again. If the policy requires several persons there is a task for each, and an
    account that has answered is not asked again; ``tacit`` checks that they are different persons.

    Args:
      earlier: names of the tasks that asked before.
    """

    def __init__(self, *, launch: LaunchFile, earlier: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(
            task_id=f"approve_{len(earlier) + 1}" if earlier else "approve",
            pool="cpu",
            executor_config=SMALL_POD,
            subject=f"Publish {', '.join(launch.features)} for {launch.locale}: "
            "{{ ti.xcom_pull(task_ids='check')['launch_id'] }}?",
            body=_BODY.replace("WHAT FOLLOWS\n", "".join(f"{line}\n" for line in what_follows(launch, earlier))),
            assigned_users=[{"id": reviewer, "name": reviewer} for reviewer in launch.reviewers],
            response_timeout=timedelta(days=7),
            defaults=self.REJECT,
            # An answer within a second of the question can fail the task, which then asks again.
            retries=2,
            retry_delay=timedelta(seconds=5),
            notifiers=[Notice("approval", launch)],
            on_failure_callback=Notice("failed", launch),
            **kwargs,
        )
        self.unanswered, self.earlier = Notice("unanswered", launch), tuple(earlier)

    def execute(self, context: Context) -> Any:
        if context["dag_run"].triggering_user_name == "dag_test":
            # `airflow dags test` has no server for answers and would wait for ever.
            raise AirflowSkipException(
                "an approval needs a server: run this launch under `make up`; finished stages do not run again"
            )
        self.params = boxes(context)
        answers = [context["ti"].xcom_pull(task_ids=name, key=ANSWER) for name in self.earlier]
        answered = [answer["responded_by_user"]["id"] for answer in answers if answer]
        self.assigned_users = [user for user in self.assigned_users or () if user["id"] not in answered]
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        self.params = boxes(context)
        # ApprovalOperator leaves no XCom on a rejection, so the answer is stored under a key of its own.
        answer = {key: event.get(key) for key in ("chosen_options", "responded_by_user", "responded_at")}
        if answer["responded_by_user"] and "error" not in event:
            answer |= self.write_down(context)
        else:
            self.unanswered(context)
        context["ti"].xcom_push(key=ANSWER, value=answer)
        return super().execute_complete(context, event)

    def write_down(self, context: Context) -> dict[str, Any]:
        """Record the answer in the ledger; ``tacit`` reads it, and its account, from Airflow's API."""
        ti = context["ti"]
        command = ["review", ti.xcom_pull(task_ids="check")["launch_id"]]
        command += ["--answered-in-airflow", ti.dag_id, ti.run_id, ti.task_id, str(ti.try_number)]
        done = asked(*command, variables=of_review(os.environ))
        if done.returncode == 0:
            return json.loads(done.stdout)
        failed = f"{self.task_id}: the answer is not in the ledger: {done.stderr.strip()[-2000:]}"
        raise AirflowFailException(failed) if done.returncode == PERMANENT else AirflowException(failed)
