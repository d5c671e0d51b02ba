"""One DAG per file in ``launches/``: the launch of one model for one locale.

A file with a ``schedule`` is launched whenever its public model is ready (``public_model.py``
has the schedule); a file without one is triggered by hand. Each task runs one stage in a
process of its own; this file imports neither torch nor MLflow nor tacit.
"""

import logging
import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, BaseOperator, Context, TaskGroup, TriggerRule, chain, get_parsing_context, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from approval import LaunchApproval
from dates import ask_for_date, on_public_model, on_schedule
from launch_file import LaunchFile, broken, read_launch_files
from notify import Notice
from stage_graph import STAGES
from stage_task import CLEARED, SMALL_POD, CheckLaunch, Publish, Stage

_log = logging.getLogger(__name__)
# Task groups of the graph; their tasks keep the names of their stages.
GROUPS = {
    "public": "Stages on public text alone, which launches share.",
    "private": "Stages on devices' text, with all spends before the evidence.",
    "evidence": "Evidence for the gates: attacks, and the comparison with the baseline.",
    "decision": "Gates, report, reviewers, publication.",
}


@task.short_circuit(
    task_id="launch_or_hold",
    retries=2,
    pool="cpu",
    executor_config=SMALL_POD,
    execution_timeout=timedelta(minutes=5),
)
def launch_or_hold(**context: Context) -> bool:
    """Return True to publish. A held launch fails here without a retry, so that its run is not green.

    `make launch` says itself how it ended: there a held launch only skips the later tasks.
    """
    asked = context["ti"].xcom_pull
    decided, launch_id = asked(task_ids="decide"), asked(task_ids="check")["launch_id"]
    if decided["decision"] == "launch":
        return True
    for reason in decided["reasons"]:
        _log.warning("held: %s", reason)
    _log.warning("nothing is published, and its spends stay spent: running it again spends nothing and changes nothing")
    _log.warning("the fix for each gate, and the remaining budget: tacit status %s", launch_id)
    _log.warning(
        "its report: runs/%s/public/report/report.html; more: docs/operations.md, 'A launch is held'", launch_id
    )
    if "TACIT_CONSOLE_FD" in os.environ:
        return False
    raise AirflowFailException(f"held: {'; '.join(decided['reasons'])}")


def build(launch: LaunchFile) -> DAG:
    """Build the DAG of one launch file."""
    with DAG(
        dag_id=launch.name,
        dag_display_name=launch.title,
        description=f"{', '.join(launch.features)} for {launch.locale}",
        doc_md=about(launch),
        schedule=on_public_model(launch.locale) if launch.schedule else None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        tags=["launch", launch.locale, *launch.features],
    ) as dag:
        check = CheckLaunch(launch=launch)
        groups = {name: TaskGroup(name, prefix_group_id=False, tooltip=tooltip) for name, tooltip in GROUPS.items()}
        tasks = dict[str, Stage]()
        for name, stage in STAGES.items():
            kind = Publish if name == "publish" else Stage
            # A trained launch is always reported: a permanently failed audit holds it, and its report says so.
            rule = TriggerRule.ALL_DONE_MIN_ONE_SUCCESS if stage.whatever_fails else TriggerRule.ALL_SUCCESS
            tasks[name] = kind(launch=launch, name=name, trigger_rule=rule, task_group=groups[stage.group])
            for before in [tasks[other] for other in stage.after] or [check]:
                between = release(launch, groups[stage.group]) if name == "publish" else []
                chain(before, *between, tasks[name])
    ask_for_date(dag)
    return dag


def release(launch: LaunchFile, group: TaskGroup) -> list[BaseOperator]:
    """Build the tasks between report and publication: the gates' decision, and each reviewer's answer."""
    with group:
        gate = launch_or_hold.override(on_failure_callback=Notice("held", launch))().operator
        approve = list[LaunchApproval]()
        for _ in range(launch.approvals if launch.reviewers else 0):
            approve.append(LaunchApproval(launch=launch, earlier=[task.task_id for task in approve]))
    return [gate, *approve]


def about(launch: LaunchFile) -> str:
    """Documentation page of a DAG: its launch file in full, and links to its results."""
    return (
        f"One launch, as `{launch.path.name}` states it. Change the file to change the launch.\n\n"
        f"**[Its newest launch](tacit/{launch.name}/latest)**: its state, its gates, its report. Each run has "
        "it in its tab *Launch*; the files are `runs/LAUNCH/public/report/`, and artifacts in MLflow."
        f"\n\n{CLEARED}\n\n```yaml\n{launch.path.read_text(encoding='utf-8')}\n```"
    )


def build_broken(launch: LaunchFile) -> DAG:
    """Build a DAG for a broken launch file; its one task fails with the problems that ``tacit check`` finds."""
    with DAG(
        dag_id=launch.name,
        dag_display_name=f"BROKEN: {launch.name}",
        description=f"BROKEN: {launch.error}"[:500],
        doc_md=f"`{launch.path.name}` cannot be launched:\n\n```\n{launch.error[:2000]}\n```",
        schedule=None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        tags=["launch", "broken"],
    ) as dag:
        # A name that no task of a launch has: Airflow removes tasks from a running DAG run that its DAG no longer has,
        # and with its check done and no other task left, it would mark the run a success.
        CheckLaunch(launch=launch, name="broken_launch_file")
    ask_for_date(dag)
    return dag


def build_or_say_why_not(launch: LaunchFile) -> DAG:
    """Build the DAG of a launch file; a broken file must not prevent the DAGs of the others."""
    if launch.error:
        return build_broken(launch)
    try:
        if launch.schedule:
            # The public model's DAG (``public_model.py``) uses it, but a bad one is reported here.
            on_schedule(launch.schedule, launch.name)
        return build(launch)
    except (AirflowException, ValueError, TypeError) as error:
        # For example a schedule that Airflow cannot parse.
        return build_broken(broken(launch.path, f"{launch.path.name}: {error}"))


for _launch in read_launch_files():
    # A task's own process needs one DAG; building the others would only cost time.
    if get_parsing_context().dag_id in (None, _launch.name):
        globals()[_launch.name] = build_or_say_why_not(_launch)
