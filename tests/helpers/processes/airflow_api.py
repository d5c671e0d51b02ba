"""The two routes of Airflow's API by which an answer is read: a server on loopback, with one question."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from pipeline.ground.settings import AirflowReader

USER, PASSWORD, TOKEN = "tacit-reader", "letters-and-digits", "a-token"
PLACE = "/api/v2/dags/people/dagRuns/manual%2B1/taskInstances/approve/-1/hitlDetails/tries/2"


def question(launch_id: str, report: str, warnings: tuple[str, ...] = (), **changes: Any) -> dict[str, Any]:
    """What Airflow says of an approved question, as `dags/approval.py` asks it."""
    boxes = {f"concern_{number}": {"value": False, "description": each} for number, each in enumerate(warnings, 1)}
    return {
        "subject": f"Publish NWP for en-US: {launch_id}?",
        "body": f"\nLaunch `{launch_id}` passed every automatic gate.\n- its disclosure has SHA-256\n  `{report}`",
        "params": boxes,
        "options": ["Approve", "Reject"],
        "responded_by_user": {"id": "ana", "name": "Ana"},
        "responded_at": "2026-11-24T12:00:00Z",
        "chosen_options": ["Approve"],
        "params_input": dict.fromkeys(boxes, True),
        "task_instance": {"task_id": "approve"},
    } | changes


@contextmanager
def served(detail: dict[str, Any], password: str = PASSWORD, host: str = "127.0.0.1") -> Iterator[AirflowReader]:
    """The server, as settings name it."""

    class Api(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            login = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            known = self.path == "/auth/token" and login == {"username": USER, "password": PASSWORD}
            self.say(201 if known else 401, {"access_token": TOKEN} if known else {"detail": "no"})

        def do_GET(self) -> None:
            if self.headers["Authorization"] != f"Bearer {TOKEN}":
                self.say(401, {})
            elif self.path != PLACE:
                self.say(404, {"detail": "not found"})
            else:
                self.say(200, detail)

        def say(self, code: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer((host, 0), Api)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield AirflowReader(f"http://{host}:{server.server_address[1]}", USER, password)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
