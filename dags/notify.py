"""Notifications that leave Airflow when somebody is needed: to the log, to a webhook, by e-mail.

Events: a task failed for good, a launch is held, an approval is asked for, nobody answered in time, something is late,
an experiment is decided.

Guarantee: what is sent are the ``FORMS`` below and sentences of this file. A value that has not its form is left out,
and nothing else of a run is looked at: no error's text, no log, no result of a stage beside the launch's id and the
names of gates, none of its parameters, notes or settings. Details are read where they are guarded: behind the link.

    TACIT_MAIL_TO       who gets mail, separated by commas; none: no mail. The server is Airflow's connection
                        ``smtp_default`` (with ``from_email`` in its extra)
    TACIT_WEBHOOK       id of an Airflow connection of type ``http`` that gets the facts as JSON by POST; none: nobody
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

# All that may be sent, and the form that it must have.
FORMS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(form)
    for name, form in {
        "event": r"failed|held|approval|unanswered|late|experiment",
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
        "link": r"https?://[^\s?#<>\"']{1,1500}",
    }.items()
}
_SENTENCES = {
    "failed": "Task {task} of {launch} failed for good. Its log says why; docs/operations.md what to do about each "
    "exit code. Cleared in Airflow it goes on from its checkpoint, and spends nothing twice.",
    "held": "{launch} is held: a gate did not pass. Nothing is published, and what was spent stays spent. Its report "
    "says what every gate saw; docs/operations.md what to do.",
    "approval": "{launch} passed its gates and waits for a reviewer. Read the report before you answer.",
    "unanswered": "Nobody answered for {launch} in time, so nothing is published. Clear the task approve to ask again.",
    "experiment": "The live experiment of {launch} is decided. docs/experiments.md says what each decision means.",
    "late": "{task} of {launch} is late. docs/operations.md says where to look.",
}
_EXIT = re.compile(r"tacit exited with (-?[0-9]+)")


class Notice(BaseNotifier):
    """Tells people of one event, by Airflow's own notifiers; a callback, or what an approval is given to tell."""

    def __init__(self, event: str, launch: LaunchFile) -> None:
        super().__init__()
        self.event, self.launch = event, launch

    def notify(self, context: Context) -> None:
        if self.event != "held" or held(context):
            send(facts(self.event, self.launch, context), self)


@contextmanager
def late(launch: LaunchFile, context: Context, after: timedelta) -> Iterator[None]:
    """Tell people once if the block takes longer than that.

    A task watches its own time: Airflow's deadlines are about whole runs, and a run that has one cannot be cleared
    (3.3.2, its issue 70368).
    """
    due = f"{datetime.now(UTC) + after:%Y-%m-%dT%H:%M:%SZ}"
    message = facts("late", launch, context, due=due)
    timer = threading.Timer(after.total_seconds(), send, (message, Notice("late", launch)))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def held(context: Context) -> bool:
    """Return whether the decision on the launch is hold."""
    return result(context, "decide").get("decision") == "hold"


def facts(event: str, launch: LaunchFile, context: Mapping[str, Any], **more: str | None) -> dict[str, str]:
    """All that is sent of an event, by its name in ``FORMS``."""
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
        "decision": result(context, "settle").get("decision") if event == "experiment" else None,
        "link": page(ti),
    }
    return in_form(asked | more)


def in_form(values: Mapping[str, Any]) -> dict[str, str]:
    """The values that may be sent, of some."""
    return {name: value for name, value in values.items() if isinstance(value, str) and FORMS[name].fullmatch(value)}


def result(context: Mapping[str, Any], task_id: str) -> dict[str, Any]:
    """A task's result; empty where Airflow cannot say, as where it tells of a task whose process died."""
    pull = getattr(context.get("ti"), "xcom_pull", None)
    try:
        answer = pull(task_ids=task_id) if pull else None
    except (AirflowException, OSError, RuntimeError):
        return {}
    return answer if isinstance(answer, dict) else {}


def page(ti: Any) -> str | None:
    """Address of the page of a task, or of its run; none where nobody said where Airflow is."""
    base, dag_id, run_id = (
        conf.get("api", "base_url", fallback=""),
        getattr(ti, "dag_id", ""),
        getattr(ti, "run_id", ""),
    )
    if not (base and dag_id and run_id):
        return None
    place = f"{base.rstrip('/')}/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"
    return f"{place}/tasks/{ti.task_id}" if getattr(ti, "task_id", None) else place


def send(message: Mapping[str, str], speaker: BaseNotifier) -> None:
    """Say facts everywhere where somebody listens; one channel that does not answer takes no other with it."""
    subject, text = sentences(message)
    speaker.log.warning("%s", text)
    for channel in channels(message, subject, text):
        try:
            channel.notify({})
        except (AirflowException, OSError, RuntimeError, ValueError) as error:
            # Its text may hold an address with a password.
            speaker.log.error("%s was not sent by %s: %s", subject, type(channel).__name__, type(error).__name__)


def sentences(message: Mapping[str, str]) -> tuple[str, str]:
    """Subject and text of a message."""
    launch = message.get("launch_id") or message.get("launch_file", "a launch")
    text = _SENTENCES[message["event"]].format(task=message.get("task", "a task"), launch=launch)
    lines = [text, *(f"{name}: {value}" for name, value in message.items() if name != "event")]
    return f"tacit: {launch}: {message['event']}", "\n".join(lines)


def channels(message: Mapping[str, str], subject: str, text: str) -> list[BaseNotifier]:
    """Airflow's notifiers of those channels that are set up, with what they say; nothing in it is a template."""
    chosen = list[BaseNotifier]()
    if people := [name.strip() for name in os.environ.get("TACIT_MAIL_TO", "").split(",") if name.strip()]:
        from airflow.providers.smtp.notifications.smtp import SmtpNotifier

        chosen.append(SmtpNotifier(to=people, subject=subject, html_content=f"<pre>{text}</pre>"))
    if connection := os.environ.get("TACIT_WEBHOOK"):
        from airflow.providers.http.notifications.http import HttpNotifier

        body = {**message, "text": text}
        chosen.append(HttpNotifier(http_conn_id=connection, json=body, headers={"Content-Type": "application/json"}))
    return chosen
