"""Accounts of reviewers, and which approvals come from different persons."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Protocol, TypeVar

from pydantic import Field

# Letters that people cannot tell apart, and spaces that they cannot see, are in no account's name.
_NAME = r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}"
Reviewer = Annotated[str, Field(pattern=f"^{_NAME}$")]
# The system that authenticated the account, and its name there.
Account = Annotated[str, Field(pattern=f"^(os|airflow):{_NAME}$")]


class Answer(Protocol):
    """An answer's account, and the account that could have given it as well; empty: no other."""

    @property
    def account(self) -> str: ...

    @property
    def indistinct_from(self) -> str: ...


_Answer = TypeVar("_Answer", bound=Answer)


def person(account: str) -> str:
    """The name by which accounts are compared: without the system that knows it, and in small letters."""
    return account.partition(":")[2].casefold()


def persons(approvals: Iterable[_Answer]) -> list[_Answer]:
    """Approvals of different persons, in the order given.

    Guarantee: no two of them have an account's name in common, as letters of either case, in whichever system; nor is
    one of them given under an account that could have given the other. A person with two accounts of different names
    is not found out here.
    """
    distinct, counted = list[_Answer](), set[str]()
    for each in approvals:
        names = {person(account) for account in (each.account, each.indistinct_from) if account}
        if counted.isdisjoint(names):
            distinct.append(each)
            counted |= names
    return distinct


def is_reviewer(account: str, reviewers: Iterable[str]) -> bool:
    """True if a launch file names this account."""
    return person(account) in {name.casefold() for name in reviewers}


def require_reviewers(approvals: int, reviewers: Sequence[str]) -> None:
    """ValueError where a launch file names fewer reviewers than its policy asks to approve."""
    people = len({name.casefold() for name in reviewers})
    if approvals > max(people, 1):
        raise ValueError(
            f"policy.approvals: {approvals}, but reviewers names {people} of them, so nobody could publish it; name "
            "more, or lower it"
        )
