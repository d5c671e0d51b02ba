"""One thing that was derived again, the sum of all of them, and stages of a launch that have no record.

A launch ends published, held, rejected or rolled back, and may end without evidence, for which it is then held. Each of
these endings verifies. One that has not ended is no broken launch: what has not finished is named, and not verified.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from pipeline.launch.config import LaunchConfig
from pipeline.publication.approvals import Standing
from pipeline.run.attempts import Stop
from pipeline.run.run_dir import ABSENT, StageRecord
from pipeline.run.stage import of_launch
from pipeline.stages.graph import STAGES, is_evidence

TOLERANCE = 1e-9
_UNFINISHED = "unfinished:"  # how checks of stages begin that have not finished


class Check(BaseModel):
    """One thing that was derived again; ``passed`` is None if it cannot be checked here, which is not verified."""

    model_config = ConfigDict(frozen=True)

    id: str
    passed: bool | None
    detail: str


def in_words(problems: list[str], most: int = 4) -> str:
    """The first few of many, and how many more there are."""
    more = f" and {len(problems) - most} more" if len(problems) > most else ""
    return "; ".join(problems[:most]) + more


@dataclass(frozen=True)
class Verification:
    """Outcome of all checks of a launch.

    Attributes:
      ok: True if every check was made and passed.
      failed, unknown: how many did, and how many could not be made here.
      unfinished: stages that are still to be run.
    """

    ok: bool
    failed: int
    unknown: int
    unfinished: tuple[str, ...]
    checks: tuple[Check, ...]

    def __str__(self) -> str:
        made = len(self.checks) - len(self.unfinished)
        if self.failed or self.unknown:
            rest = f"; not finished: {', '.join(self.unfinished)}" if self.unfinished else ""
            return (
                f"NOT verified: {self.failed} of {made} checks failed, and {self.unknown} could not be made here{rest}"
            )
        if self.unfinished:
            return f"not finished: {', '.join(self.unfinished)}; what has finished verified: {made} checks"
        return f"verified: {made} checks"


def verification(checks: Sequence[Check]) -> Verification:
    """Count checks by how they ended; a stage that has not finished is no check."""
    unfinished = tuple(check.id.removeprefix(_UNFINISHED) for check in checks if check.id.startswith(_UNFINISHED))
    failed, unknown = (sum(check.passed is outcome for check in checks) for outcome in (False, None))
    unknown -= len(unfinished)
    return Verification(not (failed or unknown or unfinished), failed, unknown, unfinished, tuple(checks))


def of_missing_stage(
    name: str,
    config: LaunchConfig,
    records: Mapping[str, StageRecord],
    standing: Callable[[], Standing],
    stop: Stop | None,
    *,
    is_bound: bool,
) -> Check | None:
    """Check of a stage without a record; None where the launch does not have that stage.

    Guarantee: a record that the ledger knows, or that another stage read, was lost, and is never called unfinished.

    Args:
      standing: says where the launch stands.
      stop: how its last try ended, where it ended badly.
      is_bound: whether the ledger holds a record of the stage.
    """
    if name not in of_launch(config, STAGES) and not is_bound:
        return None
    read = {
        stage: digest
        for stage, record in records.items()
        for path, digest in record.inputs.items()
        if path.startswith(f"{name}/")
    }
    if is_bound or any(digest != ABSENT for digest in read.values()):
        return Check(id=f"files:{name}", passed=False, detail="its record is lost")
    now = standing()
    if name == "publish" and now.state in ("held", "rejected", "waiting"):
        detail = f"not published, as the launch is {now.state}: {now.detail}"
        return Check(id=f"files:{name}", passed=True, detail=detail)
    if is_evidence(name) and now.state == "held" and "decide" in read:
        return Check(id=f"files:{name}", passed=True, detail="it did not finish, and the launch is held for that")
    why = "has not finished" if stop is None or stop.stage != name else f"has not finished: {stop}"
    return Check(id=f"{_UNFINISHED}{name}", passed=None, detail=why)
