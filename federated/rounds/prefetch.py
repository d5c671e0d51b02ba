"""Rounds made ready ahead of time, by a thread of their own.

Shape legend: P parameters.

Who joins a round, where they begin in their text, and the noise follow from (seed or key, round) and from
what earlier rounds left in timers and noise buffers, never from what training gave. So the next round
can be made ready while this one trains.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from federated.local_training.rows import DeviceRows
from federated.participation.cohorts import ParticipationState
from federated.rounds.privatize import Drawn, PrivacyState


@dataclass(frozen=True)
class Upcoming:
    """What a round needs before it trains. Private.

    Attributes:
      round_number: from 0.
      drawn: its noise.
      cohort: numbers of the devices that are aggregated, ascending.
      timer: the participation state after it.
      rows: of each device of the cohort.
    """

    round_number: int
    drawn: Drawn
    cohort: np.ndarray
    timer: ParticipationState
    rows: list[DeviceRows]


Prepare = Callable[[int, PrivacyState, ParticipationState], Upcoming]


def upcoming(prepare: Prepare, rounds: range, privacy: PrivacyState, timer: ParticipationState) -> Iterator[Upcoming]:
    """Each round in turn; the one after it is being prepared meanwhile.

    What goes wrong in preparing a round is raised when it is that round's turn, after the rounds before it.

    Args:
      prepare: a function of its arguments alone; of ``PrivacyState`` it may use the noise, not the clip norm.
      privacy, timer: after the round before the first.
    """
    if not rounds:
        return
    with ThreadPoolExecutor(1, thread_name_prefix="next-round") as thread:
        coming = thread.submit(prepare, rounds.start, privacy, timer)
        for number in rounds:
            ready = coming.result()
            if number + 1 < rounds.stop:
                after = replace(privacy, round=number + 1, updates=ready.drawn.updates, bits=ready.drawn.bits)
                coming = thread.submit(prepare, number + 1, after, ready.timer)
            yield ready
