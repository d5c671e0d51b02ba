"""Reviewers' answers in the ledger, each signed for one launch and one report.

On the command line a reviewer signs with a key of their own, whose public half is registered for the population
(``ledger.reviewers``). An answer in Airflow is signed by this installation's key ``answers``, on behalf of the account
that Airflow authenticated.

Guarantee: an entry that was inserted, altered, or copied from another launch, report or person is no answer, also if
the ledger's key signed it. Whoever has the key ``answers`` can answer in the name of an account of Airflow, and of no
other.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from federated.config.population import PopulationKey
from pipeline.ledger.entries import Entry, canonical
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.reviewers import AnswerKeys
from pretrain.config import ACCOUNT_NAME

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

# Authenticating system, and the account's name there.
Account = Annotated[str, Field(pattern=f"^(os|airflow):{ACCOUNT_NAME}$")]
_KIND = "review"


class Question(BaseModel):
    """The attempt of an Airflow task that asked a reviewer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dag_id: str
    run_id: str
    task_id: str
    try_number: int


class Review(BaseModel):
    """One reviewer's answer.

    Attributes:
      account: the account that answered, as the system authenticated it: ``os:NAME`` of the operating system, or
        ``airflow:NAME``.
      indistinct_from: an account of the operating system that both runs Airflow's server and recorded the answer, so
        that it could have answered itself; empty if there is none.
      report: SHA-256 of the reviewed ``disclosure.json``.
      question: None for an answer on the command line.
      signature: Ed25519 over ``message``, as hexadecimal digits; empty before it is signed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    account: Account
    indistinct_from: Account | Literal[""] = ""
    answer: Literal["approve", "reject"]
    reason: str
    report: str
    question: Question | None = None
    signature: str = ""

    @property
    def on_behalf(self) -> bool:
        """True if the installation signs the answer, as Airflow and not a key of the reviewer authenticated it."""
        return self.account.startswith("airflow:")

    @property
    def who(self) -> str:
        """Return the account, with who signed if not the reviewer, and the account it cannot be distinguished from."""
        notes = ["signed by the installation"] * self.on_behalf
        notes += [f"indistinguishable from {self.indistinct_from}"] * bool(self.indistinct_from)
        return f"{self.account} ({', '.join(notes)})" if notes else self.account

    def signed(self, launch_id: str, signer: "CryptoSigner") -> "Review":
        """Return the answer about a launch with its signature."""
        return self.model_copy(update={"signature": signer.sign(message(launch_id, self)).signature})


@dataclass(frozen=True)
class Answer:
    """An entry of the ledger that holds an answer about a launch.

    Attributes:
      at: time of the entry.
      review: None if the entry cannot be read.
      problem: why it is no answer, as a message; empty for an answer that its account gave.
    """

    at: str
    review: Review | None
    problem: str


def message(launch_id: str, review: Review) -> bytes:
    """Signed bytes of an answer: the launch, and every field but the signature."""
    content = review.model_dump(exclude={"signature"}) | {"launch": launch_id}
    return f"tacit review {canonical(content)}".encode()


def answers(ledger: PrivacyLedger, population: PopulationKey, of_launch: Iterable[Entry]) -> list[Answer]:
    """Every answer among the entries of a launch, in order, each with its problem if it has one."""
    entries = [entry for entry in of_launch if entry.kind == _KIND]
    keys = ledger.answer_keys(population) if entries else None
    return [] if keys is None else [_answer(entry, keys) for entry in entries]


def counting(ledger: PrivacyLedger, population: PopulationKey, of_launch: Iterable[Entry]) -> list[tuple[str, Review]]:
    """Time and content of each answer that its account gave, among the entries of a launch, in order."""
    found = answers(ledger, population, of_launch)
    return [(each.at, each.review) for each in found if each.review is not None and not each.problem]


def problem(launch_id: str, review: Review, keys: AnswerKeys, before: int | None = None) -> str:
    """Say why an answer is not its account's; empty if it is.

    Args:
      before: leaf of its entry, which no later key signed; None for an answer to come.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if review.on_behalf:
        public, whose = keys.installation(before), "the installation's key for answers in Airflow"
    else:
        registered = keys.registration(review.account.partition(":")[2], before)
        if registered is None:
            return f"{review.account} had no registered key"
        public, whose = bytes.fromhex(registered.names("public")), f"the key of {review.account}"
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(bytes.fromhex(review.signature), message(launch_id, review))
    except (InvalidSignature, ValueError):
        return f"{whose} did not sign this {review.answer} about this launch and this report"
    return ""


def stage_of(verdict: Review) -> str:
    """Stage name of a review's entry, which allows one answer by each reviewer about each report."""
    return f"review of {verdict.report[:16]} by {person(verdict.account)}"


def person(account: str) -> str:
    """Name for comparing accounts: without the authenticating system, in lower case."""
    return account.partition(":")[2].casefold()


def is_reviewer(account: str, reviewers: Iterable[str]) -> bool:
    """True if a launch file names this account."""
    return person(account) in {name.casefold() for name in reviewers}


def _answer(entry: Entry, keys: AnswerKeys) -> Answer:
    name = f"entry {entry.seq} is no answer of a reviewer: "
    try:
        review = Review.model_validate_json(entry.binding)
    except ValidationError:
        return Answer(entry.created_at, None, f"{name}it cannot be read")
    wrong = problem(entry.launch_id, review, keys, entry.seq)
    if not wrong and entry.stage != stage_of(review):
        wrong = f"it repeats that of {review.account}"
    return Answer(entry.created_at, review, f"{name}{wrong}" if wrong else "")
