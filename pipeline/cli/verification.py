"""``tacit verify``, ``tacit erase`` and ``tacit withdraw``."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from federated.config.population import population_key
from pipeline.cli.launches import named
from pipeline.cli.launches.named import LaunchName, complete
from pipeline.cli.support import AsJson, answer, command, open_existing
from pipeline.ground import settings
from pipeline.ground.errors import PERMANENT

if TYPE_CHECKING:
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
    launched = open_existing(launch)
    from pipeline.verify.check import summary
    from pipeline.verify.launch import SUBJECTS, THOROUGH
    from pipeline.verify.launch import verify as checks_of

    marks = {True: "ok", False: "FAILED", None: "unknown"}
    checks = []
    for check in checks_of(*launched, THOROUGH if thorough else SUBJECTS):
        checks.append(check)
        typer.echo(f"{marks[check.passed]:>8}  {check.id}: {check.detail}", err=as_json)
    result = summary(checks)
    answer(result.content | {"checks": [check.model_dump() for check in checks]}, as_json, text=result.text)
    if not result.ok:
        raise typer.Exit(PERMANENT)


@command
def erase(
    launch: Annotated[
        str | None,
        typer.Argument(
            metavar="LAUNCH",
            help="a launch file, a launch id, or how an id begins; left out with --expired",
            autocompletion=complete,
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
    from pipeline.run.known import run_folder
    from pipeline.verify import erase as core
    from pipeline.verify import expiry

    if (launch is None) == (not expired):
        raise ValueError("launch: name one, or --expired for all whose time is over")
    if launch is None:
        _swept(expiry.sweep(settings.load()), as_json)
        return
    here = settings.load()
    # A launch whose file is gone has no other name than its folder's.
    is_folder = unverified and (here.runs_dir / launch / "private").is_dir()
    run = run_folder(here, launch if is_folder else named.that_began(launch, here))
    try:
        config = named.kept_config(here, run.launch_id)
    except ValueError:
        if not unverified:
            raise
        stated = core.forget(run, here, core.ASKED)
    else:
        stated = core.erase(config, run, here, unverified=unverified)
    answer(stated, as_json, text=f"{core.in_words(stated)}; its public files and the ledger stay")


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
    from pipeline.verify import withdrawal
    from pipeline.verify.expiry import sweep

    here = settings.load()
    seen = withdrawal.withdraw(here, population_key(population), withdrawal.read_ids(None if ids == "-" else Path(ids)))
    sentence = f"{population}: left out from now on; launches here have read text of {seen} of these devices"
    _swept(sweep(replace(here, retention_days=None)), as_json, sentence, {"population": population, "seen": seen})


def _swept(done: "Sweep", as_json: bool, sentence: str = "", more: Mapping[str, str] = MappingProxyType({})) -> None:
    """Say what was erased and what was not, and end with the code of that."""
    failures = [f"kept: {failure.launch_id}: {failure.why}" for failure in done.failures]
    text = "\n".join([*([sentence] if sentence else []), f"erased: {', '.join(done.erased) or 'none'}", *failures])
    content = {**more, "erased": done.erased, "kept": [asdict(failure) for failure in done.failures]}
    answer(content, as_json, text=text)
    if done.exit_code:
        raise typer.Exit(done.exit_code)
