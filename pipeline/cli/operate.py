"""``tacit verify``, ``challenge``, ``erase`` and ``withdraw``: derive a finished launch again, or erase launches."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.support import AsJson, LaunchName, answer, command, completions, open_existing
from pipeline.ground import settings
from pipeline.ground.errors import PERMANENT
from pipeline.telemetry.logs import printable

if TYPE_CHECKING:
    from pipeline.verify.check import Check
    from pipeline.verify.expiry import Sweep

_MARKS = {True: "ok", False: "FAILED", None: "unknown"}


@command
def verify(
    launch: LaunchName,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="also repeat public and private training, from the first step")
    ] = False,
    public: Annotated[
        bool,
        typer.Option("--public", help="check public files alone: no ledger, no MLflow; LAUNCH may be a folder public/"),
    ] = False,
    key: Annotated[
        str | None, typer.Option(help="with --public: SHA-256 of the proof/launch.pub that you trust")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Derive a launch's disclosure again: its stages, its report, its participation, and its records elsewhere.

    Stages are run or measured again in a separate folder, which takes as long as the audits and the comparison; with
    --thorough as long as the whole launch, and the models must be equal bit for bit. A check that cannot be made here,
    as without the private folder, counts as not verified.

    With --public it checks the proof and all that public files decide, anywhere, without any of them.

    Example: tacit verify demo-en-US-0123abcd
    """
    from pipeline.verify.launch import SUBJECTS, THOROUGH, verify, verify_public

    if public and thorough:
        raise ValueError("--thorough: repeats training, which needs private files; leave it or --public out")
    if key and not public:
        raise ValueError("--key: is compared with --public; add that option")
    if public:
        here = settings.load()
        checks = verify_public(_public_folder(launch, here), here, key)
    else:
        config, run, here = open_existing(launch)
        checks = verify(config, run, here, THOROUGH if thorough else SUBJECTS)
    _show_checks(checks, as_json)


def _show_checks(checks: Iterable["Check"], as_json: bool) -> None:
    """Print each check as it is made, then their summary; exit with 65 unless all passed."""
    from pipeline.verify.check import verification

    made = []
    for check in checks:
        typer.echo(printable(f"{_MARKS[check.passed]:>8}  {check.id}: {check.detail}"), err=as_json)
        made.append(check)
    done = verification(made)
    answer(done, as_json, text=str(done))
    if not done.ok:
        raise typer.Exit(PERMANENT)


def _public_folder(launch: str, here: settings.Settings) -> Path:
    """Folder of a launch's public files: a launch of this machine, or any folder that holds them."""
    from pipeline.run.named import begun_id

    if (folder := Path(launch)).is_dir():
        return folder / "public" if (folder / "public").is_dir() else folder
    return here.runs_dir / begun_id(launch, here) / "public"


@command
def challenge(
    launch: LaunchName,
    rounds: Annotated[str, typer.Option(help="their numbers from 1, as in 3,11")],
    as_json: AsJson = False,
) -> None:
    """Run chosen rounds of a launch's training again, and compare them with what training committed to.

    Training ends with the root of a Merkle tree over its rounds, which the disclosure states. Choose rounds afterwards:
    one whose cohort, released sum or model is not the committed one is named. It needs the launch's private folder and
    the kind of processor that trained, and takes up to an eighth of the training for a round.

    Example: tacit challenge demo-en-US-0123abcd --rounds 3,11
    """
    from pipeline.verify.challenge import challenge as core

    if not all(part.strip().isdecimal() for part in rounds.split(",")):
        raise ValueError(f"rounds: {rounds!r} is not a list of numbers; give them as in --rounds 3,11")
    _show_checks(core(*open_existing(launch), {int(part) for part in rounds.split(",")}), as_json)


@command
def erase(
    launch: Annotated[
        str | None,
        typer.Argument(
            metavar="LAUNCH",
            help="a launch file, its name or locale, a launch id, or the beginning of an id; not with --expired",
            autocompletion=completions,
        ),
    ] = None,
    expired: Annotated[
        bool,
        typer.Option(
            "--expired",
            help="every launch that ended more than TACIT_RETENTION_DAYS ago, or whose text window is over",
        ),
    ] = False,
    unverified: Annotated[bool, typer.Option("--unverified", help="erase it even if it does not verify")] = False,
    as_json: AsJson = False,
) -> None:
    """Erase a finished launch's noise keys, client text and participation records, after verifying it.

    Run it once a day with --expired: it erases text when its window is over, even if the launch does not verify, was
    held, never finished or is damaged. If one launch cannot be erased, the others still are, and the command exits with
    65 or 75.

    Example: tacit erase demo-en-US-0123abcd
    """
    from pipeline.verify.erase import erase_named
    from pipeline.verify.expiry import sweep

    if (launch is None) == (not expired):
        raise ValueError("launch: name one, or give --expired for all expired launches")
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
            help="a file of client ids, one a line, or Parquet, JSON lines or CSV with client_id; - for standard input"
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Exclude the devices of people who withdrew permanently, and erase launches that read their text.

    Ids are compared in any spelling: case, spaces, Unicode form, a trailing .0, the writing of a UUID. The ledger keeps
    keyed hashes of them and no id. The private files of each launch here that holds their text are erased, finished or
    not; released models stay. After an interruption, run it again with the same list, or run 'tacit erase --expired'.

    Example: tacit withdraw en-US --ids withdrawn.txt
    """
    from pipeline.verify import expiry, withdrawal

    listed = withdrawal.read_ids(None if ids == "-" else Path(ids))
    done = expiry.withdraw(settings.load(), population, listed)
    seen = f"{population}: devices excluded; launches here have read text of {done.seen} of them"
    _answer_sweep(done, as_json, seen)


def _answer_sweep(done: "Sweep", as_json: bool, *sentences: str) -> None:
    """Print the erased and the kept launches, and exit with the code of the failures."""
    kept = [f"kept: {failure.launch_id}: {failure.why}" for failure in done.kept]
    answer(done, as_json, text="\n".join([*sentences, f"erased: {', '.join(done.erased) or 'none'}", *kept]))
    if done.exit_code:
        raise typer.Exit(done.exit_code)
