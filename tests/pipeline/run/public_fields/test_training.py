"""Training under neighbouring text with its release held fixed: nothing that leaves tells one world from the other.

The released sums are those of the first world; the noise of the second is what is left of them without its own sums, as
somebody would reckon who knows all devices but one. Whatever then differs between the worlds is told by noise or text.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from evaluation.audit.directions import Directions
from evaluation.audit.noise import NoiseAudit
from evaluation.audit.released.rows import TRAINED, verdicts
from federated.rounds.privatize import PrivacyState, Privatizer, RoundNoise
from federated.train import FineTuneResult
from pipeline.releases import audit_trace
from pipeline.stages.fine_tune import participation
from pretrain.text.vocabulary import EOS, TokenStream, join_owners
from tests.helpers.audits.audited_run import audited
from tests.helpers.launches.small_run import WORDS, Launch, run

LAST = 19
LAUNCH = Launch()


@dataclass
class Release:
    """What a run releases, as it is made or as it was made in the other world, and the noise that this implies."""

    sums: list[np.ndarray] = field(default_factory=list)
    states: list[PrivacyState] = field(default_factory=list)
    noises: list[np.ndarray] = field(default_factory=list)
    replayed: bool = False

    def again(self) -> "Release":
        return Release(self.sums, self.states, replayed=True)

    def privatize(
        self, privatizer: Privatizer, unnoised_sum_P: np.ndarray, below: float, drawn: RoundNoise, state: PrivacyState
    ) -> tuple[np.ndarray, PrivacyState]:
        number = state.round
        if not self.replayed:
            released_P, after = _PRIVATIZE(privatizer, unnoised_sum_P, below, drawn, state)
            self.sums.append(released_P)
            self.states.append(after)
        # The sum without noise, in clip norms: it is int64 in units of the clip norm / 2^44.
        self.noises.append(self.sums[number] / state.clip_norm - unnoised_sum_P.astype(np.float64) * 2.0**-44)
        return self.sums[number], self.states[number]


_PRIVATIZE = Privatizer.privatize


@dataclass(frozen=True)
class World:
    """A run and its audits: what leaves of them, and the figures that do not."""

    leaves: dict[str, object]
    figures: NoiseAudit


def world(devices: TokenStream, release: Release, folder: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    kept: list[FineTuneResult] = []

    def train(launch: Launch, directory: Path, **more: object) -> tuple[np.ndarray, FineTuneResult]:
        final_P, done = run(launch, directory, **more)
        kept.append(done)
        return final_P, done

    def noise_along(rule: object, planted: Directions, rounds: int) -> np.ndarray:
        return np.array([planted.project(noise_P) for noise_P in release.noises])

    with monkeypatch.context() as patch:
        patch.setattr(Privatizer, "privatize", lambda self, *given: release.privatize(self, *given))
        patch.setattr(audit_trace, "noise_along", noise_along)
        found = audited(replace(LAUNCH, devices=devices), folder, train)
    (done,) = kept
    shown = {
        "participation": participation(done.observed).model_dump(),
        "curve": [point.model_dump() for point in done.curve],
        "synthetic": done.synthetic_participations,
        "encoding": done.encoding,
        "rounds": done.rounds,
        "audits": verdicts(found.rows, TRAINED),
        "passed": found.passed,
        "seed_commitment": found.seed_commitment,
    }
    return World(shown, found)


def neighbour(words: np.ndarray) -> TokenStream:
    """The same devices, of which one typed something else."""
    owners = [LAUNCH.devices.owner(number) for number in range(len(LAUNCH.devices))]
    owners[LAST] = words
    return join_owners(owners)


@pytest.mark.slow
def test_nothing_that_leaves_training_tells_neighbours_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = Release()
    true = world(LAUNCH.devices, release, tmp_path / "true", monkeypatch)
    assert true.figures.passed
    others = {
        "nothing": np.empty(0, dtype=np.int64),
        "one word": np.array([*[WORDS - 1] * 5, EOS]),
        "two sentences": np.array([4, 5, EOS, 6, EOS]),
    }
    for name, words in others.items():
        seen = world(neighbour(words), release.again(), tmp_path / name, monkeypatch)
        assert seen.leaves == true.leaves, f"the world in which the last device typed {name} is told from the truth"
        # What stays does tell them apart, so this would notice a figure that is put back.
        mine, theirs = ({row.type: row.least_clip for row in each.figures.rows} for each in (true, seen))
        assert mine["clip_norm"] != theirs["clip_norm"]
