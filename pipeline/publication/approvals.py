"""Release state of a launch, from its report to its publication, derived from its records and the ledger.

Reviewers answer about a report, by its digest; publications and rollbacks are entries of the ledger too. So a launch
with reviewers is published only after enough of them approved its current report, and a rejected or rolled-back launch
stays so, regardless of later changes to the launch file or to the state of a task in Airflow.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from federated.config.population import PopulationKey
from pipeline.ground.errors import ReleaseRefused
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.answers import Review, counting, is_reviewer, person, problem, stage_of
from pipeline.publication.registry import Registry, crowned, require_restorable, void
from pipeline.run.known import changed_inputs
from pipeline.run.population import require_allowed, require_population
from pipeline.run.run_dir import STATE, RunDir, StageRecord
from pipeline.tracking import mlflow_tracker
from pipeline.tracking.mlflow_tracker import checkpoints_of_locale
from pretrain.files import write_text
from reports.standing import badge

State = Literal["unfinished", "held", "waiting", "approved", "candidate", "rejected", "published", "rolled back"]
MAY_PUBLISH = frozenset({"approved", "candidate", "published"})
# No account's name, so it stands for all of them.
_AIRFLOW = "*"


class Standing(BaseModel):
    """The state of a launch, its reason, and the accounts that approved its current report."""

    model_config = ConfigDict(frozen=True)

    state: State
    detail: str
    approvers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rollback:
    """Rollback of a registered model to an earlier version.

    Attributes:
      champion: the version after the rollback.
      rolled_back: the version before the rollback.
      launch_id: launch of the version that was rolled back.
    """

    registered_model: str
    champion: int
    rolled_back: int
    launch_id: str


def standing(config: LaunchConfig, run: RunDir, ledger: PrivacyLedger) -> Standing:
    """Derive the state of a launch from the records that the ledger holds; no other code decides it.

    An answer that its account did not sign counts for nothing (``answers``).
    """
    entries = ledger.entries_of_launch(run.launch_id)
    answers = counting(ledger, config.population, entries)
    airflow_people = _airflow_people(ledger, config.population)
    decided, reported, published = (run.record(stage) for stage in ("decide", "report", "publish"))
    if decided is None or reported is None:
        return Standing(state="unfinished", detail="not every stage up to the report has finished")
    if decided.result.get("decision") != "launch":
        return Standing(state="held", detail="; ".join(decided.result.get("reasons", ())))
    for when, review in answers:
        if review.answer == "reject":
            return Standing(state="rejected", detail=f"by {review.who} at {when[:19]}Z: {review.reason}")
    reviews = [each for each in answers if is_reviewer(each[1].account, config.reviewers)]
    undone, left = [entry for entry in entries if entry.kind == "rollback"], _versions(published)
    done = {entry.stage for entry in entries}
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
    approvals = {
        review.report: persons(_of_report(reviews, review.report), airflow_people=airflow_people)
        for _, review in reviews
    }  # None of these rejects.
    approved = approvals.get(report, [])
    who = tuple(review.who for review in approved)
    if left and (any(len(enough) >= needed for enough in approvals.values()) or not config.reviewers):
        each = " and ".join(f"version {version} of {name}" for name, version in left.items())
        if config.tried_by and not void(config) and not all(crowned(*one) in done for one in left.items()):
            detail = f"as {each}, which not all devices have: '{config.tried_by} begin' tries it on some{taken_back}"
            return Standing(state="candidate", detail=detail, approvers=who)
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


def show(run: RunDir, now: Standing) -> None:
    """Draw the state of a launch as a picture beside its report, which itself never changes after the review."""
    picture, drawn = run.public("launch") / STATE, badge(now.state, now.detail)
    if not picture.is_file() or picture.read_text(encoding="utf-8") != drawn:
        write_text(picture, drawn)


def announce(config: LaunchConfig, run: RunDir, settings: Settings) -> Standing:
    """Derive the state of a launch, and show it beside its report and in MLflow."""
    ledger, tracker = PrivacyLedger.of(settings), mlflow_tracker.MlflowTracker(settings, config, run.launch_id)
    now = standing(config, run, ledger)
    show(run, now)
    tracker.show_state(now.state, ", ".join(now.approvers))
    tracker.keep_checkpoint(ledger.witnessed())
    return now


def require_reviewer(config: LaunchConfig, launch_id: str, account: str) -> None:
    """Check that a launch file names an account; ReleaseRefused otherwise."""
    if not is_reviewer(account, config.reviewers):
        named = ", ".join(config.reviewers) or "no one"
        raise ReleaseRefused(f"review: {account!r} is no reviewer of {launch_id}; its launch file names {named}")


def review(config: LaunchConfig, run: RunDir, ledger: PrivacyLedger, verdict: Review) -> Standing:
    """Record a reviewer's signed answer, and return the launch's new state.

    Repeating an answer about the same report is free; the reason that was given first stays in the ledger.

    Raises:
      ReleaseRefused: the account is no reviewer of this launch, did not sign the answer, read another report, or the
        launch does not wait.
    """
    require_reviewer(config, run.launch_id, verdict.account)
    if wrong := problem(run.launch_id, verdict, ledger.answer_keys(config.population)):
        raise ReleaseRefused(f"review: {run.launch_id}: {wrong}, so the answer does not count")
    if verdict.answer == "reject" and not verdict.reason.strip():
        raise ReleaseRefused(f"review: say why {run.launch_id} is rejected: --reason ...")
    before = standing(config, run, ledger)
    noted = ledger.noted("review", run.launch_id, stage_of(verdict))
    earlier = Review.model_validate_json(noted.binding) if noted else None
    # A task that is tried again asks another question, and the person may comment in other words.
    same = {"question", "reason", "signature"}
    if earlier and verdict.model_dump(exclude=same) == earlier.model_dump(exclude=same):
        return before
    if before.state != "waiting":
        raise ReleaseRefused(
            f"review: {run.launch_id} does not wait for an answer, it is {before.state}: {before.detail}"
        )
    report = run.result("report")["disclosure_sha256"]
    if verdict.report != report and noted is None:
        raise ReleaseRefused(
            f"review: the report of {run.launch_id} has digest {report[:12]} by now, and {verdict.account} read "
            f"{verdict.report[:12]}; let them read it again"
        )
    given = counting(ledger, config.population, ledger.entries_of_launch(run.launch_id))
    before_them, apart = _of_report(given, report), _airflow_people(ledger, config.population)
    approving = verdict.answer == "approve" and noted is None
    if approving and verdict not in persons([*before_them, verdict], airflow_people=apart):
        them = " and ".join(each.who for each in before_them)
        raise ReleaseRefused(
            f"review: {verdict.who} may be the same person as {them}, who approved; policy.approvals: "
            f"{config.policy.approvals} requires different persons, each with an account of their own; all answers "
            "through Airflow are one person's unless the population is registered with --airflow-people, so let the "
            "other answer with a key of their own (tacit ledger key, then tacit review)"
        )
    ledger.note("review", config.population, run.launch_id, stage_of(verdict), verdict.model_dump())
    return standing(config, run, ledger)


def require_approved(config: LaunchConfig, run: RunDir, ledger: PrivacyLedger) -> None:
    """Check that a launch may be published, for the first time or again.

    Guarantee: if a launch names reviewers, no model reaches users after a rejection or without their approval, however
    publication was started. The decision and the report were made from the current results of the earlier stages.

    Raises:
      ReleaseRefused: the launch is held, waits, was rejected or was rolled back; or a stage was run again since.
      RulesBroken: the launch file is below what its population's registration asks for.
    """
    require_allowed(config, require_population(config, ledger))
    before = (record for record in run.records() if record.stage != "publish")
    for record in before:
        if changed := changed_inputs(record, run):
            raise ReleaseRefused(
                f"publish: {run.launch_id}: {changed[0]} has changed since stage {record.stage!r} read it; run "
                f"{record.stage!r} and the stages after it again"
            )
    now = standing(config, run, ledger)
    if now.state not in MAY_PUBLISH:
        how = f"; a reviewer answers in Airflow, or by: tacit review {run.launch_id}" if now.state == "waiting" else ""
        raise ReleaseRefused(f"publish: {run.launch_id} is {now.state} ({now.detail}), so it is not published{how}")


def rollback(
    locale: str, feature: str, settings: Settings, reason: str, by: str, population: PopulationKey | None = None
) -> Rollback:
    """Restore the previous version for users of one feature; the version before it becomes the next one to restore.

    Args:
      population: None for the population of people that published first for the locale and feature.

    Raises:
      ReleaseRefused: there is no previous version, or the reason is empty.
    """
    registry, ledger = Registry(settings), PrivacyLedger.of(settings)
    ledger.require_whole(checkpoints_of_locale(settings, locale))
    name = registry.name_for(locale, feature, population)
    if not reason.strip():
        raise ReleaseRefused(f"{name}: say why it is rolled back: --reason ...")
    undone = [json.loads(entry.binding) for entry in ledger.entries_of_kind("rollback")]
    taken_back = {entry["version"] for entry in undone if entry["registered_model"] == name}
    champion, previous = registry.alias(name, "champion"), registry.alias(name, "previous")
    if champion is None or previous is None:
        raise ReleaseRefused(
            f"{name}: no previous version to restore (champion: {champion or 'none'}); only a launch that replaced "
            "another one can be rolled back"
        )
    launch = registry.launch_of(name, champion)
    if previous != champion:  # Equal after a crash below, with only ``previous`` left to move.
        to = registry.published(name, previous)
        require_restorable(registry, to)
        content = {"registered_model": name, "version": champion, "to_version": previous, "reason": reason, "by": by}
        undo(ledger, registry.owner(name), launch, content)
        registry.crown(to)
        taken_back |= {champion}
    older = registry.before(name, previous, taken_back)
    if older is None:
        registry.delete_alias(name, "previous")
    else:
        registry.set_alias(name, "previous", older)
    return Rollback(registered_model=name, champion=previous, rolled_back=champion, launch_id=launch)


def undo(ledger: PrivacyLedger, owner: PopulationKey, launch_id: str, content: Mapping[str, object]) -> None:
    """Record once that no user gets a launch's version of a registered model any more, with who says so and why."""
    undone = "{registered_model} version {version}".format_map(content)
    if ledger.noted("rollback", launch_id, undone) is None:
        ledger.note("rollback", owner, launch_id, undone, content)


def _of_report(reviews: Iterable[tuple[str, Review]], report: str) -> list[Review]:
    return [review for _, review in reviews if review.report == report and review.answer == "approve"]


def _versions(published: StageRecord | None) -> dict[str, int]:
    """Versions that a launch registered, by name of the registered model; empty if it was not published."""
    if published is None or not published.result["published"]:
        return {}
    return dict(published.result["versions"])


def persons(approvals: Iterable[Review], *, airflow_people: bool) -> list[Review]:
    """Approvals of different persons, in the given order.

    Guarantee: no two of them share an account name, ignoring case and system, and no account could have given the
    approval of another. The installation signs all answers through Airflow, so together they are one person's. A
    person with two accounts of different names is not detected.

    Args:
      airflow_people: the population's registration says that Airflow's accounts are separate people.
    """
    distinct, counted = list[Review](), set[str]()
    for each in approvals:
        names = {person(account) for account in (each.account, each.indistinct_from) if account}
        names |= {_AIRFLOW} if each.on_behalf and not airflow_people else set()
        if counted.isdisjoint(names):
            distinct.append(each)
            counted |= names
    return distinct


def _airflow_people(ledger: PrivacyLedger, population: PopulationKey) -> bool:
    owner = ledger.registered(population)
    return owner is not None and owner.rules.airflow_people
