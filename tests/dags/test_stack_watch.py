"""Event listener of `make stack`: what it tells about services, and when. It runs in Airflow's environment."""

import io
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.helpers.processes.receivers import receivers

from .conftest import ROOT


class Scene:
    """A clock, services that are wrong, and the messages that the listener sends."""

    def __init__(self, watch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.wrong, self.told, self.well_sent = 0.0, set[str](), list[tuple[str, str]](), True
        monkeypatch.setattr(watch.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(watch.health, "problems", lambda place, secret: dict.fromkeys(self.wrong, "wrong"))
        monkeypatch.setattr(watch, "sent", self.send)
        self.watch = watch.Watch(None, {})

    def send(self, place: object, event: str, names: str) -> bool:
        if self.well_sent:
            self.told.append((event, names))
        return self.well_sent

    def look(self, seconds: float, *wrong: str) -> list[tuple[str, str]]:
        """Messages of the ticks of so many seconds."""
        self.wrong, self.told = set(wrong), []
        for _ in range(int(seconds // 5)):
            self.now += 5
            self.watch.look(self.now % 60 == 0)
        return self.told


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "docker" / "stack"))
    import watch

    yield watch
    for name in ("watch", "health", "places", "services", "setup", "passwords"):
        sys.modules.pop(name, None)


@pytest.fixture
def scene(watch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(watch, monkeypatch)


def test_services_that_end_are_told_at_the_next_tick_together_once_and_when_they_are_well_again(scene: Scene) -> None:
    scene.look(60)
    for _ in range(3):
        scene.watch.ended("scheduler")
    scene.watch.ended("setup")
    scene.watch.ended("postgres")
    assert scene.look(5, "scheduler", "postgres") == [("stopped", "postgres, scheduler")]
    scene.watch.ended("postgres")
    assert scene.look(5, "scheduler", "postgres") == []
    assert scene.look(5, "scheduler") == [("recovered", "postgres")]
    assert scene.look(120, "scheduler") == []
    assert scene.look(5) == [("recovered", "scheduler")]
    assert scene.look(120) == []


def test_services_that_hang_are_told_together_after_half_a_minute(scene: Scene) -> None:
    scene.look(60)
    assert scene.look(85, "mlflow", "redis") == [], "seen after a minute, and a busy machine answers late"
    assert scene.look(10, "mlflow", "redis") == [("stopped", "mlflow, redis")]
    scene.look(85)
    assert scene.look(85, "mlflow") == []
    assert scene.look(60) == []


def test_a_start_is_no_fault_before_its_patience_is_over(scene: Scene) -> None:
    assert scene.look(300, "mlflow") == []
    assert scene.look(60, "mlflow") == [("stopped", "mlflow")]


class Starting:
    """Supervisor's states over a slow start: each row is shown from its second on."""

    def __init__(self, health: ModuleType, monkeypatch: pytest.MonkeyPatch, rows: dict[int, dict[str, tuple]]) -> None:
        self.now, self.rows = 0.0, rows
        monkeypatch.setattr(health.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(health.time, "sleep", self.sleep)
        monkeypatch.setattr(health, "states", lambda place: self.states())
        monkeypatch.setattr(health, "problems", lambda place, secret: self.problems())

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def states(self) -> dict[str, dict[str, object]]:
        seen = self.rows[max(second for second in self.rows if second <= self.now)]
        return {name: dict(zip(("statename", "start", "exitstatus"), row, strict=True)) for name, row in seen.items()}

    def problems(self) -> dict[str, str]:
        return {name: "URLError" for name, each in self.states().items() if each["statename"] != "RUNNING"}


SLOW = {"mlflow": ("RUNNING", 5, 0), "scheduler": ("STARTING", 5, 0), "setup": ("STARTING", 5, 0)}
DONE = SLOW | {"scheduler": ("RUNNING", 5, 0), "setup": ("EXITED", 5, 0)}


def test_a_start_is_waited_for_however_long_it_takes(watch: ModuleType, monkeypatch, capsys) -> None:
    starting = Starting(watch.health, monkeypatch, {0: SLOW, 7200: DONE})
    dead = watch.health.awaited(None, {}, ("mlflow", "scheduler"), lambda: starting.now > 7230)
    lines = capsys.readouterr().out.splitlines()
    assert dead == ""
    assert lines[:2] == ["  mlflow         well after 0 s", "  after 15 s waits for scheduler (URLError)"]
    assert "  scheduler      well after 7200 s" in lines
    assert lines[-1].endswith(" s waits for setup")
    assert len(lines) > 7200 / 16


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("scheduler", ("BACKOFF", 5, 1)),
        ("scheduler", ("STARTING", 9, 0)),
        ("mlflow", ("RUNNING", 9, 0)),
        ("mlflow", ("FATAL", 5, 1)),
        ("setup", ("EXITED", 5, 1)),
    ],
)
def test_a_start_ends_when_a_service_of_it_died(watch: ModuleType, monkeypatch, name: str, row: tuple) -> None:
    starting = Starting(watch.health, monkeypatch, {0: SLOW, 40: SLOW | {name: row}})
    assert watch.health.awaited(None, {}, ("mlflow", "scheduler"), lambda: False) == name
    assert starting.now == 40


def test_what_no_channel_took_is_sent_again(scene: Scene) -> None:
    scene.look(60)
    scene.well_sent = False
    scene.watch.ended("postgres")
    assert scene.look(60, "postgres") == []
    scene.well_sent = True
    assert scene.look(5, "postgres") == [("stopped", "postgres")]


def test_the_heartbeat_comes_once_a_minute_and_only_while_all_are_well(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receivers() as heard:
        monkeypatch.setenv("STACK_HEARTBEAT", f"{heard.web}/here")
        scene.look(180)
        assert [path for _, path in heard.gets] == ["/here"] * 3
        scene.look(180, "triggerer")
        assert len(heard.gets) == 3
        scene.look(60)
        assert len(heard.gets) == 4


def test_supervisor_s_protocol(watch: ModuleType, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two events, as supervisor 4.3.0 writes them, and an end that was expected."""

    def event(name: str, payload: str) -> str:
        return (
            f"ver:3.0 server:supervisor serial:1 pool:watch poolserial:1 eventname:{name} len:{len(payload)}\n{payload}"
        )

    ended = "processname:{} groupname:airflow from_state:RUNNING expected:{} pid:7"
    text = event("PROCESS_STATE_EXITED", ended.format("triggerer", 0)) + event("TICK_5", "when:1")
    text += event("PROCESS_STATE_EXITED", ended.format("redis", 1))
    said = io.StringIO()
    monkeypatch.setattr(watch.sys, "stdin", io.StringIO(text))
    monkeypatch.setattr(watch.sys, "stdout", said)
    watch.listen(None, {})  # until supervisor closes its end
    assert said.getvalue() == "READY\nRESULT 2\nOK" * 3 + "READY\n"
    assert scene.told[0] == ("stopped", "triggerer")
    assert ("stopped", "redis") not in scene.told
