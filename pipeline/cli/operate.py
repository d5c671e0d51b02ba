"""``tacit verify``, ``tacit erase`` and ``tacit withdraw``: a finished launch derived again, or erased."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.support import AsJson, LaunchName, answer, command, completions, open_existing
from pipeline.ground import settings
from pipeline.ground.errors import PERMANENT

if TYPE_CHECKING:
    from pipeline.verify.check import Check
    from pipeline.verify.expiry import Sweep


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
    config, run, here = open_existing(launch)
    from pipeline.verify.launch import verify_launch

    marks = {True: "ok", False: "FAILED", None: "unknown"}

    def on_check(check: "Check") -> None:
        typer.echo(f"{marks[check.passed]:>8}  {check.id}: {check.detail}", err=as_json)

    done = verify_launch(config, run, here, thorough=thorough, on_check=on_check)
    answer(done, as_json, text=str(done))
    if not done.ok:
        raise typer.Exit(PERMANENT)


@command
def erase(
    launch: Annotated[
        str | None,
        typer.Argument(
            metavar="LAUNCH",
            help="a launch file, a launch id, or how an id begins; left out with --expired",
            autocompletion=completions,
        ),
    ] = None,
    expired: Annotated[
        bool,
        typer.Option(
            "--expired",
            help="every launch that was over longer ago than TACIT_RETENTION_DAYS, or has outlived its window",
        ),
    ] = False,
    unverified: Annotated[bool, typer.Option("--unverified", help="even if it does not verify")] = False,
    as_json: AsJson = False,
) -> None:
    """Erase a finished launch's noise keys, client text and participation records, once it verifies.

    With --expired, run it once a day: text goes when its window is over, whether its launch verifies, was held, never
    ended or is damaged. One launch that cannot be erased keeps no other from it; then the command ends with 65 or 75.

    Example: tacit erase demo-en-US-0123abcd
    """
    from pipeline.verify.erase import erase_named
    from pipeline.verify.expiry import sweep

    if (launch is None) == (not expired):
        raise ValueError("launch: name one, or --expired for all whose time is over")
    if launch is None:
        _answer_sweep(sweep(settings.load()), as_json)
        return
    done = erase_named(launch, settings.load(), unverified=unverified)
    answer(done, as_json, text=f"{done}; its public files and the ledger stay")


@command
def withdraw(
    population: Annotated[str, typer.Argument(help="a registered population, as 'tacit ledger show' lists it")],
    ids: Annotated[
        str,
        typer.Option(
            help="a file of client ids, one a line, or Parquet or JSON lines with client_id; - for lines of input"
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Leave the devices of people who withdrew out of a population for good, and erase launches that read their text.

    Ids are the same only byte for byte. The ledger keeps keyed hashes of them and no id. What is private of each launch
    here that holds text of one of them is erased, finished or not; released models stay. The same list again finishes
    what an interruption left, as does 'tacit erase --expired'.

    Example: tacit withdraw en-US --ids withdrawn.txt
    """
    from pipeline.verify import expiry, withdrawal

    listed = withdrawal.read_ids(None if ids == "-" else Path(ids))
    done = expiry.withdraw(settings.load(), population, listed)
    seen = f"{population}: left out from now on; launches here have read text of {done.seen} of these devices"
    _answer_sweep(done, as_json, seen)


def _answer_sweep(done: "Sweep", as_json: bool, *sentences: str) -> None:
    """Say what was erased and what was not, and end with the code of that."""
    kept = [f"kept: {failure.launch_id}: {failure.why}" for failure in done.kept]
    answer(done, as_json, text="\n".join([*sentences, f"erased: {', '.join(done.erased) or 'none'}", *kept]))
    if done.exit_code:
        raise typer.Exit(done.exit_code)
