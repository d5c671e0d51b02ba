"""Review of a launch: its state, the concerns to accept, and a reviewer's answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from federated.config.population import is_simulation
from pipeline.ground import keys
from pipeline.ground.errors import ReleaseRefused
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication import airflow_answer, approvals
from pipeline.publication.answers import Question, Review
from pipeline.publication.approvals import Standing
from pipeline.run.population import require_population
from pipeline.run.run_dir import RunDir
from pipeline.tracking.mlflow_tracker import checkpoints_of_locale

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner


@dataclass(frozen=True)
class ReviewState:
    """State of a launch for its reviewers."""

    launch_id: str
    ledger: str
    state: str
    detail: str
    approvers: tuple[str, ...]


@dataclass(frozen=True)
class WaitingReview(ReviewState):
    """A launch that waits for an answer: the report's summary, and the main concerns that an approval accepts."""

    summary: tuple[str, ...]
    concerns: tuple[str, ...]


def review_state(config: LaunchConfig, run: RunDir, here: Settings) -> ReviewState:
    """Return the state of a launch for its reviewers; writes nothing."""
    ledger = PrivacyLedger.of(here)
    return _state(run, ledger, approvals.standing(config, run, ledger))


def answer_review(
    config: LaunchConfig,
    run: RunDir,
    here: Settings,
    by: str,
    verdict: str | None,
    *,
    reason: str = "",
    accept: Sequence[int] = (),
    report: str | None = None,
    question: Question | None = None,
) -> ReviewState:
    """Record a reviewer's answer permanently, and show the launch's new state.

    Args:
      by: account of the operating system that runs the command.
      verdict: approve or reject; None with ``question``.
      accept: numbers of the accepted main concerns; an approval must accept all, as in Airflow's form.
      report: SHA-256 of the reviewed ``disclosure.json``; None for the current one.
      question: the attempt of the Airflow task that holds the answer.

    Raises:
      ValueError: the verdict is unknown, or a concern is not accepted.
      KeyUnusable: the account has no key of its own (``keys.reviewer``).
      ReleaseRefused: the account's key is not registered; or see ``approvals.review``.
    """
    if question is None and verdict not in ("approve", "reject"):
        raise ValueError(f"--answer: {verdict!r}; write approve or reject")
    ledger, account = PrivacyLedger.of(here), f"os:{by}"
    if question is None:
        approvals.require_reviewer(config, run.launch_id, account)
        signer = _own_signer(config, ledger, here, by)
    ledger.require_whole(checkpoints_of_locale(here, config.locale))
    reported = run.result("report")
    if verdict == "approve":
        _require_accepted(reported["concerns"], accept)
    if question is not None:
        asked = airflow_answer.registered_reader(here.airflow, require_population(config, ledger))
        answer = airflow_answer.read(question, run.launch_id, reported["concerns"], asked, account)
        signer = keys.signer(here, "answers")
    else:
        seen = report or reported["disclosure_sha256"]
        answer = Review.model_validate({"account": account, "answer": verdict, "reason": reason, "report": seen})
        if is_simulation(config.population):
            # It protects no one, so nobody has to register its reviewers.
            ledger.register_reviewer(config.population, by, signer.public_key.keyval["public"], by)
    now = approvals.review(config, run, ledger, answer.signed(run.launch_id, signer))
    approvals.announce(config, run, here)
    return _state(run, ledger, now)


def _own_signer(config: LaunchConfig, ledger: PrivacyLedger, here: Settings, by: str) -> "CryptoSigner":
    """Signer of the account that runs the command; in a simulation its key is made here if it has none.

    Raises:
      KeyUnusable: the account's private key is missing or damaged.
      ReleaseRefused: its public key is not the one that is registered for the population.
    """
    if is_simulation(config.population):
        return keys.make_reviewer(here.review_key)
    signer = keys.reviewer(here.review_key)
    public, owner = signer.public_key.keyval["public"], ledger.population(config.population)
    registered = ledger.answer_keys(config.population).registration(by)
    if registered is None or registered.names("public") != public:
        other = f"another key ({registered.names('public')[:16]})" if registered else "no key"
        raise ReleaseRefused(
            f"review: os:{by} has {other} for population {owner.key!r} in the ledger, so an answer signed with "
            f"{here.review_key} does not count; {' or '.join(owner.raised_by)} may register it: tacit ledger reviewer "
            f"{owner.key} {by} --key {public}"
        )
    return signer


def _state(run: RunDir, ledger: PrivacyLedger, now: Standing) -> ReviewState:
    state = ReviewState(run.launch_id, ledger.address, now.state, now.detail, now.approvers)
    if now.state != "waiting":
        return state
    reported = run.result("report")
    return WaitingReview(**vars(state), summary=tuple(reported["summary"]), concerns=tuple(reported["concerns"]))


def _require_accepted(concerns: Sequence[str], accepted: Sequence[int]) -> None:
    """Check that an approval accepts every main concern of the report.

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
