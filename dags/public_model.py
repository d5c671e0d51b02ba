"""One DAG per launch file that has a ``schedule``: its public stages, ahead of the launch.

It trains the public model of one dated launch and then emits ``public_model/<locale>`` with that
date, which starts the launch itself (``launch.py``). The launch finds these stages done and goes on
from there. Where text, settings and code are those of an earlier launch, the stages take its public
model over in seconds. Nothing here touches private text or spends privacy budget.
"""

from contextlib import suppress
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, Asset, Context, Metadata, get_parsing_context, task
from airflow.sdk.exceptions import AirflowException

from launch_file import LaunchFile, read_launch_files
from stage_task import CheckLaunch, Stage, date_param, launch_date, public_model_asset, require_schedule


def build(launch: LaunchFile) -> DAG:
    """The DAG of one launch file; its last paragraph is the graph."""
    asset = public_model_asset(launch.locale)
    with DAG(
        dag_id=f"public_model-{launch.name}",
        description=f"public model of {launch.name}",
        doc_md=f"The public stages of `{launch.path.name}`, on its schedule; then the launch starts.",
        schedule=launch.schedule,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        params={"date": date_param()},
        tags=["public_model", launch.locale, *launch.features],
    ) as dag:
        check = CheckLaunch(launch=launch)
        ingest_public = Stage(launch=launch, name="ingest_public")
        pretrain = Stage(launch=launch, name="pretrain")

        check >> ingest_public >> pretrain >> emit(launch.name, asset)
    return dag


def emit(launch_name: str, asset: Asset):
    """The task that tells Airflow which dated launch now has its public model."""

    @task(outlets=[asset], retries=2, pool="cpu", execution_timeout=timedelta(minutes=5))
    def announce(**context: Context):
        yield Metadata(asset, {"launch_file": launch_name, "date": launch_date(context, launch_name)})

    return announce()


for _launch in read_launch_files():
    if _launch.schedule and get_parsing_context().dag_id in (None, f"public_model-{_launch.name}"):
        # A schedule that is none is said by the launch's own DAG.
        with suppress(AirflowException, ValueError, TypeError):
            require_schedule(_launch.schedule)
            globals()[f"public_model_{_launch.name}"] = build(_launch)
