"""One DAG per launch file that has a ``schedule``: its public stages, ahead of the launch.

It trains the public model of one dated launch and then emits the partition of ``public_model/<locale>`` for that date,
which starts the launch itself (``launch.py``). The launch finds these stages done and continues from there. A backfill
of this DAG launches past dates; `make backfill` first forecasts their spends. If text, settings and code are those of
an earlier launch, the stages reuse its public model in seconds. No task here reads private text or spends privacy
budget.
"""

from contextlib import suppress
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, Asset, Context, XComArg, chain, get_parsing_context, task
from airflow.sdk.exceptions import AirflowException

from dates import UNDATED, ask_for_date, launch_date, on_schedule, public_model_asset, require_switched_on
from launch_file import LaunchFile, read_launch_files
from notify import Notice
from stage_graph import STAGES
from stage_task import SMALL_POD, CheckLaunch, Stage


def build(launch: LaunchFile) -> DAG:
    """Build the DAG of one launch file."""
    asset = public_model_asset(launch.locale)
    with DAG(
        dag_id=f"public_model-{launch.name}",
        dag_display_name=f"{launch.locale} public model: {launch.name}",
        description=f"public model of {launch.name}",
        doc_md=f"The public stages of `{launch.path.name}`, on its schedule; then the launch starts.",
        schedule=on_schedule(launch.schedule, launch.name),
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        tags=["public_model", launch.locale, *launch.features],
    ) as dag:
        check = CheckLaunch(launch=launch)
        public = [Stage(launch=launch, name=name) for name, stage in STAGES.items() if stage.group == "public"]

        chain(check, *public, emit(launch, asset))
    ask_for_date(dag)
    return dag


def emit(launch: LaunchFile, asset: Asset) -> XComArg:
    """Build the task that emits the partition of a date whose public model is ready."""

    @task(
        outlets=[asset],
        retries=2,
        pool="cpu",
        executor_config=SMALL_POD,
        execution_timeout=timedelta(minutes=5),
        on_failure_callback=Notice("failed", launch),
    )
    def announce(**context: Context) -> None:
        require_switched_on(context, launch.name)
        date = launch_date(context, launch.name)
        event = context["outlet_events"][asset]
        event.extra = {"launch_file": launch.name, "date": date}
        event.add_partitions(date or UNDATED)

    return announce()


for _launch in read_launch_files():
    if _launch.schedule and get_parsing_context().dag_id in (None, f"public_model-{_launch.name}"):
        # The launch's own DAG reports an invalid schedule.
        with suppress(AirflowException, ValueError, TypeError):
            globals()[f"public_model_{_launch.name}"] = build(_launch)
