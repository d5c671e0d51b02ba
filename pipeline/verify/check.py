"""One thing that was derived again, and what came of it."""

from pydantic import BaseModel, ConfigDict

TOLERANCE = 1e-9


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
