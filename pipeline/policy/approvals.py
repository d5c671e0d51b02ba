"""Who counts as another person among those who approve a launch."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar


class Answer(Protocol):
    """Who answered, and under which account it was written down."""

    @property
    def who(self) -> str: ...

    @property
    def account(self) -> str: ...


_Answer = TypeVar("_Answer", bound=Answer)


def persons(approvals: Iterable[_Answer]) -> list[_Answer]:
    """Approvals of different persons, in the order given.

    Guarantee: no two of them share a reviewer's name or an account, so nobody is two persons by answering once in each
    of two names under one account. Who has two accounts and is two reviewers is not found out here.
    """
    distinct = list[_Answer]()
    for each in approvals:
        if all(each.who != other.who and each.account != other.account for other in distinct):
            distinct.append(each)
    return distinct


def require_reviewers(approvals: int, reviewers: Sequence[str]) -> None:
    """ValueError where a launch file names fewer reviewers than its policy asks to approve."""
    people = len(set(reviewers))
    if approvals > max(people, 1):
        raise ValueError(
            f"policy.approvals: {approvals}, but reviewers names {people} of them, so nobody could publish it; name "
            "more, or lower it"
        )
