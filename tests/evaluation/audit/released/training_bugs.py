"""Bugs of training, each put into the running code by a context manager, for the audits to notice.

A bug patches what every caller sees, as a line of code that is wrong would. Those of ``IN_THE_LOOP`` are gone when
the audit runs, those of ``SHARED_OF_...`` lie in code that the audit runs too.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any
from unittest.mock import patch

import numpy as np

from federated import train
from federated.local_training import rows as training_rows
from federated.local_training import sums
from federated.local_training.clipping import Clip
from federated.participation.records import Records
from federated.rounds import aggregation, direction_canaries, server
from federated.rounds.privatize import Privatizer, RoundNoise
from federated.rounds.rule import RoundRule
from pretrain.randomness import noise
from pretrain.randomness.noise import FIXED_POINT
from pretrain.text.vocabulary import TokenStream

Bug = Callable[[], Any]


@contextmanager
def unnoised_to_the_server() -> Iterator[None]:
    """The server steps on the sum before noise; everything beside it is as it was."""
    true_release, true_step, kept = Privatizer.privatize, server.step, {}

    def release(self: Privatizer, unnoised_sum_P: np.ndarray, *others: Any) -> Any:
        kept["P"] = unnoised_sum_P * (others[-1].clip_norm / FIXED_POINT)
        return true_release(self, unnoised_sum_P, *others)

    def step(state: Any, _released_P: np.ndarray, *others: Any) -> Any:
        return true_step(state, kept["P"], *others)

    with patch.object(Privatizer, "privatize", release), patch.object(train.server, "step", step):
        yield


def changed_noise(change: Callable[[np.ndarray, int], np.ndarray]) -> Bug:
    """Noise that the round loop draws, changed before it is added."""

    @contextmanager
    def bug() -> Iterator[None]:
        true_draw = Privatizer.draw

        def draw(self: Privatizer, state: Any, key: bytes) -> RoundNoise:
            drawn = true_draw(self, state, key)
            return replace(drawn, noise_P=change(drawn.noise_P.copy(), state.round))

        with patch.object(Privatizer, "draw", draw):
            yield

    return bug


def without(places: Callable[[int], np.ndarray | slice]) -> Bug:
    """No noise at some weights."""

    def change(noise_P: np.ndarray, _round: int) -> np.ndarray:
        noise_P[places(len(noise_P))] = 0.0
        return noise_P

    return changed_noise(change)


def without_in_round(number: int) -> Bug:
    """No noise at all in one round."""
    return changed_noise(lambda noise_P, at: noise_P * (at != number))


def weaker(share: float) -> Bug:
    """A share of the noise that was accounted."""
    return changed_noise(lambda noise_P, _: noise_P * share)


def broken_normals(change: Callable[[np.ndarray, int], np.ndarray]) -> Bug:
    """A generator that is wrong wherever it is asked."""

    @contextmanager
    def bug() -> Iterator[None]:
        true_gaussian = noise.gaussian

        def gaussian(key: bytes, stream: str, index: int, size: int) -> np.ndarray:
            return change(true_gaussian(key, stream, index, size), index)

        with patch.object(noise, "gaussian", gaussian):
            yield

    return bug


def two_points(normals: np.ndarray, _index: int) -> np.ndarray:
    """Noise of the right variance that takes two values."""
    return np.where(normals < 0, -1.0, 1.0)


def zeros_at(places: Callable[[int], np.ndarray | slice]) -> Callable[[np.ndarray, int], np.ndarray]:
    """Normals that are 0 at some weights."""

    def change(normals: np.ndarray, _index: int) -> np.ndarray:
        normals = normals.copy()
        normals[places(len(normals))] = 0.0
        return normals

    return change


def looser(factor: float) -> Bug:
    """Clips to a multiple of the norm, on the grid of the norm itself."""

    @contextmanager
    def bug() -> Iterator[None]:
        true_scale = sums.grid_scale

        def scale(norm: float, clip_norm: float, weight: float = 1.0) -> float:
            return true_scale(norm, clip_norm * factor, weight) * factor

        with patch.object(sums, "grid_scale", scale):
            yield

    return bug


def looser_layers(factor: float) -> Bug:
    """Clips to a multiple of the norm, and each layer to a multiple of its share."""

    @contextmanager
    def bug() -> Iterator[None]:
        true_shrink = sums.shrink_layers

        def shrink(updates: Any, clip_norm: float) -> None:
            true_shrink(updates, factor * clip_norm)

        with looser(factor)(), patch.object(sums, "shrink_layers", shrink):
            yield

    return bug


def looser_for_devices(factor: float, every: int = 1) -> Bug:
    """Devices' own updates too long, one in so many; canaries are as they should be."""

    @contextmanager
    def bug() -> Iterator[None]:
        true_weight, numbers = Clip.weight, count()

        def weight(self: Clip, rows: Any) -> float:
            return true_weight(self, rows) * (1.0 if next(numbers) % every else factor)

        with patch.object(Clip, "weight", weight):
            yield

    return bug


@contextmanager
def other_rows() -> Iterator[None]:
    """Trains on the text of other devices than the records name."""
    true_rows = train.round_rows

    def rows(devices: Any, cohort: np.ndarray, *others: Any) -> Any:
        return true_rows(devices, (cohort + 1) % len(devices), *others)

    with patch.object(train, "round_rows", rows):
        yield


@contextmanager
def unrecorded_tenth() -> Iterator[None]:
    """One participation in ten is not written down."""
    true_add = Records.add

    def add(self: Records, number: int, cohort: np.ndarray, *lasted: Any) -> Records:
        kept = np.array([one for one in cohort if (one + number) % 10], dtype=np.int32)
        return true_add(self, number, kept, *lasted)

    with patch.object(Records, "add", add):
        yield


@contextmanager
def counted_four_times() -> Iterator[None]:
    """One device of each round is in the sum four times."""
    true_sum = aggregation.chunked_sum

    def summed(model: Any, ordered: Any, *others: Any, **named: Any) -> Any:
        return true_sum(model, [*ordered[:1] * 4, *ordered[1:]], *others, **named)

    with patch.object(aggregation, "chunked_sum", summed):
        yield


@contextmanager
def denominator_of_arrivals() -> Iterator[None]:
    """The mean is taken over the devices that arrived."""
    true_step, arrived = server.step, {}
    true_sum = train.round_sum

    def summed(trainer: Any, rows: Any, *others: Any) -> Any:
        arrived["devices"] = sum(bool(len(row.targets_RT)) for row in rows)
        return true_sum(trainer, rows, *others)

    def step(state: Any, released_P: np.ndarray, _denominator: float, *others: Any) -> Any:
        return true_step(state, released_P, float(max(1, arrived["devices"])), *others)

    with patch.object(train, "round_sum", summed), patch.object(train.server, "step", step):
        yield


def rows_by(change: Callable[[np.ndarray, int], np.ndarray]) -> Bug:
    """Another choice of devices wherever a round's rows are made."""

    @contextmanager
    def bug() -> Iterator[None]:
        true_rows = training_rows.cohort_rows

        def rows(stream: TokenStream, cohort: np.ndarray, *others: Any) -> Any:
            return true_rows(stream, change(cohort, len(stream)), *others)

        with patch.object(training_rows, "cohort_rows", rows):
            yield

    return bug


@contextmanager
def twice_in_the_sum() -> Iterator[None]:
    """What was added is doubled before the noise is added."""
    true_release = RoundRule.to_release
    with patch.object(RoundRule, "to_release", lambda *arguments: 2 * true_release(*arguments)):
        yield


@contextmanager
def neighbours_text() -> Iterator[None]:
    """A device's text is that of the device after it, whoever asks."""
    true_owner = TokenStream.owner

    def owner(self: TokenStream, number: int) -> np.ndarray:
        return true_owner(self, (number + 1) % len(self))

    with patch.object(TokenStream, "owner", owner):
        yield


def _row(size: int) -> slice:
    width = _width(size)
    return slice(6 * width, 7 * width) if size > 56 else slice(0, 1)


def _ten_rows(size: int) -> slice:
    return slice(6 * _width(size), min(size, 16 * _width(size)))


def _width(size: int) -> int:
    """Of the rows of the first tensor: 8 in the tests' model, 64 in the demo's."""
    return 8 if size < 10_000 else 64


def _every_fiftieth(size: int) -> np.ndarray:
    return np.arange(7, size, 50)


OF_NOISE: dict[str, Bug] = {
    "un-noised sum to the server": unnoised_to_the_server,
    "no noise in one row": without(_row),
    "no noise in ten rows": without(_ten_rows),
    "no noise in 2% of weights": without(_every_fiftieth),
    "two-point noise": changed_noise(lambda noise_P, _: np.where(noise_P < 0, -1.0, 1.0) * noise_P.std()),
    "noise at 0.8": weaker(0.8),
}
OF_RECORDS: dict[str, Bug] = {
    "a tenth unrecorded": unrecorded_tenth,
    "denominator of arrivals": denominator_of_arrivals,
    "twice in the sum": twice_in_the_sum,
}
OF_CLIPPING: dict[str, Bug] = {
    "clips to 1.5 norms": looser(1.5),
    "clips to 10 norms": looser(10.0),
    "never clips": looser(1e6),
}
OF_ROWS: dict[str, Bug] = {"trains on other rows": other_rows}
OF_SUMS: dict[str, Bug] = {
    "devices 1.5 times too long": looser_for_devices(1.5),
    "one device in twenty sends 50 norms": looser_for_devices(50.0, 20),
    "one device four times": counted_four_times,
}
IN_THE_LOOP = OF_NOISE | OF_RECORDS | OF_CLIPPING | OF_ROWS | OF_SUMS
# Drawing the noise again gives the same, so the noise itself must be looked at.
SHARED_OF_NOISE: dict[str, Bug] = {
    "no noise in one row, drawn so": broken_normals(zeros_at(_row)),
    "no noise in ten rows, drawn so": broken_normals(zeros_at(_ten_rows)),
    "no noise in 2% of weights, drawn so": broken_normals(zeros_at(_every_fiftieth)),
    "two-point noise, drawn so": broken_normals(two_points),
    "noise at 0.8, drawn so": weaker(0.8),
}
SHARED_OF_ROWS: dict[str, Bug] = {
    "other rows, made so": rows_by(lambda cohort, devices: (cohort + 1) % devices),
    "another device's text, read so": neighbours_text,
    "one device four times, made so": rows_by(lambda cohort, _: np.concatenate([cohort[:1]] * 3 + [cohort])),
}
# Of all bugs those by which a round has more devices than it should.
MORE_DEVICES = ("one device four times", "one device four times, made so")


@contextmanager
def noise_of_the_round_before() -> Iterator[None]:
    """From its second round on, a run adds the noise of the round before."""
    true_draw, before = Privatizer.draw, {}

    def draw(self: Privatizer, state: Any, key: bytes) -> RoundNoise:
        drawn = true_draw(self, state, key)
        noise_P, before["P"] = before.get("P", drawn.noise_P), drawn.noise_P
        return replace(drawn, noise_P=noise_P)

    with patch.object(Privatizer, "draw", draw):
        yield


@contextmanager
def public_key() -> Iterator[None]:
    """The noise is that of a key that anybody can make."""
    true_draw = Privatizer.draw

    def draw(self: Privatizer, state: Any, _key: bytes) -> RoundNoise:
        return true_draw(self, state, noise.seeded_key(1))

    with patch.object(Privatizer, "draw", draw):
        yield


@contextmanager
def timer_without_effect() -> Iterator[None]:
    """A device may join every round."""
    true_cohorts = RoundRule.cohorts

    def cohorts(self: RoundRule, *arguments: Any) -> Any:
        return replace(true_cohorts(self, *arguments), min_sep=1)

    with patch.object(RoundRule, "cohorts", cohorts):
        yield


@contextmanager
def canaries_left_out() -> Iterator[None]:
    """No canary sends its update."""
    true_join = direction_canaries.join

    def join(*arguments: Any) -> Any:
        return None, true_join(*arguments)[1]

    with patch.object(direction_canaries, "join", join):
        yield


@contextmanager
def canaries_not_added() -> Iterator[None]:
    """The canaries' sum is made and recorded, and not in what gets the noise."""
    true_sum, true_release, planted = train.round_sum, Privatizer.privatize, {}

    def summed(*arguments: Any) -> Any:
        made = true_sum(*arguments)
        planted["P"] = 0 if made.planted_P is None else made.planted_P.numpy()
        return made

    def release(self: Privatizer, unnoised_sum_P: np.ndarray, *others: Any) -> Any:
        return true_release(self, unnoised_sum_P - planted["P"], *others)

    with patch.object(train, "round_sum", summed), patch.object(Privatizer, "privatize", release):
        yield


# Faults that end a run under its watch, with what the message names.
WHILE_IT_RUNS: dict[str, tuple[Bug, str]] = {
    "noise missing": (weaker(0.0), "key"),
    "noise a tenth": (weaker(0.1), "key"),
    "noise reused": (noise_of_the_round_before, "key"),
    "noise of a public key": (public_key, "key"),
    "separation": (timer_without_effect, "limits"),
    "canaries left out": (canaries_left_out, "canaries"),
    "canaries not added": (canaries_not_added, "key"),
}
