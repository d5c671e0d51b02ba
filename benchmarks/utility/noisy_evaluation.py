"""How often intervals of an evaluation under a budget cover, and how wide they are.

    .venv/stages/bin/python -m benchmarks.utility.noisy_evaluation [--work FOLDER] [--most SETTINGS]

About ten minutes of CPU; WORK keeps each setting's rows, so that it may be measured in pieces.

2,000 launches each of populations and budgets, on made-up devices of which each has rates of its own. A launch draws
its devices anew from a large population, whose clipped sums are the truth, and the noise with them.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import numpy as np

from evaluation.arms.held_out import Ratio
from evaluation.comparison.verdicts import delta_error
from evaluation.noisy.compare import NEW, UNKNOWN
from evaluation.noisy.estimates import estimate
from evaluation.noisy.questions import (
    CLIP_NORM,
    FINE,
    MOST_WORDS,
    RARE,
    SOME,
    WORDS,
    Layout,
    Question,
    differences,
    vectors,
)

LAUNCHES, PEOPLE, CONFIDENCE = 2000, 200_000, 0.95
SETTINGS = ((130, 1.0), (263, 1.0), (263, 2.0), (263, 4.0), (2_000, 2.0), (20_000, 2.0), (20_000, 8.0))
RECALL, GAIN = "top1_recall", "gain in top1_recall"
SHOWN = (RECALL, GAIN, "new words, top3_recall", "coverage")
_ARMS = ("start", "ngram", "public_mixture", "network", "counts", "champion")


@dataclass(frozen=True)
class Row:
    """One question at one setting.

    Attributes:
      covered: share of the launches that had an interval.
      width: half of an interval, the median.
      plain: the same by the delta method over the same devices, with all their words and without noise.
    """

    question: str
    devices: int
    noise_multiplier: float
    launches: int
    covered: float
    width: float
    plain: float


def asked() -> tuple[Layout, dict[str, Question]]:
    """What a launch with counts and a champion asks."""
    levels = [Question(f"top{k}_recall") for k in (1, 3)]
    paired = [question for arm in _ARMS for question in differences(["top1_recall", "top3_recall"], arm)]
    new = [Question(f"top{k}_recall of {NEW}", NEW, RARE, SOME) for k in (1, 3)]
    coverage = Question(NEW, UNKNOWN, SOME, FINE)
    return Layout((*levels, *paired, *new, coverage)), dict(
        zip(SHOWN, (levels[0], paired[0], new[1], coverage), strict=True)
    )


def people(devices: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """What made-up devices add to each sum: lengths as on the demo's chat, rates of their own, arms that differ."""
    words = np.minimum(np.exp(rng.normal(4.6, 1.3, devices)).astype(int), 400)
    old = rng.binomial(words, rng.beta(6, 54, devices))
    more = rng.binomial(words - old, 0.1)
    unknown = rng.binomial(words - old, rng.beta(2, 18, devices))
    new = rng.binomial(unknown, 0.35)
    added = {WORDS: words, NEW: new, UNKNOWN: unknown}
    gains = {arm: _gained(words, old, rng) for arm in _ARMS}
    added |= {"top1_recall": old + gains["start"], "top3_recall": old + gains["start"] + more}
    for arm, gain in gains.items():
        added |= {question.numerator: gain for question in differences(["top1_recall", "top3_recall"], arm)}
    first = rng.binomial(new, 0.03)
    return added | {f"top1_recall of {NEW}": first, f"top3_recall of {NEW}": first + rng.binomial(new - first, 0.07)}


def _gained(words: np.ndarray, old: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.binomial(words - old, 0.045 * rng.gamma(8, 1 / 8, len(words))) - rng.binomial(old, 0.2)


def measure(devices: int, noise_multiplier: float, launches: int, seed: int) -> Iterator[Row]:
    """Each question that is shown, over so many launches."""
    rng = np.random.default_rng([seed, devices, int(1000 * noise_multiplier)])
    layout, shown = asked()
    added = people(PEOPLE if launches == LAUNCHES else 4 * devices, rng)
    rows_DM = np.stack([values for _, values in vectors(layout, added)])
    rows_DM *= np.minimum(1, CLIP_NORM / np.maximum(np.linalg.norm(rows_DM, axis=1), 1e-9))[:, None]
    truth, deviation = layout.read(rows_DM.sum(axis=0), 0.0).value, noise_multiplier * CLIP_NORM
    covered: dict[str, list[bool]] = {name: [] for name in shown}
    widths: dict[str, list[float]] = {name: [] for name in shown}
    plain: dict[str, list[float]] = {name: [] for name in shown}
    for launch in range(launches):
        drawn = rng.integers(len(rows_DM), size=devices)
        noisy = rows_DM[drawn].sum(axis=0) + deviation * rng.normal(size=len(layout))
        sums = layout.read(noisy, deviation)
        for name, question in shown.items():
            made = estimate(question, sums, CONFIDENCE)
            if made is not None:
                right = truth[question.numerator] / truth[question.denominator]
                covered[name].append(made.low <= right <= made.high)
                widths[name].append((made.high - made.low) / 2)
            if launch < 20:
                below = added[question.denominator][drawn].astype(float)
                ratio: Ratio = (added[question.numerator][drawn].astype(float), below)
                plain[name].append(1.96 * delta_error(ratio, (np.zeros(devices), below)))
    for name, right in covered.items():
        share, width = (float(np.mean(right)), float(np.median(widths[name]))) if right else (np.nan, np.nan)
        yield Row(name, devices, noise_multiplier, len(right), share, width, float(np.median(plain[name])))


def report(rows: list[Row]) -> str:
    """The rows as a document."""
    lines = [
        "# Evaluation under a budget: coverage of its intervals",
        "",
        f"`python -m benchmarks.utility.noisy_evaluation`: {LAUNCHES:,} launches a row, intervals at {CONFIDENCE:.0%}, "
        f"a device counting as at most {MOST_WORDS:g} words. Of {LAUNCHES:,} launches 94.0 to 96.0% are within two "
        "standard deviations of 95%. *plain*: half an interval of the same devices with all their words and without "
        "noise. A question whose denominator is lost in noise has no interval; then fewer launches are counted.",
        "",
        "| question | test devices | noise multiplier | rho | with an interval | covered | half width | plain |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row.question} | {row.devices:,} | {row.noise_multiplier:g} | {1 / (2 * row.noise_multiplier**2):.3g} "
        f"| {row.launches:,} | {100 * row.covered:.1f}% | {100 * row.width:.2f} pp | {100 * row.plain:.2f} pp |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure every setting and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=LAUNCHES, help="of each setting")
    parser.add_argument("--work", type=Path, help="goes on from here; default: all at once")
    parser.add_argument("--most", type=int, default=len(SETTINGS), help="settings of this call")
    chosen = parser.parse_args()
    kept: list[list[Row]] = []
    if chosen.work is not None and (chosen.work / "noisy.json").exists():
        kept = [[Row(**row) for row in rows] for rows in json.loads((chosen.work / "noisy.json").read_text("utf-8"))]
    for setting in SETTINGS[len(kept) :][: chosen.most]:
        kept.append(list(measure(*setting, chosen.launches, seed=1)))
        if chosen.work is not None:
            chosen.work.mkdir(parents=True, exist_ok=True)
            content = json.dumps([[asdict(row) for row in rows] for rows in kept])
            (chosen.work / "noisy.json").write_text(content, encoding="utf-8")
    rows = [row for measured in kept for row in measured]
    if len(kept) < len(SETTINGS):
        sys.stdout.write(report(rows))
        return
    path = Path(__file__).parents[1] / "results" / f"{date.today()}-noisy-evaluation.md"
    path.write_text(report(rows), encoding="utf-8")
    sys.stdout.write(report(rows))


if __name__ == "__main__":
    main()
