"""Supervisor's event listener: tells people about services that ended, hang or recovered, and sends a heartbeat.

Supervisor restarts what ends; a service that hangs is only reported. Recipients are those of the DAGs' notices
(``dags/notify.py``, in a process of its own, as it imports Airflow). STACK_HEARTBEAT is requested once a minute while
every service is well: its receiver raises an alarm when it stays away, as when this machine or supervisor is gone.
"""

import os
import subprocess
import sys
import time

import health
import places
import services
from places import ROOT, Places

# A start takes this long at most; services that hang from the start are reported after it.
PATIENCE_SECONDS = 300
# A busy machine answers late: a service that does not answer is reported after this long.
_HANGS_SECONDS = 30
# Ticks of five seconds between two checks while all is well, and between two heartbeats.
_TICKS = 12


def listen(place: Places, secret: dict[str, str]) -> None:
    """Handle events until supervisor ends, by its protocol on standard input and output."""
    watch, ticks = Watch(place, secret), 0
    while True:
        print("READY", flush=True)
        header = dict(word.split(":") for word in sys.stdin.readline().split())
        if not header:  # supervisor has closed its end
            return
        event = dict(word.split(":") for word in sys.stdin.read(int(header["len"])).split())
        if header["eventname"] == "TICK_5":
            ticks += 1
            watch.look(ticks % _TICKS == 0)
        elif event.get("expected") != "1":
            watch.ended(event["processname"])
        print("RESULT 2\nOK", end="", flush=True)


class Watch:
    """State of the services as people were told it.

    Attributes:
      down: services that were reported as stopped.
      fresh: services that ended since the last tick; what ends together is reported together.
      suspects: services that were not well at the last check, and since when.
      unsent: messages that no channel took yet; a connection may be back with its network.
    """

    def __init__(self, place: Places, secret: dict[str, str]) -> None:
        self.place, self.secret, self.begun = place, secret, time.monotonic()
        self.down, self.fresh, self.suspects, self.started = set[str](), set[str](), dict[str, float](), False
        self.unsent: list[tuple[str, str]] = []

    def ended(self, name: str) -> None:
        if name in services.NAMES and name not in self.down:
            self.fresh.add(name)

    def look(self, minute: bool) -> None:
        """Check the services once a minute, and at every tick while one is not well."""
        if self.fresh:
            self.tell("stopped", self.fresh)
            self.fresh = set()
        if not (minute or self.down or self.suspects or self.unsent):
            return
        wrong = set(health.problems(self.place, self.secret))
        now = time.monotonic()
        self.started = self.started or not wrong or now - self.begun > PATIENCE_SECONDS
        self.suspects = {name: self.suspects.get(name, now) for name in wrong}
        hanging = {name for name, since in self.suspects.items() if now - since > _HANGS_SECONDS}
        if self.started and (more := hanging - self.down):
            self.tell("stopped", more)
        if well := self.down - wrong:
            self.tell("recovered", well)
        self.unsent = [message for message in self.unsent if not sent(self.place, *message)]
        if minute and not wrong and (address := os.environ.get("STACK_HEARTBEAT")):
            problem = health.problem(lambda: health.web(address) and None)
            print(f"heartbeat: {problem or 'sent'}", file=sys.stderr, flush=True)

    def tell(self, event: str, names: set[str]) -> None:
        self.down = self.down | names if event == "stopped" else self.down - names
        listed = ", ".join(sorted(names))
        print(f"{time.strftime('%FT%TZ', time.gmtime())} {event}: {listed}", file=sys.stderr, flush=True)
        if not sent(self.place, event, listed):
            self.unsent.append((event, listed))


def sent(place: Places, event: str, names: str) -> bool:
    """Send a message over every channel; True if all took it, or none is set."""
    variables = places.environment_of(place, "airflow")
    if not (variables.get("TACIT_MAIL_TO") or variables.get("TACIT_WEBHOOK")):
        return True
    command = [sys.executable, str(ROOT / "dags" / "notify.py"), event, names]
    try:
        return not subprocess.run(command, env=variables, stdout=sys.stderr, timeout=120, check=False).returncode
    except subprocess.TimeoutExpired:
        return False
