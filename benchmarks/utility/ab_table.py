"""All arms on real held-out devices: the comparison of a launch in miniature, as tables.

.venv/stages/bin/python -m benchmarks.utility.ab_table FOLDER [--only NAME]

FOLDER holds ``users/*.parquet`` (``client_id, text, locale, ts``) and ``public/*.parquet`` (``text``)
under the names listed in POPULATIONS. Prints Markdown. Minutes for each population on one core.
"""

import argparse
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.utility.ab_arms import Trained, train, words_of
from evaluation.comparison import compare
from evaluation.comparison.compare import Entrants, Rules
from evaluation.comparison.intervals import Estimate
from evaluation.comparison.results import Comparison

POPULATIONS = {
    "fr-FR_88milsms": ("fr-FR", "users/fr-FR_88milsms.parquet", "public/fr-FR_public.parquet", "text messages"),
    "en_blogs": ("en-US", "users/en_blogs.parquet", "public/en-US_blogs_web.parquet", "bloggers"),
    "en-US_chitchat": ("en-US", "users/en-US_chitchat.parquet", "public/en-US_public.parquet", "typed chat"),
}
MOST_DEVICES = 200
PAIRS = (
    ("private", "champion"),
    ("private", "pretrained"),
    ("private", "ngram"),
    ("private_history", "ngram_history"),
    ("upper_bound", "private"),
)
RATES = ("top1_recall", "top3_recall", "prate", "compose_trigger_rate", "words_modified", "keystroke_savings")
SHOWN = (*RATES, "words_per_minute")


def main() -> None:
    """Train, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=sorted(POPULATIONS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name, (locale, users, public, about) in POPULATIONS.items():
        if options.only in (None, name):
            began = time.process_time()
            with tempfile.TemporaryDirectory() as folder:
                trained = train(options.folder / users, options.folder / public, locale, Path(folder))
                middle = time.process_time()
                words = trained.vocabulary
                rules = Rules(("NWP",), locale, name, 1, buckets=20, session_words=4000, compose_rate=0.02)
                entrants = Entrants(trained.arms, PAIRS, words, trained.base_size, len(words))
                few = replace(trained.devices, test=trained.devices.test[:MOST_DEVICES])
                result = compare.run(entrants, few, rules)
            print("\n".join(table(name, about, trained, result)))
            spent = f"{middle - began:.0f} s to train all arms, {time.process_time() - middle:.0f} s to compare them"
            print(f"\nCPU time of one thread: {spent}.\n", flush=True)


def table(name: str, about: str, trained: Trained, result: Comparison) -> Iterable[str]:
    """One population in Markdown."""
    words = words_of(trained.devices.words, trained.devices.test[:MOST_DEVICES])
    yield f"## {name}: {about}\n"
    yield (
        f"{trained.train_devices} training devices, {trained.report_goal} a round; {result.table.devices_at_least}+ "
        f"test devices with {words:,} words, {result.session_words:,} typed again. The private arm's noise: rho "
        f"{trained.rho:.3g}, epsilon {trained.epsilon:.3g} at delta {trained.delta:g} (seeded, for this table only)."
    )
    metrics = [metric for metric in SHOWN if metric not in result.table.undefined]
    yield "\n### Arms, 95% jackknife intervals\n"
    yield "| arm | " + " | ".join(metrics) + " |"
    yield "|---" * (len(metrics) + 1) + "|"
    for arm in trained.arms:
        cells = [_cell(result.table.arm(arm, metric).estimate, metric) for metric in metrics]
        yield f"| {arm} | " + " | ".join(cells) + " |"
    yield "\n### Paired differences\n"
    yield "| candidate - baseline | " + " | ".join(metrics) + " | not inferior (0.5%) |"
    yield "|---" * (len(metrics) + 2) + "|"
    for (new, old), verdict in zip(PAIRS, result.verdicts, strict=True):
        cells = [_cell(result.table.difference(new, old, metric).absolute, metric, "+") for metric in metrics]
        failed = [check.metric for check in verdict.checks if not check.passes] + list(verdict.missing)
        yield (
            f"| {new} - {old} | "
            + " | ".join(cells)
            + f" | {'yes' if verdict.passes else 'no: ' + ', '.join(failed)} |"
        )
    yield "\n### Top-3 recall by slice\n"
    parts = list(dict.fromkeys(row.part for row in result.slices))
    yield "| arm | " + " | ".join(parts) + " |"
    yield "|---" * (len(parts) + 1) + "|"
    recalls = {
        (row.part, row.arm): row.estimate
        for row in result.slices
        if row.metric == "top3_recall" and row.baseline is None
    }
    for arm in trained.arms:
        yield f"| {arm} | " + " | ".join(_cell(recalls[part, arm], "") for part in parts) + " |"
    yield "\n### Frequent words: share of first candidates among the most frequent 10, 100, 1000 words\n"
    yield "| arm | 10 | 100 | 1000 | different first candidates |"
    yield "|---|---|---|---|---|"
    heads = {(row.arm, row.words): row for row in result.head_words}
    yield "| (typed) | " + " | ".join(f"{100 * heads['ngram', head].typed:.1f}" for head in (10, 100, 1000)) + " | |"
    for arm, distinct in result.distinct_first_words.items():
        shares = " | ".join(f"{100 * heads[arm, head].predicted:.1f}" for head in (10, 100, 1000))
        yield f"| {arm} | {shares} | {distinct} |"
    yield "\n### What the numbers lean on\n"
    shaky = [f"{row.candidate} - {row.baseline} {row.metric}" for row in result.signs if not row.stable]
    yield f"- Differences that change sign with the calibration: {', '.join(shaky) or 'none'}."
    apart = [row.metric for row in result.second_opinions if not row.agree]
    yield f"- Standard errors of {' - '.join(PAIRS[0])} that three methods disagree on: {', '.join(apart) or 'none'}."
    settings = "; ".join(
        f"{row.arm} {'never' if row.threshold_nats is None else f'{100 * row.right_share:.0f}% right'}"
        for row in result.compose
    )
    yield f"- Smart Compose on the tuning devices: {settings}."
    yield f"- Without an interval: {', '.join(result.table.undefined) or 'none'}."


def _cell(estimate: Estimate, metric: str, sign: str = "") -> str:
    scale = 1 if metric == "words_per_minute" else 100
    half = scale * (estimate.high - estimate.low) / 2
    return f"{scale * estimate.value:{sign}.2f} ± {half:.2f}"


if __name__ == "__main__":
    main()
