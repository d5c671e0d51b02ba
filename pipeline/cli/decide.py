"""``tacit review`` and ``tacit rollback``: record a person's decision."""

from typing import Annotated

import typer

from pipeline.cli.support import AsJson, LaunchName, OfPopulation, answer, command, open_existing
from pipeline.ground import settings


@command
def rollback(
    locale: Annotated[str, typer.Argument(help="such as en-US")],
    feature: Annotated[str, typer.Option(help="NWP, SC or OTF")] = "NWP",
    population: OfPopulation = None,
    *,
    reason: Annotated[str, typer.Option(help="reason, recorded in the ledger")],
    as_json: AsJson = False,
) -> None:
    """Restore the users' previous version; a second rollback restores the one before it.

    Example: tacit rollback en-US --reason "suggests nothing after numbers"
    """
    from federated.config.population import population_key
    from pipeline.publication import approvals
    from pipeline.publication.registry import model_name

    here = settings.load()
    model_name(locale, feature)  # Refuses an invalid name before it connects to MLflow.
    of = None if population is None else population_key(population)
    done = approvals.rollback(locale, feature, here, reason, settings.account(), of)
    if (here.runs_dir / done.launch_id).is_dir():
        approvals.announce(*open_existing(done.launch_id))
    text = f"{done.registered_model}: version {done.champion} is champion again, {done.rolled_back} is not"
    answer(done, as_json, text=text)


@command
def review(
    launch: LaunchName,
    verdict: Annotated[
        str | None, typer.Option("--answer", help="approve or reject; without it, only the state")
    ] = None,
    reason: Annotated[str, typer.Option(help="reason, recorded in the ledger")] = "",
    accept: Annotated[
        list[int] | None, typer.Option(help="number of a main concern that the approval accepts; repeatable")
    ] = None,
    report: Annotated[str | None, typer.Option(help="SHA-256 of the reviewed disclosure.json")] = None,
    answered_in_airflow: Annotated[
        tuple[str, str, str, int] | None,
        typer.Option(metavar="DAG RUN TASK TRY", help="record the answer in Airflow of this attempt of a task"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the state of a launch; with --answer, permanently record the answer of the account that runs the command.

    Without --answer it lists the main concerns of the report; an approval accepts each by its number.

    Example: tacit review en-US-0123abcd --answer approve --accept 1 --accept 2
    """
    from pipeline.publication.answers import Question
    from pipeline.publication.review import WaitingReview, answer_review, review_state

    config, run, here = open_existing(launch)
    if verdict is not None and answered_in_airflow is not None:
        raise ValueError("--answer: the answer is read from Airflow; give one of the two options")
    if verdict is None and answered_in_airflow is None:
        now = review_state(config, run, here)
    else:
        names, asked = Question.model_fields, answered_in_airflow
        question = Question.model_validate(dict(zip(names, asked, strict=True))) if asked else None
        now = answer_review(
            config,
            run,
            here,
            settings.account(),
            verdict,
            reason=reason,
            accept=accept or (),
            report=report,
            question=question,
        )
    lines = [f"launch {now.launch_id}: {now.state}" + f": {now.detail}" * bool(now.detail)]
    if isinstance(now, WaitingReview):
        lines += [f"  {line}" for line in now.summary]
        lines += ["Main concerns:"] * bool(now.concerns)
        lines += [f"  {number}. {concern}" for number, concern in enumerate(now.concerns, start=1)]
    answer(now, as_json, text="\n".join(lines))
