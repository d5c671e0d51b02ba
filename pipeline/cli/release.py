"""``tacit predict``, ``tacit rollback`` and ``tacit site``."""

import logging
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from federated.config.population import population_key
from pipeline.cli.launches.named import LaunchName
from pipeline.cli.support import AsJson, answer, command, open_existing, show_state
from pipeline.ground import settings
from pretrain.config import LOCALE
from pretrain.reading.paths import require_folder

_log = logging.getLogger(__name__)
_MOST_CHARACTERS = 10_000
_BUNDLE = "give a folder that 'publish' wrote, or a locale as in en-US"

OfPopulation = Annotated[
    str | None,
    typer.Option(
        help="NAME, or SOURCE:NAME of a simulation, as 'tacit ledger show' lists it; default: the first people"
    ),
]


@command
def predict(
    bundle: Annotated[str, typer.Argument(help="a bundle folder, or a locale such as en-US for its champion")],
    text: Annotated[str, typer.Argument(help="what has been typed so far")],
    feature: Annotated[str, typer.Option(help="with a locale: NWP, SC or OTF")] = "NWP",
    population: OfPopulation = None,
    as_json: AsJson = False,
) -> None:
    """The three likeliest next words, as they are usually written.

    A locale's champion is the one that the ledger holds. A folder is used as it is; the answer says whether the ledger
    knows its bundle.json as one that a launch registered.

    Example: tacit predict en-US "see you"
    """
    of = None if population is None else population_key(population)
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"text: {len(text):,} characters; give at most {_MOST_CHARACTERS:,}, the end of it")
    if not re.fullmatch(LOCALE, bundle):
        # Before onnxruntime, which is slow to import.
        require_folder(Path(bundle or "nothing"), "bundle", _BUNDLE)
    from pipeline.publication.registry import Registry
    from pipeline.run.known import is_known_bundle
    from pretrain.predictor import KeyboardPredictor

    registered = True
    if Path(bundle).is_dir():
        words = KeyboardPredictor(Path(bundle)).suggest(text, 3)
        registered = is_known_bundle(Path(bundle), settings.load())
        if not registered:
            _log.warning("%s: the ledger here knows no launch that registered this bundle", bundle)
    else:
        with tempfile.TemporaryDirectory() as folder:
            registry = Registry(settings.load())
            got = registry.download(registry.name_for(bundle, feature, of), "champion", Path(folder))
            words = KeyboardPredictor(got).suggest(text, 3)
    answer({"text": text, "words": words, "known": registered}, as_json, text=" | ".join(words))


@command
def rollback(
    locale: Annotated[str, typer.Argument(help="such as en-US")],
    feature: Annotated[str, typer.Option(help="NWP, SC or OTF")] = "NWP",
    population: OfPopulation = None,
    *,
    reason: Annotated[str, typer.Option(help="why; it stands in the ledger")],
    as_json: AsJson = False,
) -> None:
    """Give users back the version they had before; again, and they get the one before that.

    Example: tacit rollback en-US --reason "suggests nothing after numbers"
    """
    from pipeline.publication import approvals
    from pipeline.publication.registry import model_name

    here = settings.load()
    model_name(locale, feature)  # What can be no name is refused before anything is asked.
    of = None if population is None else population_key(population)
    done = approvals.rollback(locale, feature, here, reason, settings.account(), of)
    if (here.runs_dir / done["launch_id"]).is_dir():
        show_state(*open_existing(done["launch_id"]))
    text = f"{done['registered_model']}: version {done['champion']} is champion again, {done['rolled_back']} is not"
    answer(done, as_json, text=text)


@command
def review(
    launch: LaunchName,
    verdict: Annotated[
        str | None, typer.Option("--answer", help="approve or reject; without it, only the state")
    ] = None,
    reason: Annotated[str, typer.Option(help="why; it stands in the ledger")] = "",
    accept: Annotated[
        list[int] | None, typer.Option(help="number of a main concern that the approval accepts; once for each")
    ] = None,
    report: Annotated[str | None, typer.Option(help="SHA-256 of the disclosure.json that was read")] = None,
    answered_in_airflow: Annotated[
        tuple[str, str, str, int] | None,
        typer.Option(metavar="DAG RUN TASK TRY", help="record the answer that Airflow has of this try of a task"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the state of a launch; with --answer, record the answer of the account that runs this, for good.

    Without an answer it lists the main concerns of the report; an approval accepts each by its number.

    Example: tacit review en-US-0123abcd --answer approve --accept 1 --accept 2
    """
    from pipeline.ledger.ledger import PrivacyLedger
    from pipeline.publication import airflow_answer, approvals
    from pipeline.tracking.mlflow_tracker import receipts_of_locale

    config, run, here = open_existing(launch)
    ledger, account = PrivacyLedger.of(here), f"os:{settings.account()}"
    if verdict is not None and answered_in_airflow is not None:
        raise ValueError("--answer: the answer in Airflow is Airflow's to tell; give one of the two options")
    if verdict is None and answered_in_airflow is None:
        now = approvals.standing(config, run, ledger.entries())
    else:
        ledger.require_whole(receipts_of_locale(here, config.locale))
        reported = run.result("report")
        if verdict == "approve":
            _require_accepted(reported["concerns"], accept or [])
        if answered_in_airflow is not None:
            names = zip(approvals.Question.model_fields, answered_in_airflow, strict=True)
            question, concerns = approvals.Question(**dict(names)), reported["concerns"]
            word = airflow_answer.read(question, run.launch_id, concerns, here.airflow, account)
        elif verdict in ("approve", "reject"):
            seen = report or reported["disclosure_sha256"]
            word = approvals.Review(account=account, answer=verdict, reason=reason, report=seen)
        else:
            raise ValueError(f"--answer: {verdict!r}; write approve or reject")
        now = approvals.review(config, run, ledger, word)
        show_state(config, run, here)
    content = {"launch_id": run.launch_id, "ledger": ledger.address} | now.model_dump()
    lines = [f"launch {run.launch_id}: {now.state}" + f": {now.detail}" * bool(now.detail)]
    if now.state == "waiting":
        shown = {name: run.result("report")[name] for name in ("summary", "concerns")}
        content |= shown
        lines += [f"  {line}" for line in shown["summary"]]
        lines += ["Main concerns:"] * bool(shown["concerns"])
        lines += [f"  {number}. {concern}" for number, concern in enumerate(shown["concerns"], start=1)]
    answer(content, as_json, text="\n".join(lines))


def _require_accepted(concerns: Sequence[str], accepted: Sequence[int]) -> None:
    """See that an approval accepts every main concern of the report, as each is a box to tick in Airflow.

    Raises:
      ValueError: some are not accepted, or there is no such number.
    """
    numbers = set(range(1, len(concerns) + 1))
    if unknown := sorted(set(accepted) - numbers):
        raise ValueError(f"--accept: {unknown[0]} is no concern of this report, which has {len(concerns)}")
    if left := sorted(numbers - set(accepted)):
        listed = "; ".join(f"{number}. {concerns[number - 1]}" for number in left)
        every = " ".join(f"--accept {number}" for number in sorted(numbers))
        raise ValueError(
            f"--accept: {len(left)} of {len(concerns)} main concerns are not accepted: {listed} Read the report, then "
            f"approve with {every}, or reject"
        )
