"""Read a reviewer's answer from Airflow's API, under an account with read access only.

The task that asked passes only its own identity (run, task, attempt): the reviewer, the answer, the launch and the
report all come from Airflow's server.
"""

import json
import os
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, ValidationError

from pipeline.ground.errors import ReleaseRefused
from pipeline.ground.settings import AirflowReader
from pipeline.ledger.budget import Population
from pipeline.publication.answers import Question, Review

_OPENER = urllib.request.build_opener(
    urllib.request.ProxyHandler({})
)  # The server belongs to this installation: no proxy.
_SECONDS, _MOST_BYTES = 60, 1 << 22
# Field of the form for a comment (dags/approval.py), and its length.
_COMMENT, _MOST_COMMENT = "comment", 500
_WORDS = {"Approve": "approve", "Reject": "reject"}
# State of a listening socket in /proc/net/tcp.
_LISTENS = "0A"


class _User(BaseModel):
    id: str


class _Param(BaseModel):
    description: str | None = None


class _Detail(BaseModel):
    """The fields of Airflow's ``HITLDetail`` that are used here."""

    body: str
    params: dict[str, _Param] = {}
    responded_by_user: _User | None = None
    responded_at: datetime | None = None
    chosen_options: list[str] | None = None
    params_input: dict[str, Any] = {}


def registered_reader(login: AirflowReader | None, population: Population) -> AirflowReader:
    """The API that answers about launches on a population are read from, with this installation's login there.

    Guarantee: for people it is the address in their registration, which only those who may change the budget change;
    the environment decides it for a simulation alone, which protects no one.

    Raises:
      ReleaseRefused: no address is registered, or there is no login.
    """
    if login is None:
        raise ReleaseRefused(
            "review: the answer cannot be read from Airflow; set TACIT_AIRFLOW_URL, TACIT_AIRFLOW_USER and "
            "TACIT_AIRFLOW_PASSWORD to its address and an account with read access"
        )
    if population.simulated:
        return login
    if not population.rules.airflow:
        raise ReleaseRefused(
            f"review: population {population.key!r} is registered without an Airflow that is asked for answers; let "
            f"{' or '.join(population.raised_by)} name it (tacit ledger budget {population.key} --airflow https://... "
            "--reason ...), or let the reviewer answer with a key of their own (tacit review)"
        )
    return replace(login, url=population.rules.airflow.rstrip("/"))


def read(question: Question, launch_id: str, concerns: Sequence[str], airflow: AirflowReader, account: str) -> Review:
    """Read the answer to a question, and the account that gave it.

    Guarantee: the account in the review is the one that Airflow's server authenticated for the answer, and the launch
    and the report are those that the question showed; none of it comes from the task or from the command line.

    Args:
      concerns: warnings and main concerns of the launch's report; an approval accepts each.
      account: account of the operating system that records the answer.

    Raises:
      ReleaseRefused: there is no answer, or it is about another launch, or approves without accepting every concern.
      OSError: Airflow does not answer.
    """
    place = f"{question.task_id} of {question.run_id}, try {question.try_number}"
    detail = _ask(question, place, airflow)
    answer = _WORDS.get(" and ".join(detail.chosen_options or ()))
    if answer is None or detail.responded_by_user is None or detail.responded_at is None:
        raise ReleaseRefused(f"review: {place}: has no approval or rejection in Airflow")
    shown = {each.description for each in detail.params.values()}
    reports = re.findall(r"disclosure has SHA-256\s+`([0-9a-f]{64})`", detail.body)
    if f"Launch `{launch_id}` " not in detail.body or len(reports) != 1 or not shown.issuperset(concerns):
        raise ReleaseRefused(f"review: {place} asked about another launch or report than that of {launch_id}")
    boxes = [name for name in detail.params if name != _COMMENT]
    left_open = [name for name in boxes if detail.params_input.get(name) is not True]
    if answer == "approve" and left_open:
        raise ReleaseRefused(
            f"review: {place}: approved without accepting {len(left_open)} of {len(boxes)} concerns, so "
            "the answer does not count; clear the task to be asked again, and tick every box or reject"
        )
    try:
        return Review(
            account=f"airflow:{detail.responded_by_user.id}",
            indistinct_from="" if runs_apart(airflow.url) else account,
            answer=answer,
            reason=" ".join(str(detail.params_input.get(_COMMENT) or "").split())[:_MOST_COMMENT]
            or "answered in Airflow",
            report=reports[0],
            question=question,
        )
    except ValidationError as error:
        name = detail.responded_by_user.id[:100]
        raise ReleaseRefused(f"review: {name!r} answered in Airflow, which is not a valid reviewer's name") from error


def _ask(question: Question, place: str, airflow: AirflowReader) -> _Detail:
    names = [quote(name, safe="") for name in (question.dag_id, question.run_id, question.task_id)]
    path = "/api/v2/dags/{}/dagRuns/{}/taskInstances/{}/-1/hitlDetails".format(*names)
    login = json.dumps({"username": airflow.user, "password": airflow.password}).encode()
    try:
        token = _fetched(f"{airflow.url}/auth/token", {"Content-Type": "application/json"}, login)["access_token"]
        asked = f"{airflow.url}{path}/tries/{question.try_number}"
        return _Detail.model_validate(_fetched(asked, {"Authorization": f"Bearer {token}"}))
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise ReleaseRefused(f"review: {place}: has no question in Airflow") from error
        if error.code in (401, 403):
            raise ReleaseRefused(
                f"review: Airflow does not let {airflow.user!r} read its questions; TACIT_AIRFLOW_USER and "
                "TACIT_AIRFLOW_PASSWORD must be those of an account with read access"
            ) from error
        raise
    except (ValueError, KeyError) as error:
        raise OSError(f"Airflow at {airflow.url} does not answer as Airflow 3.3 does") from error


def _fetched(address: str, headers: dict[str, str], body: bytes | None = None) -> Any:
    request = urllib.request.Request(address, data=body, headers=headers)
    with _OPENER.open(request, timeout=_SECONDS) as answer:
        return json.loads(answer.read(_MOST_BYTES))


def runs_apart(url: str) -> bool:
    """True if this process' account cannot impersonate a reviewer on Airflow's server.

    True for a server on another machine or in another container. On this machine, true if another account listens at
    the address and this account is not root, as the account that runs the server can read its passwords. False if the
    listener cannot be determined.
    """
    place = urlsplit(url)
    port = place.port or (443 if place.scheme == "https" else 80)
    if not any(_is_here(*each[::4]) for each in socket.getaddrinfo(place.hostname, port, type=socket.SOCK_STREAM)):
        return True
    owners = _listeners(port)
    return bool(owners) and not owners & {os.getuid()} and os.getuid() != 0


def _is_here(family: int, address: tuple[Any, ...]) -> bool:
    """True if an address belongs to this machine, as only its own addresses can be bound."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address[0], 0, *address[2:]))
        except OSError:
            return False
    return True


def _listeners(port: int) -> set[int]:
    """Accounts that listen at a port of this machine, on Linux; empty on other systems."""
    owners = set[int]()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if not Path(table).is_file():
            continue
        for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
            words = line.split()
            if words[3] == _LISTENS and int(words[1].rpartition(":")[2], 16) == port:
                owners.add(int(words[7]))
    return owners
