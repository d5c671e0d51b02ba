"""Cost of noise in a live experiment: width of the interval of its relative change, and how often that interval misses.

    .venv/stages/bin/python -m benchmarks.utility.live_noise

Devices are made up: their words, and each one's own rate of picks. The release is that of a launch under a budget
(``evaluation.live.noisy``): each device adds one bounded vector to the cells of its own arm, and one release of noise
covers both arms.
"""

import argparse

import numpy as np

from evaluation.comparison.intervals import Estimate
from evaluation.live import noisy
from evaluation.live.devices import DeviceLogs
from federated.counts.bounded_sum import released_sum
from pretrain.randomness.noise import seeded_key

METRICS, FEATURES, DAYS = ("prate", "words_modified", "words_per_minute"), ("NWP",), 14
PICKS, MODIFIED, SECONDS = 0.12, 0.08, 2.2  # of a word
_ALIKE = 20.0  # of the Beta distribution of a device's own rates: a rate of 0.12 varies by 0.07 between devices
# Almost none, that of de-DE's evaluation, and what spends a thirteenth of its rho.
MULTIPLIERS = (2.0**-20, 11.0, 40.0)
DEVICES = (10_000, 30_000, 100_000)
# Equal pairs of arms, devices of each arm, and noise that is as large there as 11 is for 4,000.
REPEATS, REPEATED, REPEATED_MULTIPLIERS = 200, 1_000, (2.0**-20, 3.0)


def logged(devices: int, rng: np.random.Generator) -> DeviceLogs:
    """Logs of two arms of as many made-up devices over an experiment; the arms do not differ."""
    words_D = rng.geometric(1 / 60, 2 * devices)
    picked_D, modified_D = (
        rng.binomial(words_D, rng.beta(_ALIKE * rate, _ALIKE * (1 - rate), 2 * devices)) for rate in (PICKS, MODIFIED)
    )
    none_D = np.zeros(2 * devices)
    counts = {"shown": words_D, "picked": picked_D, "correct": picked_D, "triggered": none_D, "accepted": none_D}
    counts |= {"committed": words_D, "modified": modified_D}
    sums = counts | {"seconds": words_D * rng.gamma(10, SECONDS / 10, 2 * devices)}
    return DeviceLogs(np.arange(2 * devices) < devices, sums, np.ones((2 * devices, DAYS), dtype=bool))


def changes(devices: int, noise_multiplier: float, seed: int) -> dict[str, Estimate | None]:
    """Relative change of each metric between two arms of as many devices, whose devices do not differ."""
    each = noisy.contributions(logged(devices, np.random.default_rng(seed)), FEATURES)
    size, clip_norm = noisy.size(FEATURES, DAYS), noisy.layout(FEATURES).clip_norm
    released_U = released_sum(each, size, noise_multiplier, seeded_key(seed), "live", clip_norm)
    seen = noisy.compare(noisy.read(released_U, FEATURES, DAYS, noise_multiplier), FEATURES, 0.5)
    found = {row.metric: row.relative for row in seen.differences}
    return {name: found.get(name) for name in METRICS}


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
