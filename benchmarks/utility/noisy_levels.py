"""Coverage of the intervals of a noisy evaluation, held against shares of text that nobody clipped.

``python -m benchmarks.utility.noisy_levels`` writes ``benchmarks/results/noisy-levels.md``. The test of coverage
(``tests/evaluation/noisy/test_estimates.py``) takes the clipped vectors for the truth. Here the truth is the people's
own share, each device counting as at most fifty words at its own rates, so that the bias of clipping shows.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from evaluation.noisy.compare import NEW, RECALLS, UNKNOWN, coverage
from evaluation.noisy.estimates import estimate
from evaluation.noisy.questions import FINE, MOST_WORDS, RARE, SOME, WORDS, Layout, Question, difference, vectors

RESULT = Path(__file__).resolve().parents[1] / "results" / "noisy-levels.md"
BASELINES = ("start", "ngram")
LAUNCHES, PEOPLE, CONFIDENCE = 2_000, 40_000, 0.95
LEVELS = tuple(Question(metric) for metric in RECALLS)
GAINS = tuple(Question(difference(metric, other), above=FINE) for other in BASELINES for metric in RECALLS)
NEWS = tuple(Question(f"{metric} of {NEW}", NEW, above=RARE, below=SOME) for metric in RECALLS)
LAYOUT = Layout((*LEVELS, *GAINS, *NEWS, coverage()))


def people(even: bool, recall: float, spread: float, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Contributions of many devices to each sum, in words.

    Args:
      even: every device typed sixty words; otherwise their number is log-normal, as in chat.
      recall: mean share of words that the model predicts first.
      spread: how much alike people's shares are (the sum of a beta distribution's parameters).
    """
    count = np.full(PEOPLE, 60) if even else np.minimum(np.exp(rng.normal(4.6, 1.3, PEOPLE)).astype(int), 400)
    top1 = rng.binomial(count, rng.beta(spread * recall, spread * (1 - recall), PEOPLE))
    top3 = top1 + rng.binomial(count - top1, 0.12)
    unknown = rng.binomial(count, 0.04)
    new = rng.binomial(unknown, 0.5)
    added = {WORDS: count, RECALLS[0]: top1, RECALLS[1]: top3, UNKNOWN: unknown, NEW: new}
    for metric in RECALLS:
        added[f"{metric} of {NEW}"] = rng.binomial(new, 0.15)
        for other in BASELINES:
            added[difference(metric, other)] = rng.binomial(count, 0.045) - rng.binomial(count, 0.02)
    return {name: values.astype(float) for name, values in added.items()}


def coverages(
    added: Mapping[str, np.ndarray], devices: int, multiplier: float, rng: np.random.Generator
) -> list[float]:
    """Share of launches whose interval holds the people's own share, and the share of devices that are clipped.

    Returns:
      The worse level's, the worst and the best gain's, and the share of clipped devices.
    """
    rows = np.stack([values for _, values in vectors(LAYOUT, added)])
    norm = np.linalg.norm(rows, axis=1)
    truth = LAYOUT.read(rows.sum(axis=0), 0.0).value
    rows *= np.minimum(1, LAYOUT.clip_norm / np.maximum(norm, 1e-9))[:, None]
    asked, deviation = (*LEVELS, *GAINS), multiplier * LAYOUT.clip_norm
    held = dict.fromkeys(asked, 0)
    for _ in range(LAUNCHES):
        total = rows[rng.integers(PEOPLE, size=devices)].sum(axis=0)
        sums = LAYOUT.read(total + deviation * rng.normal(size=len(LAYOUT)), deviation)
        for question in asked:
            made = estimate(question, sums, CONFIDENCE)
            held[question] += made is not None and made.low <= truth[question.numerator] / truth[WORDS] <= made.high
    levels, gains = ([held[each] / LAUNCHES for each in group] for group in (LEVELS, GAINS))
    return [min(levels), min(gains), max(gains), float((norm > LAYOUT.clip_norm).mean())]


def main() -> None:
    rng, lines = np.random.default_rng(7), []
    for named, even, recall, spread in (
        ("even, 60 words each", True, 0.20, 30.0),
        ("even, a model that predicts more", True, 0.35, 30.0),
        ("as in chat, 1 to 400 words", False, 0.12, 60.0),
        ("as in chat, people less alike", False, 0.20, 12.0),
    ):
        added = people(even, recall, spread, rng)
        for devices, multiplier in ((400, 1.0), (400, 4.0), (4_000, 1.0)):
            level, least, most, cut = coverages(added, devices, multiplier, rng)
            lines.append(
                f"| {named} | {devices:,} | {multiplier:g} | {cut:.1%} | {level:.1%} | {least:.1%} to {most:.1%} |"
            )
    text = (
        "# Evaluation under a budget: intervals against text that nobody clipped\n\n"
        f"`python -m benchmarks.utility.noisy_levels`: {LAUNCHES:,} made-up launches a row, intervals at "
        f"{CONFIDENCE:.0%}; the truth is the people's own share, a device counting as at most {MOST_WORDS:g} words. "
        "*clipped*: share of devices whose vector is longer than the clip norm. *level*: the worse of top-1 and top-3 "
        "recall. *gain*: over two baselines in both.\n\n"
        "| people | test devices | noise multiplier | clipped | level covered | gain covered |\n"
        "|---|---:|---:|---:|---:|---:|\n"
    )
    RESULT.write_text(text + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    main()
