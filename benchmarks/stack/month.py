"""A month of monthly launches of fifty locales through Airflow's pools, as a queue of discrete events.

    .venv/stages/bin/python -m benchmarks.stack.month [--locales 50] [--cpus 8]

Stages, their order and their pools are those of ``dags/stages.json``; hours are those of a production locale in
docs/scaling.md, each an assumption for an H200, with a round of 5 or 10 s (FP32, logits and noise counted) that the
twin repeats. A launch waits a day for its reviewer. Tasks take a slot of their pool for as long as they run, and the
one that has waited longest comes next, as for equal priorities in Airflow. Nothing here has run on a GPU.
"""

import argparse
import heapq
import json
import statistics
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 256
# Hours of stages without rounds; any other stage takes two minutes.
HOURS = {"ingest_public": 1.0, "pretrain": 0.6, "ingest_private": 1.0, "adapt": 0.05, "discover": 0.1, "count": 0.2}
HOURS |= {"ab_test": 0.5, "audit_releases": 0.2, "report": 0.1}
_REST = 1 / 30
_PUBLIC = ("ingest_public", "pretrain")
REVIEW_HOURS = 24.0
LATE_HOURS = 9.0  # of an attempt, from its begin: dags/stage_task.py


@dataclass(frozen=True)
class Node:
    """One stage: its predecessors, its pool, and its hours in the pool."""

    name: str
    after: tuple[str, ...]
    pool: str
    hours: float


@dataclass(frozen=True)
class Month:
    """Result of a simulation, in hours.

    Attributes:
      done: from each launch's date to its publication.
      waited: longest wait of a task for its slot.
      busy: share of the time until the last publication in which a GPU computes.
      late, late_from_date: notices where lateness counts from the begin of an attempt, and from the launch's date.
    """

    done: tuple[float, ...]
    waited: float
    busy: float
    late: int
    late_from_date: int


def nodes(seconds: float, *, reused: bool) -> list[Node]:
    """Stages of a launch.

    Args:
      seconds: of a round.
      reused: an earlier launch made the public model.
    """
    rounds = ROUNDS * seconds / 3600
    hours = HOURS | {"fine_tune": rounds, "audit": rounds} | (dict.fromkeys(_PUBLIC, 0.01) if reused else {})
    stages = json.loads((ROOT / "dags" / "stages.json").read_text(encoding="utf-8"))
    return [
        Node(
            each["name"],
            tuple(each["after"]),
            "gpu" if each["device"] is True else "cpu",
            hours.get(each["name"], _REST),
        )
        for each in stages
    ]


def simulated(stages: Sequence[Node], slots: Mapping[str, int], begins: Sequence[float]) -> Month:
    """Run one launch at each of the hours ``begins``, on pools of so many slots."""
    by_name = {node.name: node for node in stages}
    open_ = [{node.name: len(node.after) for node in stages} for _ in begins]
    events: list[tuple[float, int, int, str]] = []  # hour, order, launch, stage that ended, or none as it begins
    queues: dict[str, list[tuple[float, int, int, str]]] = {pool: [] for pool in slots}
    free, order = dict(slots), count()
    done, waited, computed, late, late_from_date = [0.0] * len(begins), 0.0, 0.0, 0, 0
    for launch, begin in enumerate(begins):
        heapq.heappush(events, (begin, next(order), launch, ""))
    while events:
        now, _, launch, ended = heapq.heappop(events)
        if ended in by_name:
            free[by_name[ended].pool] += 1
        for node in stages:
            if ended in node.after:
                open_[launch][node.name] -= 1
            if open_[launch][node.name] == 0 and (ended in node.after or (not ended and not node.after)):
                ready = now + (REVIEW_HOURS if node.name == "publish" else 0.0)
                heapq.heappush(queues[node.pool], (ready, next(order), launch, node.name))
                if ready > now:
                    heapq.heappush(events, (ready, next(order), launch, "review"))
        if ended == "publish":
            done[launch] = now - begins[launch]
        for pool, queue in queues.items():
            while queue and free[pool] and queue[0][0] <= now:
                ready, _, whose, name = heapq.heappop(queue)
                free[pool] -= 1
                hours = by_name[name].hours
                waited, computed = max(waited, now - ready), computed + hours * (pool == "gpu")
                late += hours > LATE_HOURS
                late_from_date += now + hours - begins[whose] > LATE_HOURS and name != "publish"
                heapq.heappush(events, (now + hours, next(order), whose, name))
    end = max(begin + hours for begin, hours in zip(begins, done, strict=True))
    return Month(tuple(done), waited, computed / (end * slots["gpu"]), late, late_from_date)


def begins(locales: int, *, spread: bool) -> list[float]:
    """Hours at which launches begin: all at midnight, or over the day, as ``dags/dates.py`` spreads presets."""
    return [zlib.crc32(f"locale-{number}".encode()) % 1440 / 60 if spread else 0.0 for number in range(locales)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--locales", type=int, default=50)
    parser.add_argument("--cpus", type=int, default=8, help="slots of the pool cpu")
    options = parser.parse_args()
    print("| GPUs | round | public models | begin | median, last of all, h | longest wait, h | GPUs busy | late |")
    print("|---|---|---|---|---|---|---|---|")
    for gpus in (2, 8):
        for seconds in (5.0, 10.0):
            for reused, spread in ((False, False), (True, False), (True, True)):
                slots = {"cpu": options.cpus, "gpu": gpus}
                month = simulated(nodes(seconds, reused=reused), slots, begins(options.locales, spread=spread))
                made, at = "reused" if reused else "new", "over a day" if spread else "at once"
                hours = f"{statistics.median(month.done):.0f}, {max(month.done):.0f}"
                late = f"{month.late} ({month.late_from_date} if counted from the date)"
                shown = f"{hours} | {month.waited:.1f} | {month.busy:.0%} | {late}"
                print(f"| {gpus} | {seconds:g} s | {made} | {at} | {shown} |")


if __name__ == "__main__":
    main()
