"""Every designed ending of a launch verifies; one that has not ended is named as that, and lost records as lost."""

from collections.abc import Callable

import pytest
from pydantic import Field

from pipeline.ground.errors import RefusedUntouched
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.answers import Review
from pipeline.publication.approvals import review, standing
from pipeline.publication.gates.decide import decide
from pipeline.run import runner
from pipeline.run.bookkeeping import OUTCOME, STOPPED
from pipeline.run.known import run_folder
from pipeline.run.run_dir import RESULT
from pipeline.run.stage import Stage, StageContext, Stages, of_launch
from pipeline.stages.decide import evidence
from pipeline.stages.graph import STAGES, is_evidence
from pipeline.stages.launch import run_stages
from pipeline.verify.check import Check, Verification, verification
from pipeline.verify.launch import verify
from pretrain import progress
from pretrain.files import write_text
from reports.disclosure.document import DecisionBlock
from tests.helpers.launches.answering import signed
from tests.helpers.launches.decided import Compared, Decided, Discovered, Reported, Trained
from tests.helpers.launches.installed import registered
from tests.helpers.launches.pipeline_launch import Counted, launch_config, spend, stand_in
from tests.helpers.launches.stages import stages_of

CONFIG = launch_config()
REVIEWED = launch_config(reviewers=["ana"])


@stand_in
class Published(Counted):
    published: bool = True
    registered_model: str = "keyboard-en-US-NWP"
    version: int = 1
    versions: dict[str, int] = Field(default={"keyboard-en-US-NWP": 1})


def refused(_ctx: StageContext) -> Counted:
    raise ValueError("1 drowns what 240+ devices type")


def untouched(_ctx: StageContext) -> Counted:
    raise RefusedUntouched("too few devices answered the call")


def stages(decision: str = "launch", **special: Callable[[StageContext], Counted]) -> Stages:
    """All stages of a launch, which leave a private file each; the decision reads evidence as the real one does."""

    def counted(ctx: StageContext) -> Counted:
        write_text(ctx.private / "made.txt", ctx.stage)
        return Counted(value=1)

    def found(ctx: StageContext) -> Discovered:
        counted(ctx)
        return Discovered.example()

    def decided(ctx: StageContext) -> Decided:
        block = decide(evidence(ctx), ctx.config.policy)
        passed = tuple(gate.model_copy(update={"passed": True}) for gate in block.gates)
        launched = DecisionBlock(decision="launch", gates=passed, reasons=("all passed",))
        return Decided(value=1, **dict(launched if decision == "launch" else block))

    made = dict.fromkeys(of_launch(CONFIG, STAGES), counted) | {
        "discover": found,
        "fine_tune": lambda ctx: Trained(value=1, spend=spend(0.25)),
        "ab_test": lambda ctx: Compared(value=1),
        "decide": decided,
        "report": lambda ctx: Reported(value=1),
        "publish": lambda ctx: Published(value=1, published=decision == "launch"),
    }
    trained = Stage("fine_tune", "", needs=("plan",), planned=lambda config, run: spend(0.4))
    chosen = made | special
    return stages_of({name: chosen[name] for name in STAGES if name in chosen}, trained)


class Case:
    """One launch, and what verification says of it."""

    def __init__(self, settings: Settings, config: LaunchConfig = CONFIG) -> None:
        self.settings, self.config = settings, config
        self.run = run_folder(settings, launch_id(config))
        self.ledger = registered(PrivacyLedger.of(settings), "people")

    def launch(self, made: Stages) -> None:
        run_stages(self.config, self.run.launch_id, self.settings, made)

    def stage(self, name: str, made: Stages) -> None:
        runner.run_stage(name, self.config, self.run.launch_id, self.settings, made)

    @property
    def state(self) -> str:
        return standing(self.config, self.run, self.ledger).state

    def checks(self) -> list[Check]:
        found = verify(self.config, self.run, self.settings, ("files", "ledger"))
        return [check for check in found if not check.id.startswith("spend")]

    def verified(self) -> Verification:
        return verification(self.checks())

    def wrong(self) -> list[str]:
        return [f"{check.id}: {check.detail}" for check in self.checks() if check.passed is not True]

    def answer(self, verdict: str) -> None:
        word = Review(account="os:ana", answer=verdict, reason="read it", report="d" * 64)
        population, run_id = self.config.population, self.run.launch_id
        review(self.config, self.run, self.ledger, signed(self.settings, population, run_id, word))


@pytest.mark.slow
@pytest.mark.parametrize("counts", [None, {"noise_multiplier": 2.0, "model": "network"}])
def test_a_published_launch(settings: Settings, counts: dict | None):
    case = Case(settings, launch_config(counts=counts))
    case.launch(stages(count=lambda ctx: Counted(value=1)))
    assert (case.state, case.wrong()) == ("published", [])


@pytest.mark.slow
def test_a_launch_that_a_gate_holds(settings: Settings):
    case = Case(settings)
    case.launch(stages("hold"))
    assert (case.state, case.wrong()) == ("held", [])


@pytest.mark.slow
@pytest.mark.parametrize("stage", sorted(filter(is_evidence, STAGES)))
def test_a_launch_held_for_evidence_that_failed_after_the_spend(settings: Settings, stage: str):
    case = Case(settings)
    with pytest.raises(ValueError, match="drowns"):
        case.launch(stages("hold", **{stage: refused}))
    assert (case.run.path / "private" / stage / STOPPED).exists(), "what tacit status reads"
    assert (case.state, case.wrong()) == ("held", [])
    (without,) = (check for check in case.checks() if check.id == f"files:{stage}")
    assert without.detail == "it did not finish, and the launch is held for that"


@pytest.mark.slow
def test_evidence_whose_record_was_deleted_is_lost(settings: Settings):
    """Whether the decision saw it or not: deleting a record never makes a launch one that was held without it."""
    case = Case(settings)
    case.launch(stages("hold"))
    (case.run.path / "public" / "ab_test" / RESULT).unlink()
    assert case.wrong() == ["files:ab_test: its record is lost"]


@pytest.mark.slow
def test_a_launch_that_waits_was_rejected_or_is_approved(settings: Settings):
    case = Case(settings, REVIEWED)
    case.launch(stages())
    assert (case.state, case.wrong()) == ("waiting", [])
    case.answer("reject")
    assert (case.state, case.wrong()) == ("rejected", [])


@pytest.mark.slow
def test_an_approved_launch_is_still_to_be_published(settings: Settings):
    case = Case(settings, REVIEWED)
    case.launch(stages())
    case.answer("approve")
    assert case.state == "approved"
    assert case.verified().unfinished == ("publish",)
    assert case.verified().failed == case.verified().unknown == 0
    case.launch(stages())
    assert (case.state, case.wrong()) == ("published", [])


@pytest.mark.slow
def test_a_launch_that_was_rolled_back(settings: Settings):
    case = Case(settings)
    case.launch(stages())
    undone = {"registered_model": "keyboard-en-US-NWP", "version": 1, "to_version": 0, "reason": "bad", "by": "ana"}
    case.ledger.note("rollback", "keyboard-en-US-NWP", case.run.launch_id, "keyboard-en-US-NWP version 1", undone)
    assert (case.state, case.wrong()) == ("rolled back", [])


def test_a_launch_that_the_plan_refused(settings: Settings):
    """Alone, and in Airflow, where the decision is made whatever failed before it."""
    case, made = Case(settings), stages("hold", plan=refused)
    with pytest.raises(ValueError, match="drowns"):
        case.launch(made)
    found = case.verified()
    assert (found.failed, found.unknown, found.unfinished[0]) == (0, 0, "plan")
    assert "plan stopped at" in next(check.detail for check in case.checks() if check.id == "unfinished:plan")
    case.stage("decide", made)
    assert (case.verified().failed, case.verified().unknown) == (0, 0)
    assert "decide" not in case.verified().unfinished


@pytest.mark.slow
def test_a_spend_that_was_given_back(settings: Settings):
    case = Case(settings)
    with pytest.raises(RefusedUntouched):
        case.launch(stages(fine_tune=untouched))
    assert [entry.does for entry in case.ledger.spends()] == ["reserve", "release"]
    assert (case.verified().failed, case.verified().unknown) == (0, 0)
    case.launch(stages())
    assert (case.state, case.wrong()) == ("published", [])


def test_what_a_killed_stage_leaves_is_nobody_else_s(settings: Settings):
    case = Case(settings)

    def killed(ctx: StageContext) -> Counted:
        for left in (OUTCOME, progress.FILE, STOPPED, ".state.npz.4194999.tmp"):
            write_text(ctx.private / left, "{}")
        (ctx.private / "rounds").mkdir()
        raise OSError("the machine went away")

    with pytest.raises(OSError, match="went away"):
        case.launch(stages(discover=killed))
    assert (case.verified().failed, case.verified().unknown) == (0, 0)
    assert case.verified().unfinished[0] == "discover"


@pytest.mark.slow
def test_a_hidden_file_that_is_not_on_the_list_was_added(settings: Settings):
    case = Case(settings)
    case.launch(stages())
    # Bookkeeping below a stage's folder is on no list.
    for name in (".hidden", ".stopped.bak", ".parts", f"rounds/{STOPPED}"):
        added = case.run.path / "private" / "discover" / name
        write_text(added, "{}")
        assert case.wrong() == [f"files: private/discover/{name} was left or added"]
        added.unlink()


def test_a_launch_is_verified_only_if_every_check_was_made_and_passed():
    good, bad = Check(id="ledger", passed=True, detail=""), Check(id="rho", passed=False, detail="")
    later, unknown = (Check(id=name, passed=None, detail="") for name in ("unfinished:audit", "tracked"))
    assert [verification([good, *more]).ok for more in ((), (later,), (bad,), (unknown,))] == [
        True,
        False,
        False,
        False,
    ]
