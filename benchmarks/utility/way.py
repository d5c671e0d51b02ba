"""Gain over the start against way, without noise and past what the step law allows: one run, scored along its path.

OMP_NUM_THREADS=1 python -m benchmarks.utility.way FOLDER [--results FOLDER] [--work FOLDER]

FOLDER and ``--work`` are those of ``benchmarks.utility.crossing``. A killed run goes on from its last checkpoint, with
every score that it had; ``way.md`` and ``way.svg`` are written again after each, so that they show how far the paths
are. Without noise the model after some rounds is that of a run of so many. Nobody is protected: a measurement.
"""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from benchmarks.utility import arms, populations
from benchmarks.utility.cell import Cell
from benchmarks.utility.crossing import judged, taken, tell
from benchmarks.utility.recall import Arm, gain
from federated.config.training import ServerConfig
from federated.planning import law
from federated.planning.gain import NOISY_WAY
from federated.rounds.server import load_weights
from pretrain.files import write_text
from reports.figures.style import COLOURS, svg

_NEXT_TO_NONE = 1e-9
# Rounds after which a path is scored: often where it is steep.
FIRST, EVERY = (8, 16), 32


@dataclass(frozen=True)
class Score:
    """Gain in points of top-1 after some rounds, and its standard error over held-out people."""

    rounds: int
    way: float
    top1: float
    points: float
    error: float


@dataclass(frozen=True)
class Track:
    """A cell whose last model has gone a way; its step per round follows.

    Everybody takes part once in ``rounds / participations`` rounds.
    """

    cell: Cell
    way: float

    @property
    def server(self) -> ServerConfig:
        """The server whose rate goes the way."""
        one = ServerConfig(optimizer=self.cell.optimizer, learning_rate=1.0)
        return one.model_copy(update={"learning_rate": self.way / self.after(self.cell.rounds, one)})

    def after(self, rounds: int, server: ServerConfig) -> float:
        """Way after some rounds."""
        return server.learning_rate * self.cell.clip * float(law.round_weights(rounds, server).sum())

    @property
    def name(self) -> str:
        """Name of its files."""
        return f"{self.cell.name}-way{self.way:.0f}"


_DEMO = Cell("talk", 40_000, "train", noise=False, mechanism="blt", rounds=1_024, participations=16)
_PAPERS = replace(_DEMO, rounds=256, participations=4, hidden=670, words=10_000)
# Both at nearly the longest step of the law.
TRACKS = (Track(_DEMO, 16_000), Track(_PAPERS, 3_900))


def main() -> None:
    """Go on with each path that nobody else is at."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--work", type=Path, default=Path("build/crossing"), help="private; resumes from here")
    chosen = parser.parse_args()
    scores: dict[Track, list[Score]] = {}
    for track in TRACKS:
        with taken(chosen.work, track.cell) as mine:
            people = populations.opened(track.cell, chosen.folder, chosen.work)
            scores[track] = found(track, people, chosen.work)
            if mine:
                go(track, people, chosen.work, chosen.results, scores)


def go(track: Track, people: populations.People, work: Path, results: Path, scores: dict[Track, list[Score]]) -> None:
    """Run a path from where it is to its end, and score it along the way beside the paths before it."""
    block = arms.mechanism_of(track.cell, len(people.train))
    block = block.model_copy(update={"noise_multiplier": _NEXT_TO_NONE})
    twin = people.start.model()
    last = [0]

    def score(rounds: int, weights_P: np.ndarray) -> None:
        if rounds > last[0] and (rounds in FIRST or rounds % EVERY == 0):
            last[0] = rounds
            load_weights(twin, weights_P)
            judged(f"{track.name}-{rounds}", Arm(twin, None), people, work)
            scores[track] = found(track, people, work)
            show(scores, results)
            tell(f"{track.name}: {scores[track][-1]}")

    arms.rounds(track.cell, people, people.start.model(), block, track.server, work / "paths" / track.name, score)


def found(track: Track, people: populations.People, work: Path) -> list[Score]:
    """Scores of a path so far."""
    total, scores = int(people.words_D.sum()), []
    start = judged("start", Arm(people.start.model(), None), people, work)
    for rounds in sorted({*FIRST, *range(EVERY, track.cell.rounds + 1, EVERY)}):
        path = work / "hits" / people.name / f"{track.name}-{rounds}.npz"
        if not path.exists():
            continue
        with np.load(path) as kept:
            top1_D = kept["top1_D"]
        value, error = gain(top1_D, start.top1_D, people.words_D)
        top1 = 100 * float(top1_D.sum()) / total
        scores.append(Score(rounds, track.after(rounds, track.server), top1, 100 * value, 100 * error))
    return scores


def show(scores: dict[Track, list[Score]], results: Path) -> None:
    """Write the table and the figure."""
    lines = ["# Gain against way, without noise", ""]
    lines += [
        "Command: `python -m benchmarks.utility.way FOLDER`. 40,000 people of public talk train, 625 a round, by the "
        "product's loss and without noise; 600 others test. A path is one run, scored along the way, so its points "
        "share people and cohorts; ± is two standard errors over held-out people. With the demo's network and ρ 0.5 "
        "training gained +4.48 at a way of 900 ([crossing](crossing.md)). One draw of cohorts; one population.",
    ]
    scores = {track: path for track, path in scores.items() if path}
    for track, path in scores.items():
        step = track.server.learning_rate * track.cell.clip
        network = f"{track.cell.hidden} hidden units and {track.cell.words:,} words"
        lines += ["", f"## {network}, {step:.2f} a round: {path[-1].rounds:,} of {track.cell.rounds:,} rounds", ""]
        lines += ["| rounds | way | top-1 | over the start |", "|---:|---:|---:|---:|"]
        lines += [
            f"| {each.rounds:,} | {each.way:,.0f} | {each.top1:.2f} | {each.points:+.2f} ± {2 * each.error:.2f} |"
            for each in path
        ]
    write_text(results / "way.md", "\n".join(lines) + "\n")
    write_text(results / "way.svg", picture(scores))


def picture(scores: dict[Track, list[Score]]) -> str:
    """Gain over the start against way, a line for each path."""

    def draw(axes: Axes) -> None:
        for (track, path), colour in zip(scores.items(), COLOURS, strict=False):
            label = f"{track.cell.hidden} hidden units, {track.cell.words:,} words"
            ways, points, bars = zip(*((each.way, each.points, 2 * each.error) for each in path), strict=True)
            axes.errorbar(ways, points, bars, marker="o", color=colour, capsize=2, label=label)
        axes.axvline(NOISY_WAY, linestyle=":", color="grey")
        axes.set_xscale("log")
        axes.set(xlabel="way", ylabel="points of top-1 over the start")
        axes.grid(visible=True)
        axes.legend()

    title = "Gain over the start against way, without noise"
    return svg(title, "Dotted: the longest way that was gone with noise.", draw, height=3.6)


if __name__ == "__main__":
    main()
