"""How often a comparison of arms is right: size and power of the typing verdict, coverage of its intervals.

    python -m benchmarks.keyboard.non_inferiority [--trials 400]

Devices are drawn anew in each trial and typed words by word; who looks at the strip and picks is the simulator's median
typist. So the truth is known. Half a minute with 100 trials on one core.
"""

import argparse
from collections.abc import Callable, Iterator

import numpy as np

from evaluation.arms.held_out import Ratio
from evaluation.comparison import intervals, verdicts
from evaluation.keyboard import typist

# What the demo's own arms have: words of a device, strip accuracy, and how often two arms differ on a word.
DEVICES, SHORT = 260, 46
HITS, DIFFERENT = 0.23, 0.09
MODIFIED, LEFT, SPEED = 0.19, 0.013, 36.0
LIFTS = (-0.05, -0.03, -0.02, 0.0, 0.02, 0.05)
PAIR = ("new", "old")
BUCKETS = 20

Words = Callable[[np.random.Generator, int], np.ndarray]
POPULATIONS: dict[str, tuple[Words, float]] = {
    "all alike": (lambda rng, devices: np.full(devices, 100), 0.0),
    "lognormal, sigma 1": (lambda rng, devices: np.ceil(rng.lognormal(4, 1, devices)), 0.0),
    "lognormal, sigma 1.5": (lambda rng, devices: np.ceil(rng.lognormal(4, 1.5, devices)), 0.0),
    "one in ten types 20 times as much": (lambda rng, devices: heavy(rng, devices), 0.0),
    "the same, and more predictable": (lambda rng, devices: heavy(rng, devices), 0.3),
}


def heavy(rng: np.random.Generator, devices: int) -> np.ndarray:
    """Words of devices, a tenth of which are heavy users."""
    return np.ceil(rng.lognormal(3.5, 0.5, devices) * np.where(rng.random(devices) < 0.1, 20, 1))


def typed(rng: np.random.Generator, words_D: np.ndarray, lift: float, *, expected: bool) -> dict[str, dict[str, Ratio]]:
    """What simulated typing says of two arms, the new one picked from ``1 + lift`` times as often."""
    devices, words = len(words_D), words_D.astype(int)
    traits = typist.draw(typist.MEDIAN, devices, int(rng.integers(2**31)))
    chance_D = traits.look * traits.pick
    hit_D = rng.beta(20 * HITS, 20 * (1 - HITS), devices)
    both_D = rng.binomial(words, hit_D)
    lost_D = rng.binomial(both_D, DIFFERENT / 2 / HITS)
    won_D = rng.binomial(words - both_D, np.clip((DIFFERENT / 2 / HITS + lift) * hit_D / (1 - hit_D), 0, 1))
    # Hands and eyes are the same under both arms: what both show is picked under both.
    alike_D, only_old_D, only_new_D = (
        chance_D * count if expected else rng.binomial(count, chance_D) for count in (both_D - lost_D, lost_D, won_D)
    )
    modified_D, left_D = rng.binomial(words, MODIFIED), rng.binomial(words, LEFT)
    moved = {
        name: (rng.binomial(count_D, 0.05), rng.binomial(count_D, 0.05))
        for name, count_D in (("words_modified", modified_D), ("errors_left", left_D))
    }
    minutes_D = words / SPEED * rng.lognormal(0, 0.2, devices)
    old = {
        "prate": (alike_D + only_old_D, words),
        "words_modified": (modified_D - moved["words_modified"][0], words),
        "errors_left": (left_D - moved["errors_left"][0], words),
        "words_per_minute": (words, minutes_D),
    }
    new = {
        "prate": (alike_D + only_new_D, words),
        "words_modified": (modified_D - moved["words_modified"][1], words),
        "errors_left": (left_D - moved["errors_left"][1], words),
        "words_per_minute": (words, minutes_D * rng.lognormal(0, 0.01, devices)),
    }
    return {
        arm: {name: (up.astype(float), down.astype(float)) for name, (up, down) in table.items()}
        for arm, table in (("old", old), ("new", new))
    }


def judged(tables: dict[str, dict[str, Ratio]]) -> tuple[verdicts.Verdict, intervals.AbResult]:
    """The verdict of simulated typing on a pair of arms, at a first attempt."""
    result = intervals.compare(tables, "salt", BUCKETS, [PAIR], intervals.confidence_of(1))
    return verdicts.verdict(result, *PAIR, "prate", verdicts.guardrails("start", typed=True)), result


def power(trials: int, words: int, *, expected: bool) -> Iterator[str]:
    """Rows of the table of passes: sessions of so many words a device at most."""
    yield "| true change of PRate | passes | standard error | margin |"
    yield "|---:|---:|---:|---:|"
    for lift in LIFTS:
        rng = np.random.default_rng(1)
        passes, errors, margins = 0, [], []
        for _ in range(trials):
            words_D = np.minimum(np.ceil(rng.lognormal(5.2, 1, DEVICES)), words)
            verdict, result = judged(typed(rng, words_D, lift, expected=expected))
            relative = result.difference(*PAIR, "prate").relative
            passes += verdict.passes
            errors.append(relative.standard_error if relative else np.nan)
            margins.append(verdict.checks[0].margin)
        yield f"| {lift:+.0%} | {passes / trials:.0%} | {np.mean(errors):.2%} | {np.mean(margins):.2%} |"


def without_errors() -> Iterator[str]:
    """Verdicts on a model held against itself, with errors and where the baseline makes none."""
    rng = np.random.default_rng(2)
    tables = typed(rng, np.full(DEVICES, 100), 0.0, expected=False)
    same = dict.fromkeys(PAIR, tables["old"])
    zero = {arm: table | {"errors_left": (np.zeros(DEVICES), np.full(DEVICES, 100.0))} for arm, table in same.items()}
    for name, case in (("a model beside itself", same), ("the same where neither leaves an error", zero)):
        verdict, _ = judged(case)
        yield f"| {name} | {'passes' if verdict.passes and not verdict.missing else 'is held'} |"


def coverage(trials: int, devices: int) -> Iterator[str]:
    """Rows of the table of coverage: how often an interval holds what it is about."""
    yield "| devices | words of a device | one arm | difference | relative difference |"
    yield "|---:|---|---:|---:|---:|"
    for name, (draw, skill) in POPULATIONS.items():
        rng = np.random.default_rng(3)
        words_D = draw(rng, 300_000)
        new, old = recalled(rng, words_D, skill)
        value = new.sum() / words_D.sum(), old.sum() / words_D.sum()
        truth = value[1], value[0] - value[1], value[0] / value[1] - 1
        held = np.zeros(3)
        for _ in range(trials):
            words_D = draw(rng, devices)
            new, old = recalled(rng, words_D, skill)
            tables = {"new": {"top3_recall": (new, words_D)}, "old": {"top3_recall": (old, words_D)}}
            result = intervals.compare(tables, "salt", BUCKETS, [PAIR])
            row = result.difference(*PAIR, "top3_recall")
            estimates = result.arm("old", "top3_recall").estimate, row.absolute, row.relative
            for number, (each, right) in enumerate(zip(estimates, truth, strict=True)):
                held[number] += each is not None and each.low <= right <= each.high
        yield f"| {devices} | {name} | " + " | ".join(f"{share:.3f}" for share in held / trials) + " |"


def recalled(rng: np.random.Generator, words_D: np.ndarray, skill: float) -> tuple[np.ndarray, np.ndarray]:
    """Words that two arms of equal worth have right, by device; ``skill``: how much better heavy users fare."""
    words, devices = words_D.astype(int), len(words_D)
    hit_D = rng.beta(2, 8, devices) * (1 - skill + skill * np.clip(np.log(words_D / 40) / 2, -1, 2))
    old_D = rng.binomial(words, np.clip(hit_D, 0, 1))
    lost_D = rng.binomial(old_D, 0.5 * rng.beta(4, 4, devices))
    won_D = rng.binomial(words - old_D, 0.1 * rng.beta(4, 4, devices))
    return (old_D - lost_D + won_D).astype(float), old_D.astype(float)


def attempts(trials: int, most: int = 10) -> Iterator[str]:
    """Rows of the table of luck: chance that one of so many equal candidates is called better on the same devices."""
    yield "| attempts | one is called better |"
    yield "|---:|---:|"
    lucky = np.zeros(most)
    rng = np.random.default_rng(4)
    for _ in range(trials):
        words_D = np.minimum(np.ceil(rng.lognormal(5.2, 1, DEVICES)), 400)
        for number in range(most):
            if better(typed(rng, words_D, 0.0, expected=True), number + 1):
                lucky[number:] += 1
                break
    for number in (1, 2, 5, 10):
        yield f"| {number} | {lucky[number - 1] / trials:.1%} |"


def better(tables: dict[str, dict[str, Ratio]], attempt: int) -> bool:
    """Whether an attempt is called better than the baseline."""
    result = intervals.compare(tables, "salt", BUCKETS, [PAIR], intervals.confidence_of(attempt))
    return result.difference(*PAIR, "prate").absolute.low > 0


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100)
    trials = parser.parse_args().trials
    print(f"# Verdicts and intervals of the comparison, {trials} trials each\n")
    print(f"Sessions of 12,000 words, picks counted ({DEVICES} devices):\n")
    print("\n".join(power(trials, SHORT, expected=False)))
    print("\nAll of their text, picks by their chance:\n")
    print("\n".join(power(trials, 400, expected=True)))
    print("\n| | |\n|---|---|")
    print("\n".join(without_errors()))
    print("\nIntervals at 95%, share that holds the truth:\n")
    for devices in (25, 250):
        print("\n".join(list(coverage(4 * trials, devices))[0 if devices == 25 else 2 :]))
    print("\nEqual candidates, one after the other on the same held-out devices:\n")
    print("\n".join(attempts(trials)))


if __name__ == "__main__":
    main()
