"""Notifications of people: to the log, to a webhook, by e-mail.

Events: a task failed permanently, a launch is held, an approval is requested, an approval timed out, a task is late, a
published model is decided about. As a script, `notify.py stopped|recovered SERVICES`, it tells about services of the
stack (docker/stack/watch.py), over the same channels; their connections are then read from the environment alone.

Guarantee: a message holds only values of the ``FORMS`` below and sentences of this file. A value that does not match
its form is left out, and no other part of a run is read: no error text, no log, no result of a stage except the launch
id and the names of gates, none of its parameters, notes or settings. Details are behind the link, with its access
control.

    TACIT_MAIL_TO       recipients of mail, separated by commas; default: no mail. The server is Airflow's connection
                        ``smtp_default`` (with ``from_email`` in its extra)
    TACIT_WEBHOOK       id of an Airflow connection of type ``http`` that gets the facts as JSON by POST; default: none
"""

import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from airflow.sdk import Context, conf
from airflow.sdk.bases.notifier import BaseNotifier
from airflow.sdk.exceptions import AirflowException

from launch_file import LaunchFile

_RELEASES = "(local words|central words|counts|training|evaluation)"
_PART = rf"{_RELEASES}((, | and ){_RELEASES}){{0,5}} [0-9.]{{1,20}}"
_GAIN = r"[+-][0-9.]{1,8}(%| pp)"
# Values that may be sent, and their required form.
FORMS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(form)
    for name, form in {
        "event": r"failed|held|approval|unanswered|late|decided|stopped|recovered",
        "services": r"[a-z][a-z-]{0,39}(, [a-z][a-z-]{0,39}){0,19}",
        "launch_file": r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}",
        "launch_id": r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}-[0-9a-f]{8}(-[0-9]{8})?",
        "locale": r"[A-Za-z0-9-]{1,40}",
        "features": r"[A-Z]{2,5}(, [A-Z]{2,5})*",
        "date": r"[0-9]{8}",
        "task": r"[a-z][a-z0-9_]{0,39}",
        "exit_code": r"-?[0-9]{1,3}",
        "gates": r"[a-z][a-z0-9_]{0,39}(, [a-z][a-z0-9_]{0,39}){0,59}",
        "decision": r"promote|roll back",
        "due": r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{5,15}(Z|\+00:00)",
        # The first page of a report, in the report's own sentences.
        "guarantee": rf"guarantee of one device: epsilon [0-9.]{{1,20}}( \({_PART}\))? at delta [0-9.e-]{{1,20}}"
        r"(, rho [0-9.]{1,20})?",
        "recall": r"first suggestion correct in [0-9.]{1,6}% of cases \([0-9.]{1,6}% to [0-9.]{1,6}%\)",
        "champion": rf"users have no model of this keyboard yet|against the current version [0-9]{{1,9}}: {_GAIN} "
        rf"\({_GAIN} to {_GAIN}\)",
        "link": r"https?://[^\s?#<>\"']{1,1500}",
    }.items()
}
_SENTENCES = {
    "failed": "Task {task} of {launch} failed permanently. Its log has the reason, docs/operations.md the fix for each "
    "exit code. Clear it in Airflow to resume from its checkpoint; nothing is spent twice.",
    "held": "{launch} is held: a gate did not pass. Nothing is published, and its spends stay spent. Its report has "
    "the evidence of every gate, docs/operations.md the next steps.",
    "approval": "{launch} passed its gates and waits for a reviewer. Read the report before you answer.",
    "unanswered": "No reviewer answered for {launch} in time, so it is not published. Clear task approve to ask again.",
    "decided": "It is decided whether all devices get the model of {launch}; 'tacit status' shows its state.",
    "late": "{task} of {launch} is late. docs/operations.md lists the causes.",
    "stopped": "Services of the stack ended or do not answer: {services}. The stack restarts what ended; "
    "docs/operations.md lists the effects.",
    "recovered": "Services of the stack are well again: {services}.",
}
_FIRST_PAGE = ("guarantee", "recall", "champion")
_EXIT = re.compile(r"tacit exited with (-?[0-9]+)")


class Notice(BaseNotifier):
    """Sends one event by Airflow's own notifiers; a callback of a task, or the notifier of an approval.

    The gate that holds a launch may also fail for another reason, which is then told as a failure.
    """

    def __init__(self, event: str, launch: LaunchFile) -> None:
        super().__init__()
        self.event, self.launch = event, launch

    def notify(self, context: Context) -> None:
        event = "failed" if self.event == "held" and not held(context) else self.event
        send(facts(event, self.launch, context), self.log)


@contextmanager
def late(launch: LaunchFile, context: Context, after: timedelta) -> Iterator[None]:
    """Send one notification if the block takes longer than ``after``.

    A task checks its own time: Airflow's deadlines apply to whole runs, and a run with one cannot be cleared
    (3.3.2, its issue 70368).
    """
    due = f"{datetime.now(UTC) + after:%Y-%m-%dT%H:%M:%SZ}"
    message = facts("late", launch, context, due=due)
    timer = threading.Timer(after.total_seconds(), send, (message, Notice("late", launch).log))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def held(context: Context) -> bool:
    """Return whether the launch's decision is to hold."""
    return result(context, "decide").get("decision") == "hold"


def facts(event: str, launch: LaunchFile, context: Mapping[str, Any], **more: str | None) -> dict[str, str]:
    """Values that are sent for an event, by name in ``FORMS``."""
    ti = context.get("ti")
    gates = result(context, "decide").get("gates", ()) if event == "held" else ()
    code = _EXIT.search(str(context.get("exception", "")))
    asked = {
        "event": event,
        "launch_file": launch.name,
        "launch_id": (result(context, "check") or result(context, "begun")).get("launch_id"),
        "locale": launch.locale,
        "features": ", ".join(launch.features),
        "date": getattr(context.get("dag_run"), "partition_key", None),
        "task": getattr(ti, "task_id", None),
        "exit_code": code[1] if code else None,
        "gates": ", ".join(gate["id"] for gate in gates if not gate["passed"]),
        "decision": result(context, "settle").get("decision") if event == "decided" else None,
        "link": page(ti),
    }
    return in_form(asked | (first_page(context) if event == "approval" else {}) | more)


def first_page(context: Mapping[str, Any]) -> dict[str, str]:
    """Lines of the report's summary that have the form of one of its facts, by their names."""
    lines = [line for line in result(context, "report").get("summary", ()) if isinstance(line, str)]
    return {name: line for name in _FIRST_PAGE for line in lines if FORMS[name].fullmatch(line)}


def in_form(values: Mapping[str, Any]) -> dict[str, str]:
    """Filter values by ``FORMS``."""
    return {name: value for name, value in values.items() if isinstance(value, str) and FORMS[name].fullmatch(value)}


def result(context: Mapping[str, Any], task_id: str) -> dict[str, Any]:
    """Result of a task; empty if Airflow has none, as for a task whose process died."""
    pull = getattr(context.get("ti"), "xcom_pull", None)
    try:
        answer = pull(task_ids=task_id) if pull else None
    except (AirflowException, OSError, RuntimeError):
        return {}
    return answer if isinstance(answer, dict) else {}


def page(ti: Any) -> str | None:
    """Address of the page of a task, or of its run; None if Airflow's address is not set."""
    base, dag_id, run_id = (
        conf.get("api", "base_url", fallback=""),
        getattr(ti, "dag_id", ""),
        getattr(ti, "run_id", ""),
    )
    if not (base and dag_id and run_id):
        return None
    place = f"{base.rstrip('/')}/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"
    return f"{place}/tasks/{ti.task_id}" if getattr(ti, "task_id", None) else place


def send(message: Mapping[str, str], log: Any) -> bool:
    """Send facts over every configured channel; a channel that fails does not stop the others. True: none failed."""
    subject, text = sentences(message)
    log.warning("%s", text)
    well = True
    for channel in channels(message, subject, text):
        try:
            channel.notify({})
        except (AirflowException, OSError, RuntimeError, ValueError) as error:
            # The error's text may hold an address with a password.
            log.error("%s was not sent by %s: %s", subject, type(channel).__name__, type(error).__name__)
            well = False
    return well


def sentences(message: Mapping[str, str]) -> tuple[str, str]:
    """Subject and text of a message."""
    named = {"launch": message.get("launch_id") or message.get("launch_file", "a launch"), "task": "a task"} | message
    text = _SENTENCES[message["event"]].format_map(named)
    facts = [value if name in _FIRST_PAGE else f"{name}: {value}" for name, value in message.items() if name != "event"]
    lines = [text, *facts]
    return f"tacit: {message.get('services') or named['launch']}: {message['event']}", "\n".join(lines)


def channels(message: Mapping[str, str], subject: str, text: str) -> list[BaseNotifier]:
    """Airflow's notifiers of the configured channels, with their messages, which contain no template."""
    chosen = list[BaseNotifier]()
    if people := [name.strip() for name in os.environ.get("TACIT_MAIL_TO", "").split(",") if name.strip()]:
        from airflow.providers.smtp.notifications.smtp import SmtpNotifier

        chosen.append(SmtpNotifier(to=people, subject=subject, html_content=f"<pre>{text}</pre>"))
    if connection := os.environ.get("TACIT_WEBHOOK"):
        from airflow.providers.http.notifications.http import HttpNotifier

        body = {**message, "text": text}
        chosen.append(HttpNotifier(http_conn_id=connection, json=body, headers={"Content-Type": "application/json"}))
    return chosen


if __name__ == "__main__":
    import logging
    import sys

    event, services = sys.argv[1:]
    sys.exit(not send(in_form({"event": event, "services": services}), logging.getLogger("notify")))
