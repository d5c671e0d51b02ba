"""Airflow as one user of its public API sees it. Used in Airflow's environment too: no import of this project."""

import functools
import json
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Server:
    """Airflow's public API as one user sees it."""

    address: str
    passwords: Path
    tracking: str = ""
    user: str = "admin"

    def call(self, method: str, path: str, body: dict[str, Any] | None = None, token: str | None = None) -> Any:
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data=data, headers=headers, method=method)
        with OPENER.open(request, timeout=60) as answer:
            return json.load(answer)

    def api(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return self.call(method, f"/api/v2{path}", body, token_of(self))

    def states(self, dag: str, run: str) -> dict[str, str]:
        answer = self.api("GET", f"/dags/{dag}/dagRuns/{run}/taskInstances")
        return {instance["task_id"]: instance["state"] for instance in answer["task_instances"]}


def ask_mlflow(
    port: str, password: Path | None, path: str, method: str = "GET", body: dict[str, Any] | None = None, **query: str
) -> dict[str, Any]:
    """Answer of MLflow on a port of loopback to a person: a file with a password, named as its user; None: nobody."""
    address = f"http://127.0.0.1:{port}/api/2.0/mlflow/{path}?{urllib.parse.urlencode(query)}"
    request = urllib.request.Request(address, None if body is None else json.dumps(body).encode(), method=method)
    request.add_header("Content-Type", "application/json")
    if password:
        login = f"{password.name}:{password.read_text(encoding='utf-8').strip()}"
        request.add_header("Authorization", "Basic " + b64encode(login.encode()).decode())
    with OPENER.open(request, timeout=60) as answer:
        return json.load(answer)


@functools.cache
def token_of(server: Server) -> str:
    password = (server.passwords / server.user).read_text(encoding="utf-8").strip()
    return server.call("POST", "/auth/token", {"username": server.user, "password": password})["access_token"]


def latest_monthly(name: str, now: datetime | None = None) -> datetime:
    """Latest date of ``@monthly`` for a launch file: the first of a month, at the file's own minute of the day, UTC."""
    now, minute = now or datetime.now(UTC), zlib.crc32(name.encode()) % (24 * 60)
    this = now.replace(day=1, hour=minute // 60, minute=minute % 60, second=0, microsecond=0)
    return this if this <= now else (this - timedelta(days=2)).replace(day=1)


def until(condition, seconds: float = 600) -> Any:
    """The first true answer of ``condition``; an HTTP error or no answer in time counts as not yet."""
    end = time.monotonic() + seconds
    while True:
        try:
            if answer := condition():
                return answer
        except urllib.error.HTTPError as error:
            if error.code not in {404, 409}:
                raise
        except TimeoutError:
            pass
        assert time.monotonic() < end, "waited too long"
        time.sleep(1)
