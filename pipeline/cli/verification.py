"""``tacit verify``."""

from typing import Annotated

import typer

from pipeline.cli.launches.named import LaunchName
from pipeline.cli.support import AsJson, answer, command, open_existing
from pipeline.errors import PERMANENT


@command
def verify(
    launch: LaunchName,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="train again too, public and private, from the first step")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Derive again what a launch disclosed: its stages, its report, who took part, what ledger and MLflow hold.

    Stages are run or measured again in a folder of their own, so it takes as long as the audits and the comparison
    did; with --thorough as long as the whole launch, and the models must come out bit for bit. What cannot be checked
    here, as without the private folder, is not verified.

    Example: tacit verify demo-en-US-0123abcd
    """
    launched = open_existing(launch)
    from pipeline.verify.endings import summary
    from pipeline.verify.launch import SUBJECTS, THOROUGH
    from pipeline.verify.launch import verify as checks_of

    marks = {True: "ok", False: "FAILED", None: "unknown"}
    checks = []
    for check in checks_of(*launched, THOROUGH if thorough else SUBJECTS):
        checks.append(check)
        typer.echo(f"{marks[check.passed]:>8}  {check.id}: {check.detail}", err=as_json)
    found = summary(checks)
    answer(found.content | {"checks": [check.model_dump() for check in checks]}, as_json, text=found.text)
    if not found.ok:
        raise typer.Exit(PERMANENT)
