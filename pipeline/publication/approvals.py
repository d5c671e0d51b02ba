"""Release state of a launch, from its report to its users: one state, from its records and the ledger.

People answer about a report, by its digest; publications and rollbacks are entries of the ledger too. So whatever the
launch file says by now and whatever a task of Airflow was set to, a launch with reviewers is published only after one
of them approved the report as it stands, and one that was rejected or rolled back stays so.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from federated.config.population import PopulationKey
from pipeline.ground.errors import ReleaseRefused
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig
from pipeline.launch.policy import ACCOUNT_NAME
from pipeline.ledger.entries import Entry
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication import experiment
from pipeline.publication.registry import Registry, require_restorable, void
from pipeline.run.known import changed_inputs
from pipeline.run.run_dir import STATE, RunDir, StageRecord
from pipeline.tracking import mlflow_tracker
from pipeline.tracking.mlflow_tracker import receipts_of_locale
from pretrain.files import write_text
from reports.standing import badge

# The system that authenticated the account, and its name there.
Account = Annotated[str, Field(pattern=f"^(os|airflow):{ACCOUNT_NAME}$")]
State = Literal["unfinished", "held", "waiting", "approved", "in experiment", "rejected", "published", "rolled back"]
MAY_PUBLISH = frozenset({"approved", "in experiment", "published"})
# Records of what comes once a launch may be published; an experiment reads logs, which no stage made.
_AFTERWARDS = frozenset({"publish", "experiment"})


class Standing(BaseModel):
    """The state of a launch, why in words, and the accounts that approved its report as it stands."""

    model_config = ConfigDict(frozen=True)

    state: State
    detail: str
    approvers: tuple[str, ...] = ()


class Question(BaseModel):
    """The try of a task in Airflow that asked a reviewer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dag_id: str
    run_id: str
    task_id: str
    try_number: int


@dataclass(frozen=True)
class Rollback:
    """A registered model whose users have an earlier version again.

    Attributes:
      champion: the version that they have now.
      rolled_back: the version that they had.
      launch_id: of the version that was rolled back.
    """

    registered_model: str
    champion: int
    rolled_back: int
    launch_id: str


class Review(BaseModel):
    """One reviewer's answer.

    Attributes:
      account: the account that answered, as the system authenticated it: ``os:NAME`` of the operating system, or
        ``airflow:NAME``.
      indistinct_from: the account of the operating system that runs Airflow's server and wrote the answer down, so that
        it could have answered itself; empty: there is none.
      report: SHA-256 of the ``disclosure.json`` that was read.
      question: None for an answer on the command line.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    account: Account
    indistinct_from: Account | Literal[""] = ""
    answer: Literal["approve", "reject"]
    reason: str
    report: str
    question: Question | None = None

    @property
    def who(self) -> str:
        """The account in words, with the one that it cannot be told apart from."""
        return f"{self.account} (not told apart from {self.indistinct_from})" if self.indistinct_from else self.account


def standing(config: LaunchConfig, run: RunDir, entries: Iterable[Entry]) -> Standing:
    """State of a launch; the one place that decides it, from records that the ledger holds.

    Args:
      entries: all of the ledger, in order.
    """
    entries = list(entries)
    now, tried = _without_experiment(config, run, entries), experiment.of(config, run.launch_id, entries)
    if now.state != "published" or tried is None:
        return now
    if tried.ended is None:
        return now.model_copy(update={"state": "in experiment", "detail": tried.said})
    if tried.ended.promoted:
        return now.model_copy(update={"detail": f"{now.detail}, after its experiment, {tried.said}"})
    return now.model_copy(update={"state": "rolled back", "detail": f"from its experiment {tried.said}"})


def _without_experiment(config: LaunchConfig, run: RunDir, entries: Iterable[Entry]) -> Standing:
    decided, reported, published = (run.record(stage) for stage in ("decide", "report", "publish"))
    if decided is None or reported is None:
        return Standing(state="unfinished", detail="not every stage before the decision and its report has ended")
    if decided.result.get("decision") != "launch":
        return Standing(state="held", detail="; ".join(decided.result.get("reasons", ())))
    of_launch = [entry for entry in entries if entry.launch_id == run.launch_id]
    for when, review in _reviews(of_launch):
        if review.answer == "reject":
            return Standing(state="rejected", detail=f"by {review.who} at {when[:19]}Z: {review.reason}")
    reviews = [each for each in _reviews(of_launch) if is_reviewer(each[1].account, config.reviewers)]
    undone, left = [entry for entry in of_launch if entry.kind == "rollback"], _versions(published)
    for entry in undone:
        left.pop(json.loads(entry.binding)["registered_model"], None)
    taken_back = ""
    if undone:
        last = json.loads(undone[-1].binding)
        taken_back = f"by {last['by']} at {undone[-1].created_at[:19]}Z: {last['reason']}"
        if not left:
            return Standing(state="rolled back", detail=taken_back)
        taken_back = f"; no longer for its other features, rolled back {taken_back}"
    needed, report = config.policy.approvals, reported.result["disclosure_sha256"]
    answers = {
        review.report: persons(_of_report(reviews, review.report)) for _, review in reviews
    }  # None of them rejects.
    approved = answers.get(report, [])
    who = tuple(review.who for review in approved)
    if left and (any(len(enough) >= needed for enough in answers.values()) or not config.reviewers):
        each = " and ".join(f"version {version} of {name}" for name, version in left.items())
        never = f"; never champion, as {why}" if (why := void(config)) else ""
        return Standing(state="published", detail=f"as {each}{never}{taken_back}", approvers=who)
    if not config.reviewers:
        return Standing(state="approved", detail="by its gates; the launch file names no reviewers")
    by = " and ".join(f"{review.who} at {when[:19]}Z" for when, review in reviews if review in approved)
    if len(who) >= needed:
        return Standing(state="approved", detail=f"by {by}", approvers=who)
    answered = {person(review.account) for review in approved}
    asked = " or ".join(name for name in config.reviewers if name.casefold() not in answered)
    again = "; the report changed since it was approved" if reviews and not who else ""
    so_far = f"; approved by {by}, {len(who)} of {needed} that the policy asks for" if who else ""
    return Standing(state="waiting", detail=f"for approval by {asked}{again}{so_far}", approvers=who)


def approvers(run_id: str, entries: Iterable[Entry]) -> tuple[str, ...]:
    """Accounts that approved a launch, each once, the first one first."""
    answers = (entry for entry in entries if entry.kind == "review" and entry.launch_id == run_id)
    reviews = [Review.model_validate_json(entry.binding) for entry in answers]
    return tuple(dict.fromkeys(review.who for review in reviews if review.answer == "approve"))


def show(run: RunDir, now: Standing) -> None:
    """Draw where a launch stands, beside its report, which shows the picture and stays as its reviewers read it."""
    write_text(run.public("launch") / STATE, badge(now.state, now.detail))


def announce(config: LaunchConfig, run: RunDir, settings: Settings) -> Standing:
    """State of a launch, shown beside its report and in MLflow from now on."""
    ledger, tracker = PrivacyLedger.of(settings), mlflow_tracker.MlflowTracker(settings, config, run.launch_id)
    now = standing(config, run, ledger.entries())
    show(run, now)
    tracker.show_state(now.state, ", ".join(now.approvers))
    tracker.keep_receipts(ledger.heads())
    return now


def review(config: LaunchConfig, run: RunDir, ledger: PrivacyLedger, verdict: Review) -> Standing:
    """Write a reviewer's answer down, and say where the launch stands then. The same answer again is free.

    Raises:
      ReleaseRefused: they are no reviewer of this launch, saw another report, or the launch does not wait.
    """
    if not is_reviewer(verdict.account, config.reviewers):
        named = ", ".join(config.reviewers) or "nobody"
        raise ReleaseRefused(
            f"review: {verdict.account!r} is no reviewer of {run.launch_id}; its launch file names {named}"
        )
    if verdict.answer == "reject" and not verdict.reason.strip():
        raise ReleaseRefused(f"review: say why {run.launch_id} is rejected: --reason ...")
    before = standing(config, run, ledger.entries())
    noted = ledger.noted("review", run.launch_id, _stage_of(verdict))
    earlier = Review.model_validate_json(noted.binding) if noted else None
    if earlier is not None and verdict.model_copy(update={"question": earlier.question}) == earlier:
        return before
    if before.state != "waiting":
        raise ReleaseRefused(f"review: {run.launch_id} waits for no answer, it is {before.state}: {before.detail}")
    report = run.result("report")["disclosure_sha256"]
    if verdict.report != report and noted is None:
        raise ReleaseRefused(
            f"review: the report of {run.launch_id} has digest {report[:12]} by now, and {verdict.account} saw "
            f"{verdict.report[:12]}; let them read it again"
        )
    before_them = _of_report(_reviews(entry for entry in ledger.entries() if entry.launch_id == run.launch_id), report)
    if verdict.answer == "approve" and noted is None and verdict not in persons([*before_them, verdict]):
        them = " and ".join(each.who for each in before_them)
        raise ReleaseRefused(
            f"review: {verdict.who} is no other person than {them}, who approved; policy.approvals: "
            f"{config.policy.approvals} asks for as many persons, each under an account that no other of them uses"
        )
    ledger.note("review", config.population, run.launch_id, _stage_of(verdict), verdict.model_dump())
    return standing(config, run, ledger.entries())


def require_approved(config: LaunchConfig, run: RunDir, ledger: PrivacyLedger) -> None:
    """See that a launch may be published, now or again.

    Guarantee: no model reaches users against a reviewer's word or without it where the launch names reviewers, however
    publication was started. What was decided and reported was made of what the stages before it say now.

    Raises:
      ReleaseRefused: it is held, waits, was rejected or was rolled back; or a stage was run again since.
    """
    before = (record for record in run.records() if record.stage not in _AFTERWARDS)
    for record in before:
        if changed := changed_inputs(record, run):
            raise ReleaseRefused(
                f"publish: {run.launch_id}: {changed[0]} is not what stage {record.stage!r} was made of; run "
                f"{record.stage!r} and the stages after it again"
            )
    now = standing(config, run, ledger.entries())
    if now.state not in MAY_PUBLISH:
        how = f"; a reviewer answers in Airflow, or by: tacit review {run.launch_id}" if now.state == "waiting" else ""
        raise ReleaseRefused(f"publish: {run.launch_id} is {now.state} ({now.detail}), so it is not published{how}")


def rollback(
    locale: str, feature: str, settings: Settings, reason: str, by: str, population: PopulationKey | None = None
) -> Rollback:
    """Give users of one feature back what they had before; the version before that is then the next to go back to.

    Args:
      population: None for the people who published first for the locale and feature.

    Raises:
      ReleaseRefused: there is no previous version, or no reason.
    """
    registry, ledger = Registry(settings), PrivacyLedger.of(settings)
    ledger.require_whole(receipts_of_locale(settings, locale))
    name = registry.name_for(locale, feature, population)
    if not reason.strip():
        raise ReleaseRefused(f"{name}: say why it is rolled back: --reason ...")
    undone = [json.loads(entry.binding) for entry in ledger.entries() if entry.kind == "rollback"]
    taken_back = {entry["version"] for entry in undone if entry["registered_model"] == name}
    champion, previous = registry.alias(name, "champion"), registry.alias(name, "previous")
    if champion is None or previous is None:
        raise ReleaseRefused(
            f"{name}: no previous version to go back to (champion: {champion or 'none'}); only a launch that replaced "
            "another one can be rolled back"
        )
    launch = registry.launch_of(name, champion)
    if previous != champion:  # Equal after a crash below, with everything but ``previous`` done.
        content = {"registered_model": name, "version": champion, "to_version": previous, "reason": reason, "by": by}
        to = registry.published(name, previous)
        require_restorable(registry, to)
        if ledger.noted("rollback", launch, f"{name} version {champion}") is None:
            ledger.note("rollback", registry.owner(name), launch, f"{name} version {champion}", content)
        registry.crown(to)
        taken_back |= {champion}
    older = registry.before(name, previous, taken_back)
    if older is None:
        registry.delete_alias(name, "previous")
    else:
        registry.set_alias(name, "previous", older)
    return Rollback(registered_model=name, champion=previous, rolled_back=champion, launch_id=launch)


def _reviews(entries: Iterable[Entry]) -> list[tuple[str, Review]]:
    """When each answer was given, and the answer; of a launch's own entries."""
    return [
        (entry.created_at, Review.model_validate_json(entry.binding)) for entry in entries if entry.kind == "review"
    ]


def _of_report(reviews: Iterable[tuple[str, Review]], report: str) -> list[Review]:
    return [review for _, review in reviews if review.report == report and review.answer == "approve"]


def _versions(published: StageRecord | None) -> dict[str, int]:
    """Versions that a launch registered, by the registered model's name; empty if it was not published."""
    if published is None or not published.result["published"]:
        return {}
    return dict(published.result["versions"])


def _stage_of(verdict: Review) -> str:
    """Stage name of a review's entry: each reviewer answers once about each report."""
    return f"review of {verdict.report[:16]} by {person(verdict.account)}"


def person(account: str) -> str:
    """The name by which accounts are compared: without the system that knows it, and in small letters."""
    return account.partition(":")[2].casefold()


def persons(approvals: Iterable[Review]) -> list[Review]:
    """Approvals of different persons, in the order given.

    Guarantee: no two of them have an account's name in common, as letters of either case, in whichever system; nor is
    one of them given under an account that could have given the other. A person with two accounts of different names
    is not found out here.
    """
    distinct, counted = list[Review](), set[str]()
    for each in approvals:
        names = {person(account) for account in (each.account, each.indistinct_from) if account}
        if counted.isdisjoint(names):
            distinct.append(each)
            counted |= names
    return distinct


def is_reviewer(account: str, reviewers: Iterable[str]) -> bool:
    """True if a launch file names this account."""
    return person(account) in {name.casefold() for name in reviewers}
