"""The tables of ``benchmarks.privacy.audits``, in Markdown: what is held, the least faults noticed, and false alarms.

.venv/stages/bin/python -m benchmarks.privacy.audits_table runs.jsonl [MORE.jsonl ...]
"""

import argparse
import json
from pathlib import Path

import numpy as np
from scipy import stats

from benchmarks.privacy.audits import HONEST, SETTINGS
from evaluation.config import ALPHA

# A level far from the audit's own, at which a few hundred runs tell more of how likely a p-value is.
LOOSER = 0.05


def table(kept: dict[tuple[str, str, int], dict]) -> None:
    """Print held of seeds, the least faults, and how often honest runs were held."""
    settings = list(dict.fromkeys(setting for setting, _, _ in kept))
    shown = [setting for setting in SETTINGS if setting in settings]
    names = list(dict.fromkeys(bug for setting, bug, _ in kept if setting in shown))
    print("| bug | " + " | ".join(shown) + " | rows that speak against it |\n|---|" + "---:|" * len(shown) + "---|")
    for name in names:
        cells, rows = [], set()
        for setting in shown:
            runs = [run for key, run in kept.items() if key[:2] == (setting, name)]
            cells.append(f"{sum(run['held'] for run in runs)} of {len(runs)}" if runs else "")
            rows |= {row for run in runs for row in run["rows"]}
        print(f"| {name} | {' | '.join(cells)} | {', '.join(sorted(rows)).replace('_', ' ')} |")
    print("\n| setting | row | would notice noise at | updates of clip norms |\n|---|---|---:|---:|")
    for setting in shown:
        runs = [run for key, run in kept.items() if key[:2] == (setting, HONEST)]
        for row in runs[0]["least"] if runs else ():
            least = [[run["least"][row][place] for run in runs] for place in (0, 1)]
            if any(number is not None for numbers in least for number in numbers):
                said = ["" if numbers[0] is None else f"{np.median(numbers):.7g}" for numbers in least]
                print(f"| {setting} | {row.replace('_', ' ')} | {' | '.join(said)} |")
    print(
        f"\n| honest launches | held | of | rate | 95% interval | nominal | by | p below {LOOSER:g} |"
        "\n|---|---:|---:|---:|---|---:|---|---:|"
    )
    for setting in [*shown, *(setting for setting in settings if setting.startswith("honest"))]:
        _honest(setting, [run for key, run in kept.items() if key[:2] == (setting, HONEST)])
    everyone = [run for key, run in kept.items() if key[1] == HONEST and key[0].startswith("honest")]
    _honest("honest: all of these kinds", everyone)


def _honest(setting: str, runs: list[dict]) -> None:
    rows = sorted({row for run in runs for row in run["rows"]})
    alarms, count = sum(run["held"] for run in runs), len(runs)
    if not count:
        return
    low, high = stats.binomtest(alarms, count).proportion_ci()
    # Each row's own chance, before any share of alpha: what a level says of the law of honest runs everywhere.
    p_values = [value for run in runs for value in run["p"].values() if value is not None]
    print(
        f"| {setting.removeprefix('honest: ')} | {alarms} | {count} | {alarms / count:.1%} | {low:.1%} to {high:.1%} | "
        f"{ALPHA:.0%} | {', '.join(rows).replace('_', ' ')} | {np.mean(np.array(p_values) < LOOSER):.1%} |"
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kept", type=Path, nargs="+")
    lines = [line for path in parser.parse_args().kept for line in path.read_text(encoding="utf-8").splitlines()]
    kept = {tuple(one["key"]): one for one in map(json.loads, lines)}
    table(kept)
    seconds = sum(run["seconds"] for run in kept.values())
    print(f"\n{len(kept)} runs, {seconds / 60:.0f} minutes of CPU.")


if __name__ == "__main__":
    main()
