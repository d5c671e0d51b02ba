"""One check of a verification, the summary of all checks, and checks of stages without a record.

A launch ends published, held, rejected or rolled back; one with missing evidence is held. Each of these endings
verifies. A launch that has not ended is not broken: its unfinished stages are listed, and are not verified.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from pipeline.launch.config import LaunchConfig
from pipeline.publication.approvals import Standing
from pipeline.run.attempts import Stop
from pipeline.run.run_dir import ABSENT, StageRecord
from pipeline.run.stage import of_launch
from pipeline.stages.graph import STAGES, is_evidence

TOLERANCE = 1e-9
_UNFINISHED = "unfinished:"  # prefix of the id of a check on an unfinished stage


class Check(BaseModel):
    """One check of a verification; ``passed`` is None if it cannot be made here, which counts as not verified."""

    model_config = ConfigDict(frozen=True)

    id: str
    passed: bool | None
    detail: str


def in_words(problems: list[str], most: int = 4) -> str:
    """Join the first few problems, with the number of further ones."""
    more = f" and {len(problems) - most} more" if len(problems) > most else ""
    return "; ".join(problems[:most]) + more


def strict_json(content: bytes) -> dict[str, Any]:
    """Parse JSON; ValueError for a key that stands twice, which other readers may take otherwise."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError(f"a key stands twice among {', '.join(name for name, _ in pairs)}")
        return dict(pairs)

    return json.loads(content, object_pairs_hook=once)


@dataclass(frozen=True)
class Verification:
    """Outcome of all checks of a launch.

    Attributes:
      ok: True if every check was made and passed.
      failed, unknown: number of checks that failed, and that could not be made here.
      unfinished: stages that have not finished.
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
            return f"not finished: {', '.join(self.unfinished)}; finished stages verified: {made} checks"
        return f"verified: {made} checks"


def verification(checks: Sequence[Check]) -> Verification:
    """Summarise checks by outcome; an unfinished stage is not counted as a check."""
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
    """Check of a stage without a record; None if the launch does not have that stage.

    Guarantee: a missing record that the ledger holds, or that another stage read, is reported as lost, never as
    unfinished.

    Args:
      standing: returns the state of the launch.
      stop: end of the last attempt, if it failed.
      is_bound: True if the ledger holds a record of the stage.
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
