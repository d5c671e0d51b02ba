"""Review of a launch: its state, the concerns to accept, and a reviewer's answer."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication import airflow_answer, approvals
from pipeline.publication.approvals import Question, Review, Standing
from pipeline.run.run_dir import RunDir
from pipeline.tracking.mlflow_tracker import checkpoints_of_locale


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
    return _state(run, ledger, approvals.standing(config, run, ledger.entries_of_launch(run.launch_id)))


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
      ReleaseRefused: see ``approvals.review``.
    """
    ledger, account = PrivacyLedger.of(here), f"os:{by}"
    ledger.require_whole(checkpoints_of_locale(here, config.locale))
    reported = run.result("report")
    if verdict == "approve":
        _require_accepted(reported["concerns"], accept)
    if question is not None:
        answer = airflow_answer.read(question, run.launch_id, reported["concerns"], here.airflow, account)
    elif verdict in ("approve", "reject"):
        seen = report or reported["disclosure_sha256"]
        answer = Review.model_validate({"account": account, "answer": verdict, "reason": reason, "report": seen})
    else:
        raise ValueError(f"--answer: {verdict!r}; write approve or reject")
    now = approvals.review(config, run, ledger, answer)
    approvals.announce(config, run, here)
    return _state(run, ledger, now)


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
