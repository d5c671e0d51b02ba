"""Scheduled launch files in Airflow's pool of GPUs: which launches wait for others, and from which date it is full.

No GPU was ever measured, so each stage on one counts with the limit of an attempt. A launch takes the slot that is free
first and holds it to its end; Airflow's order of tasks spreads the waits and leaves their sum.
"""

import heapq
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from federated.config.training import STAGE_TIMEOUT_MINUTES
from pipeline.launch.config import LaunchConfig
from pipeline.preflight.schedule import launch_dates
from pipeline.run.stage import Stages, of_launch

_SHOWN, _YEAR = timedelta(days=30), timedelta(days=365)


@dataclass(frozen=True)
class Turn:
    """One launch: its hours in the pool, the days until a slot is free, and until it is through, at most."""

    date: date
    launch: str
    hours: float
    waits_days: float
    takes_days: float


@dataclass(frozen=True)
class Calendar:
    """Turns of the coming month.

    Attributes:
      full: the first launch of the coming year whose date comes while its file's launch before waits or runs.
    """

    slots: int
    turns: tuple[Turn, ...]
    full: Turn | None


def calendar(launches: Mapping[str, LaunchConfig], stages: Stages, pools: Path, today: date) -> Calendar:
    """Queue a year of launches, by name of their file, at the slots of ``pools``.

    Raises:
      ValueError: a file has no schedule.
    """
    asked, hours = list[tuple[date, str]](), dict[str, float]()
    for name, config in launches.items():
        if config.schedule is None:
            raise ValueError(f"schedule: {name} has none; a calendar is of files with one, a plan of one file")
        on_gpu = [stages[each].device and config.runtime.device == "cuda" for each in of_launch(config, stages)]
        hours[name] = sum(on_gpu) * STAGE_TIMEOUT_MINUTES / 60
        asked += [(day, name) for day in launch_dates(config.schedule, today, today + _YEAR)]
    slots = int(json.loads(pools.read_text(encoding="utf-8"))["gpu"]["slots"])
    free, before, turns, full = [0.0] * slots, dict[str, float](), list[Turn](), None
    for day, name in sorted(asked):
        begin = (day - today).days * 24.0
        start = max(begin, heapq.heappop(free) if hours[name] else 0.0)
        through = start + hours[name]
        if hours[name]:
            heapq.heappush(free, through)
        turns.append(Turn(day, name, hours[name], (start - begin) / 24, (through - begin) / 24))
        full = full or (turns[-1] if begin < before.get(name, 0.0) else None)
        before[name] = through
    return Calendar(slots, tuple(turn for turn in turns if turn.date <= today + _SHOWN), full)
