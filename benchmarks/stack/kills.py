"""Kill table of the stack: each service by SIGKILL, who is told after which time, and when all are well without a hand.

    .venv/stages/bin/python -m benchmarks.stack.kills [--only postgres redis ...]

A stack of its own, whose notices go to a mail and a web server of this script and whose heartbeat comes to it. Only the
service's own process is killed, so that what it started is in the way of its successor. ``supervisord`` is killed last:
its receiver misses the heartbeat, and `make stack` takes its services over. Prints Markdown; exit code 1 if a
service did not come back by itself or nobody was told of it.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from tests.helpers.processes.forked import begun
from tests.helpers.processes.proc import naming
from tests.helpers.processes.receivers import Receivers, receivers
from tests.helpers.processes.server import until
from tests.helpers.processes.stack import SERVICES, Stack, stack

HEARTBEAT = "/heartbeat"
# Longest time that a service may take to be back, or people to be told.
PATIENCE_SECONDS = 300


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[*SERVICES, "supervisord"], default=[*SERVICES, "supervisord"])
    asked = parser.parse_args().only
    began = time.monotonic()
    with receivers() as heard, tempfile.TemporaryDirectory() as meeting:
        variables = heard.environment | {"STACK_HEARTBEAT": heard.web + HEARTBEAT}
        with stack(begun(Path(meeting), os.getpid()).tacit, variables=variables) as servers:
            print(
                f"up after {time.monotonic() - began:.0f} s, {resident_mib(servers):.0f} MiB resident, of that shared"
            )
            print(servers.command("status").stdout)
            print("| killed | people told of | by mail, webhook after | all well after | heartbeats missed |")
            print("|---|---|---|---|---|")
            rows = [row(servers, heard, name) for name in asked]
    return 0 if all(rows) else 1


def row(servers: Stack, heard: Receivers, name: str) -> bool:
    """Kill a service and print its row; True if people were told and it came back."""
    until(lambda: well(servers))
    until(lambda: heard.gets, 120)
    number, posts, mails = pid(servers, name), len(heard.posts), len(heard.mail)
    killed = time.monotonic()
    os.kill(number, signal.SIGKILL)
    if name == "supervisord":
        beats = len(heard.gets)
        time.sleep(150)
        missed = len(heard.gets) == beats
        servers.done("up")
        back = time.monotonic() - killed - 150
        print(f"| {name} | the receiver of the heartbeat | its own time | {back:.0f} s after `make stack` | all |")
        return missed
    end = killed + PATIENCE_SECONDS
    while time.monotonic() < end and not (pid(servers, name) not in (0, number) and well(servers)):
        time.sleep(1)
    back = time.monotonic() - killed
    until(lambda: recovered(heard, posts, name) or time.monotonic() > end)
    told = [(at, json.loads(body)) for at, _, body in heard.posts[posts:]]
    stops = [(at - killed, each["services"]) for at, each in told if each["event"] == "stopped"]
    first = next((at for at, names in stops if name in names.split(", ")), None)
    mail = next((at - killed for at, text in heard.mail[mails:] if f"{name}: stopped" in text or name in text), None)
    missed = max(0, round((max([back, *gaps(heard, killed)]) - 60) / 60))
    names = "; ".join(f"{names} ({at:.0f} s)" for at, names in stops)
    when = f"{mail:.0f} s, {first:.0f} s" if mail and first else "nobody"
    print(f"| {name} | {names} | {when} | {back:.0f} s | {missed} |", flush=True)
    return first is not None and mail is not None and back < PATIENCE_SECONDS


def recovered(heard: Receivers, posts: int, name: str) -> bool:
    told = (json.loads(body) for _, _, body in heard.posts[posts:])
    return any(each["event"] == "recovered" and name in each["services"].split(", ") for each in told)


def gaps(heard: Receivers, since: float) -> list[float]:
    """Seconds between heartbeats around a time."""
    times = [at for at, path in heard.gets if path == HEARTBEAT and at > since - 60]
    return [later - earlier for earlier, later in pairwise(times)]


def well(servers: Stack) -> bool:
    return servers.command("status").returncode == 0


def pid(servers: Stack, name: str) -> int:
    if name == "supervisord":
        return int((servers.home / "supervisord.pid").read_text(encoding="utf-8"))
    return servers.pid(name)


def resident_mib(servers: Stack) -> float:
    """Proportional memory of every process of the stack: what several share counts once."""
    total = 0
    for number in naming(str(servers.home)):
        lines = Path(f"/proc/{number}/smaps_rollup").read_text(encoding="utf-8").splitlines()
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


if __name__ == "__main__":
    sys.exit(main())
