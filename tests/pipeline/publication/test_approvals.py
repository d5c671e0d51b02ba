"""One state of a launch, and nobody's no undone."""

import json
from typing import Any

import pytest
from pydantic import Field

from pipeline.ground.errors import LedgerConflict, ReleaseRefused
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.answers import Review, answers, stage_of
from pipeline.publication.approvals import Standing, require_approved, review, standing
from pipeline.run import runner
from pipeline.run.known import run_folder
from pipeline.run.population import require_population
from pipeline.run.stage import StageResult, Stages
from pipeline.stages.graph import STAGES
from pipeline.stages.launch import run_stages
from tests.helpers.launches.answering import signed
from tests.helpers.launches.pipeline_launch import launch_config, stand_in
from tests.helpers.launches.stages import stages_of

CONFIG = launch_config(reviewers=["ana", "bo"])
SEEN = "a" * 64
QUESTION = {"dag_id": "people", "run_id": "manual", "task_id": "approve", "try_number": 2}


@stand_in
class MadeDecided(StageResult):
    decision: str = "launch"
    reasons: tuple[str, ...] = ("fine",)


@stand_in
class MadeReported(StageResult):
    disclosure_sha256: str = SEEN
    summary: tuple[str, ...] = ("guarantee of one device: epsilon 84.89 at delta 1e-06",)
    concerns: tuple[str, ...] = ()


@stand_in
class MadePublished(StageResult):
    published: bool = True
    registered_model: str = "keyboard-en-US-NWP"
    version: int = 1
    versions: dict[str, int] = Field(default={"keyboard-en-US-NWP": 1})


def stages(report: str = SEEN, decision: str = "launch", concerns: tuple[str, ...] = ()) -> Stages:
    made = {
        "decide": lambda ctx: MadeDecided(decision=decision),
        "report": lambda ctx: MadeReported(disclosure_sha256=report, concerns=concerns),
        "publish": lambda ctx: MadePublished(),
    }
    return stages_of(made)


class Case:
    """A launch that its gates passed, and the ledger."""

    def __init__(self, settings: Settings, config: LaunchConfig = CONFIG, concerns: tuple[str, ...] = ()) -> None:
        self.settings, self.ledger, self.config = settings, PrivacyLedger.of(settings), config
        self.run = run_folder(settings, launch_id(config))
        self.do("decide", "report", concerns=concerns)

    def do(self, *names: str, **changes: Any) -> None:
        for name in names:
            (self.run.path / "public" / name / "result.json").unlink(missing_ok=True)
            runner.run_stage(name, self.config, self.run.launch_id, self.settings, stages(**changes))

    def answer(
        self, answer: str, account: str = "os:ana", reason: str = "read it", report: str = SEEN, **more: object
    ) -> Standing:
        given = Review.model_validate(
            {"account": account, "answer": answer, "reason": reason, "report": report, **more}, strict=True
        )
        return review(self.config, self.run, self.ledger, self.signed(given))

    def signed(self, given: Review) -> Review:
        return signed(self.settings, self.config.population, self.run.launch_id, given)

    @property
    def now(self) -> Standing:
        return standing(self.config, self.run, self.ledger)


@pytest.fixture
def case(settings: Settings) -> Case:
    return Case(settings)


def test_a_launch_waits_for_its_reviewers_and_then_for_its_publication(case: Case):
    assert case.now == Standing(state="waiting", detail="for approval by ana or bo")
    with pytest.raises(ReleaseRefused, match="is waiting"):
        require_approved(CONFIG, case.run, case.ledger)
    assert case.answer("approve").state == "approved"
    require_approved(CONFIG, case.run, case.ledger)
    case.do("publish")
    assert case.now.state == "published"
    (entry,) = [entry for entry in case.ledger.entries() if entry.kind == "review"]
    kept = json.loads(entry.binding)
    assert kept == {"account": "os:ana", "answer": "approve", "reason": "read it", "report": SEEN} | {
        "indistinct_from": "",
        "question": None,
        "signature": kept["signature"],
    }


TWO = launch_config(reviewers=["ana", "bo", "cleo"], policy={"approvals": 2})


@pytest.fixture
def pair(settings: Settings) -> Case:
    """A launch whose policy asks for two persons."""
    return Case(settings, TWO)


def separate_people(case: Case, *, apart: bool = True) -> None:
    """Register that Airflow's accounts are separate people."""
    owner = require_population(case.config, case.ledger)
    rules = owner.rules.model_copy(update={"airflow_people": apart})
    case.ledger.change_budget(owner.key, owner.budget, *owner.raised_by, "an identity provider", rules)


def test_two_persons_approve_where_the_policy_says_so(pair: Case):
    separate_people(pair)
    first = pair.answer("approve", "airflow:ana")
    assert first.state == "waiting"
    assert first.detail.startswith(
        "for approval by bo or cleo; approved by airflow:ana (signed by the installation) at "
    )
    assert first.detail.endswith("1 of 2 that the policy asks for")
    with pytest.raises(ReleaseRefused, match="is waiting"):
        require_approved(TWO, pair.run, pair.ledger)
    pair.do("publish")
    assert pair.now.state == "waiting", "a written record of publication is no second approval"
    again = pair.answer("approve", "airflow:ana", reason="read it twice", question=QUESTION)
    assert again.state == "waiting", "the same answer again is free, and no more"
    assert "read it twice" not in str(pair.ledger.entries_of_launch(pair.run.launch_id)), "what was said first stays"
    assert pair.answer("approve", "airflow:bo").approvers == tuple(
        f"airflow:{name} (signed by the installation)" for name in ("ana", "bo")
    )
    assert pair.now.state == "published"
    require_approved(TWO, pair.run, pair.ledger)


@pytest.mark.parametrize(
    ("account", "indistinct_from"),
    [("os:ANA", ""), ("airflow:ana", ""), ("airflow:Ana", ""), ("airflow:bo", "os:ana"), ("os:bo", "os:Ana")],
)
def test_one_person_is_not_two_by_another_account(pair: Case, account: str, indistinct_from: str):
    pair.answer("approve", "os:ana")
    with pytest.raises((ReleaseRefused, LedgerConflict), match=r"may be the same person|holds another review"):
        pair.answer("approve", account, indistinct_from=indistinct_from)
    # Written past the command, it counts for nothing all the same.
    forged = pair.signed(
        Review(account=account, indistinct_from=indistinct_from, answer="approve", reason="", report=SEEN)
    )
    if pair.ledger.noted("review", pair.run.launch_id, stage_of(forged)) is None:
        pair.ledger.note("review", "people", pair.run.launch_id, stage_of(forged), forged.model_dump())
    assert (pair.now.state, pair.now.approvers) == ("waiting", ("os:ana",))


def test_all_answers_through_airflow_are_one_person_s_unless_registered_otherwise(pair: Case):
    pair.answer("approve", "airflow:ana")
    with pytest.raises(ReleaseRefused, match=r"--airflow-people, so let the other answer with a key of their own"):
        pair.answer("approve", "airflow:bo")
    # Written past the command, it counts for nothing all the same.
    forged = pair.signed(Review(account="airflow:bo", answer="approve", reason="", report=SEEN))
    pair.ledger.note("review", "people", pair.run.launch_id, stage_of(forged), forged.model_dump())
    assert pair.now.state == "waiting"
    separate_people(pair)
    assert pair.now.state == "approved"
    separate_people(pair, apart=False)
    assert pair.answer("approve", "os:cleo").state == "approved", "a key of one's own is another person"


def test_two_logins_of_a_server_that_one_account_runs_are_one_person(pair: Case):
    separate_people(pair)
    first = pair.answer("approve", "airflow:ana", indistinct_from="os:worker")
    assert "approved by airflow:ana (signed by the installation, indistinguishable from os:worker) at " in first.detail
    with pytest.raises(ReleaseRefused, match="may be the same person as airflow:ana"):
        pair.answer("approve", "airflow:bo", indistinct_from="os:worker")
    assert pair.answer("approve", "airflow:bo").state == "approved"


def test_who_is_no_reviewer_counts_for_nothing_in_the_ledger(pair: Case):
    pair.answer("approve", "os:ana")
    forged = pair.signed(Review(account="os:eve", answer="approve", reason="", report=SEEN))
    pair.ledger.note("review", "people", pair.run.launch_id, stage_of(forged), forged.model_dump())
    assert (pair.now.state, pair.now.approvers) == ("waiting", ("os:ana",))


# A space, an a of another alphabet, letters that are one sign of their own, a space that has no width.
LOOK_ALIKES = (" ana ", "ana ", "\u0430na", "\uff41na", "a\u200bna", "an\u00aa", "ana\n")


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_names_that_look_like_another_are_nobody_s(name: str):
    with pytest.raises(ValueError, match="reviewers"):
        launch_config(reviewers=[name])
    for system in ("os", "airflow"):
        with pytest.raises(ValueError, match="account"):
            Review(account=f"{system}:{name}", answer="approve", reason="", report=SEEN)


def test_two_persons_approve_the_same_report(pair: Case):
    separate_people(pair)
    pair.answer("approve", "airflow:ana")
    pair.do("report", report="b" * 64)
    assert pair.answer("approve", "airflow:bo", report="b" * 64).state == "waiting"
    assert pair.answer("approve", "airflow:cleo", report="b" * 64).state == "approved"


def test_a_no_of_one_of_two_is_final(pair: Case):
    pair.answer("approve", "airflow:ana")
    assert pair.answer("reject", "airflow:bo").state == "rejected"


def test_a_policy_that_nobody_can_meet_is_refused():
    for same in ("ana", "Ana"):
        with pytest.raises(ValueError, match=r"policy.approvals: 2, but reviewers names 1"):
            launch_config(reviewers=["ana", same], policy={"approvals": 2})
    assert launch_id(launch_config(policy={"approvals": 1})) == launch_id(launch_config())


def test_a_no_is_final(case: Case):
    with pytest.raises(ReleaseRefused, match="--reason"):
        case.answer("reject", reason=" ")
    assert case.answer("reject", reason="names people").detail.endswith("names people")
    again = case.answer("reject", reason="names many people")
    assert again.detail.endswith("names people"), "the same answer again is free, and what was said first stays"
    for account in ("os:ana", "os:bo"):
        with pytest.raises(ReleaseRefused, match="does not wait for an answer, it is rejected"):
            case.answer("approve", account)
    with pytest.raises(ReleaseRefused, match="is rejected"):
        require_approved(CONFIG, case.run, case.ledger)
    case.do("report", report="b" * 64)
    assert case.now.state == "rejected", "another report does not make it another launch"


def test_only_a_reviewer_of_the_file_answers(case: Case):
    with pytest.raises(ReleaseRefused, match=r"'os:eve' is no reviewer .* names ana, bo"):
        case.answer("approve", "os:eve")


def test_an_answer_is_about_the_report_that_was_seen(case: Case):
    with pytest.raises(ReleaseRefused, match="let them read it again"):
        case.answer("approve", report="b" * 64)
    case.answer("approve")
    case.do("report", report="b" * 64)
    assert case.now.state == "waiting"
    assert "changed since" in case.now.detail
    case.answer("approve", report="b" * 64)
    assert case.now.state == "approved"


def test_a_written_record_of_publication_is_no_approval(case: Case):
    case.do("publish")
    assert case.now.state == "waiting"
    with pytest.raises(ReleaseRefused):
        require_approved(CONFIG, case.run, case.ledger)


def test_a_held_launch_stays_held(case: Case):
    case.do("decide", decision="hold")
    assert case.now.state == "held"
    with pytest.raises(ReleaseRefused, match="it is held"):
        case.answer("approve")


def test_without_reviewers_the_gates_decide(settings: Settings):
    config = launch_config()
    run = run_folder(settings, launch_id(config))
    ledger = PrivacyLedger.of(settings)
    assert standing(config, run, ledger).state == "unfinished"
    for name in ("decide", "report"):
        runner.run_stage(name, config, run.launch_id, settings, stages())
    assert standing(config, run, ledger).state == "approved"


def test_reviewers_are_part_of_the_launch(settings: Settings):
    without = launch_config()
    assert launch_id(CONFIG) != launch_id(without)
    assert launch_id(launch_config(reviewers=["bo", "ana"])) == launch_id(CONFIG)
    case = Case(settings)
    for other in (without, launch_config(reviewers=["ana"])):
        with pytest.raises(ValueError, match="is not a run of this launch file"):
            runner.run_stage("publish", other, case.run.launch_id, settings, stages())


def test_the_ledger_holds_one_answer_a_reviewer_and_report(case: Case):
    case.answer("approve")
    case.answer("approve", reason="another")
    with pytest.raises((LedgerConflict, ReleaseRefused)):
        case.answer("reject")
    assert len(answers(case.ledger, CONFIG.population, case.ledger.entries_of_launch(case.run.launch_id))) == 1


@pytest.mark.slow
def test_an_approval_publishes_and_nothing_else_does(settings: Settings):
    made = stages_of({name: lambda ctx: StageResult() for name in STAGES}) | stages()
    first = run_stages(CONFIG, launch_id(CONFIG), settings, made)
    assert "publish" not in first
    run, ledger = run_folder(settings, launch_id(CONFIG)), PrivacyLedger.of(settings)
    given = Review(account="os:bo", answer="approve", reason="", report=SEEN)
    review(CONFIG, run, ledger, signed(settings, CONFIG.population, run.launch_id, given))
    assert "publish" in run_stages(CONFIG, launch_id(CONFIG), settings, made)
