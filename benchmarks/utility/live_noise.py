"""Cost of noise in a live experiment: width of the interval of its relative change, and how often that interval misses.

    .venv/stages/bin/python -m benchmarks.utility.live_noise

Devices are made up: their words, and each one's own rate of picks. Each adds one bounded vector to the cells of its
own arm (``evaluation.noisy.questions``, as for held-out devices), and one release of noise covers both arms, so a
device that contributes nothing moves the sum by one clip norm at most. The release of a launch
(``evaluation.live.noisy``) also counts devices and the days on which they logged.
"""

import argparse
from collections.abc import Iterator

import numpy as np

from evaluation.comparison.intervals import Estimate
from evaluation.config import CONFIDENCE
from evaluation.live.noisy import relative
from evaluation.noisy.estimates import estimate
from evaluation.noisy.questions import CLIP_NORM, TYPED, WORDS, Layout, vectors
from evaluation.noisy.typing_metrics import metrics
from federated.counts.bounded_sum import released_sum
from pretrain.randomness.noise import seeded_key

METRICS = ("prate", "words_modified", "words_per_minute")
LAYOUT = Layout(tuple(metrics(("NWP",))[name].ratio for name in METRICS))
PICKS, MODIFIED, SECONDS_AS_WORDS = 0.12, 0.08, 1.1
_ALIKE = 20.0  # of the Beta distribution of a device's own rates: a rate of 0.12 varies by 0.07 between devices
# Almost none, that of de-DE's evaluation, and what spends a thirteenth of its rho.
MULTIPLIERS = (2.0**-20, 11.0, 40.0)
DEVICES = (10_000, 30_000, 100_000)
# Equal pairs of arms, devices of each arm, and noise that is as large there as 11 is for 4,000.
REPEATS, REPEATED, REPEATED_MULTIPLIERS = 200, 1_000, (2.0**-20, 3.0)


def counted(devices: int, picks: float, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Events of made-up devices over an experiment, ``[D]`` by name."""
    words_D = rng.geometric(1 / 60, devices)
    rates = {"prate": picks, "words_modified": MODIFIED}
    events = {
        name: rng.binomial(words_D, rng.beta(_ALIKE * rate, _ALIKE * (1 - rate), devices))
        for name, rate in rates.items()
    }
    time_D = words_D * rng.gamma(10, SECONDS_AS_WORDS / 10, devices)
    return {WORDS: np.zeros(devices), TYPED: words_D, "typing_time": time_D, **events}


def changes(devices: int, noise_multiplier: float, seed: int) -> dict[str, Estimate | None]:
    """Relative change of each metric between two arms of as many devices, whose devices do not differ."""
    rng, size = np.random.default_rng(seed), len(LAYOUT)
    arms = [counted(devices, PICKS, rng) for _ in range(2)]

    def made() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for number, events in enumerate(arms):
            for cells, values in vectors(LAYOUT, events):
                yield cells + number * size, values

    key = seeded_key(seed)
    released = released_sum(made(), 2 * size, noise_multiplier, key, "live", CLIP_NORM)
    new, old = (LAYOUT.read(half, noise_multiplier * CLIP_NORM) for half in (released[size:], released[:size]))
    return {
        name: relative(*(estimate(ratio, sums, CONFIDENCE) for sums in (new, old)))
        for name, ratio in zip(METRICS, LAYOUT.questions, strict=True)
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    names = " | ".join(METRICS)
    print(f"| devices an arm | noise multiplier | {names} |\n|---|---|{'---|' * len(METRICS)}")
    for devices in DEVICES:
        for noise_multiplier in MULTIPLIERS:
            seen = changes(devices, noise_multiplier, devices)
            wide = (f"{(one.high - one.low) / 2:.2%}" if one else "none" for one in seen.values())
            print(f"| {devices:,} | {noise_multiplier:.2g} | {' | '.join(wide)} |", flush=True)
    for noise_multiplier in REPEATED_MULTIPLIERS:
        runs = [changes(REPEATED, noise_multiplier, seed) for seed in range(REPEATS)]
        for name in METRICS:
            made = [run[name] for run in runs]
            missed = sum(one is not None and not one.low <= 0 <= one.high for one in made)
            better = sum(one is not None and one.low > 0 for one in made)
            absent = sum(one is None for one in made)
            print(
                f"{REPEATED:,} an arm, multiplier {noise_multiplier:.2g}, {name}: of {REPEATS} equal pairs "
                f"{missed} intervals miss 0, {better} above it, {absent} absent",
                flush=True,
            )


if __name__ == "__main__":
    main()
