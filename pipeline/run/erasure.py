"""Statement that a launch's private files were erased, with time and reason."""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.run.run_dir import ERASED, RunDir
from pretrain.files import write_text


@dataclass(frozen=True)
class Erasure:
    """The erasure of a launch's private files.

    Attributes:
      erased_at: in UTC, as 2026-01-31T12:00:00+00:00.
      because: the reason, in public words.
      not_verified: checks that had not passed before the erasure.
      files: number of erased files.
    """

    launch_id: str
    erased_at: str
    because: str
    verified: bool
    not_verified: tuple[str, ...]
    files: int

    def __str__(self) -> str:
        before = "after verification" if self.verified else "without verification"
        return (
            f"{self.launch_id}: its {self.files} private files were erased at {self.erased_at[:16]}Z, {before}, "
            f"because {self.because}"
        )


def erasure_of(run: RunDir) -> Erasure | None:
    """Return the erasure of a launch; None if nothing was erased, or if its statement cannot be read."""
    with suppress(OSError, ValueError, TypeError, LookupError):
        return read_erasure(run.path / "public" / "launch" / ERASED)
    return None


def read_erasure(path: Path) -> Erasure:
    """Read the statement of an erasure."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return Erasure(**content | {"not_verified": tuple(content["not_verified"])})


def write_erasure(run: RunDir, erasure: Erasure) -> None:
    """Write the statement, unless an interrupted erasure already wrote one."""
    if not run.erased:
        write_text(run.public("launch") / ERASED, json.dumps(asdict(erasure), indent=2, sort_keys=True) + "\n")
