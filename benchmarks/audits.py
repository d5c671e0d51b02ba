"""What the audits of the noise notice, and how often they alarm where all is right.

    .venv/stages/bin/python -m benchmarks.audits bugs --setting tiny --seeds 20 --kept runs.jsonl
    .venv/stages/bin/python -m benchmarks.audits honest --seeds 200 --kept runs.jsonl
    .venv/stages/bin/python -m benchmarks.audits table --kept runs.jsonl

Each run trains with the project's own round loop, with or without one of the bugs of ``tests/helpers/training_bugs.py``
in it, and is then audited as the audit stage does; held means that a row speaks against the run. One JSON line a run
goes to the file ``--kept``; runs that it holds are not made again, so a command may be cut short (``--seconds``) and
repeated. Settings: ``tiny`` (1,428 weights, 3 rounds, 64 directions), ``blt`` (the same with 6 rounds and a restart),
``demo`` (the demo's model of 388,000 weights, 16 rounds of 200 devices, 500 directions; devices type 20 words).
``honest`` trains every kind of mechanism of the tests in tiny.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from federated.config.training import LocalTrainingConfig, RuntimeConfig, ServerConfig
from federated.noise import seeded_key
from pretrain.config import ModelConfig
from pretrain.model import KeyboardLM, build_model
from pretrain.vocabulary import EOS, TokenStream, join_owners
from tests.helpers.audited_run import audited, failed, model_at_start
from tests.helpers.mechanism_kinds import KINDS, PARSER
from tests.helpers.small_run import Launch, run, stream
from tests.helpers.training_bugs import IN_THE_GENERATOR, IN_THE_LOOP, Bug, without_in_round

DEVICES, WORDS = 44, 4200
SPACED = {"noise_multiplier": 4.0, "clip_norm": 0.2, "rounds": 3, "report_goal": 12, "delta": 1e-5}
SPACED |= {"randomness": "seeded", "min_sep": 2, "max_participations": 2}
MECHANISMS = {
    "tiny": SPACED | {"kind": "tree"},
    "blt": SPACED | {"kind": "blt", "preset": "min-sep-100", "rounds": 6, "min_sep": 3, "restarts": [4]},
    "demo": SPACED
    | {"kind": "tree", "noise_multiplier": 6.0, "clip_norm": 0.3, "rounds": 16, "report_goal": 200}
    | {"min_sep": 4, "max_participations": 4, "delta": 1e-6},
}
HONEST = "none"


def launch_of(setting: str, seed: int) -> Launch:
    """A seeded launch; every seed has devices, cohorts, directions and noise of its own."""
    config = PARSER.validate_python(MECHANISMS[setting])
    if setting != "demo":
        return replace(Launch(mechanism=config, devices=stream(DEVICES, seed)), seed=seed, key=seeded_key(seed))
    return Launch(
        mechanism=config,
        device=LocalTrainingConfig(learning_rate=0.5, batch_sentences=8, sequence_words=20, max_words=200),
        server=ServerConfig(learning_rate=1.0),
        runtime=RuntimeConfig(chunk_devices=16, checkpoint_every_rounds=16, evaluate_every_rounds=16),
        devices=typed(1050, seed),
        seed=seed,
        key=seeded_key(seed),
    )


def typed(devices: int, seed: int) -> TokenStream:
    """Four sentences of five words each, by Zipf's law."""
    rng = np.random.default_rng(seed)
    shares = 1 / np.arange(1, WORDS - 2)
    words = rng.choice(np.arange(3, WORDS), size=(devices, 4, 5), p=shares / shares.sum())
    return join_owners([np.concatenate([np.append(row, EOS) for row in one]) for one in words])


def demo_model() -> KeyboardLM:
    """The demo's size."""
    return build_model(ModelConfig(embedding_dim=64, hidden_dim=256, tied=True), WORDS, seed=2)


def held(launch: Launch, bug: Bug, stays: bool, demo: bool) -> dict[str, object]:
    """Train with a bug and audit; a bug of the generator stays for the audit, which draws noise again."""

    def train(*arguments: object, **named: object) -> object:
        with nullcontext() if stays else bug():
            return run(*arguments, **named)

    size = {"model": demo_model, "count": 500} if demo else {"model": model_at_start, "count": 64}
    with tempfile.TemporaryDirectory() as folder, bug() if stays else nullcontext():
        found = audited(launch, Path(folder), train, **size)
    return {
        "held": not found.passed,
        "rows": sorted(failed(found)),
        "least_noise": max(row.least_noise for row in found.rows if row.least_noise),
        "least_clip": min(row.least_clip for row in found.rows if row.least_clip),
        "least": {row.type: (row.least_noise, row.least_clip) for row in found.rows},
    }


def bugs_of(setting: str) -> dict[str, tuple[Bug, bool]]:
    """All bugs by name, and whether they stay for the audit; without one first."""
    last = MECHANISMS[setting]["rounds"] - 1
    return {
        HONEST: (nullcontext, False),
        "no noise in the last round": (without_in_round(last), False),
        **{name: (bug, False) for name, bug in IN_THE_LOOP.items()},
        **{name: (bug, True) for name, bug in IN_THE_GENERATOR.items()},
    }


def tasks(args: argparse.Namespace) -> Iterator[tuple[tuple[str, str, int], Callable[[], dict[str, object]]]]:
    """What is to be run, by (setting, bug, seed): a seed of everything, then the next."""
    for seed in range(args.seeds):
        if args.what == "bugs":
            for name, (bug, stays) in bugs_of(args.setting).items():
                launch = partial(launch_of, args.setting, seed)
                yield (
                    (args.setting, name, seed),
                    lambda launch=launch, bug=bug, stays=stays: held(launch(), bug, stays, args.setting == "demo"),
                )
        else:
            for kind, block in KINDS.items():
                config = PARSER.validate_python(block | {"noise_multiplier": 4.0})
                launch = replace(Launch(mechanism=config), devices=stream(24, seed), seed=seed, key=seeded_key(seed))
                yield (f"honest: {kind}", HONEST, seed), partial(held, launch, nullcontext, False, False)


def table(kept: dict[tuple[str, str, int], dict]) -> None:
    """Print held of seeds, and the least faults."""
    settings = list(dict.fromkeys(setting for setting, _, _ in kept))
    shown = [setting for setting in settings if not setting.startswith("honest")]
    names = list(dict.fromkeys(bug for setting, bug, _ in kept if setting in shown))
    print("| bug | " + " | ".join(shown) + " | rows |\n|---|" + "---:|" * len(shown) + "---|")
    for name in names:
        cells, rows = [], set()
        for setting in shown:
            runs = [run for key, run in kept.items() if key[:2] == (setting, name)]
            cells.append(f"{sum(run['held'] for run in runs)} of {len(runs)}")
            rows |= {row for run in runs for row in run["rows"]}
        print(f"| {name} | {' | '.join(cells)} | {', '.join(sorted(rows)).replace('_', ' ')} |")
    print("\n| setting | row | would notice noise | clip norm |\n|---|---|---:|---:|")
    for setting in shown:
        runs = [run for key, run in kept.items() if key[:2] == (setting, HONEST)]
        for row in runs[0]["least"] if runs else ():
            least = [[run["least"][row][place] for run in runs] for place in (0, 1)]
            if any(number is not None for numbers in least for number in numbers):
                said = ["" if numbers[0] is None else f"{np.median(numbers):.3f}" for numbers in least]
                print(f"| {setting} | {row.replace('_', ' ')} | {' | '.join(said)} |")
    print("\n| honest launches of | held | of | by |\n|---|---:|---:|---|")
    for setting in settings:
        if setting.startswith("honest"):
            runs = [run for key, run in kept.items() if key[0] == setting]
            rows = sorted({row for run in runs for row in run["rows"]})
            alarms = sum(run["held"] for run in runs)
            print(f"| {setting[8:]} | {alarms} | {len(runs)} | {', '.join(rows).replace('_', ' ')} |")


def main() -> None:
    """Run what is missing, or print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("bugs", "honest", "table"))
    parser.add_argument("--setting", choices=tuple(MECHANISMS), default="tiny")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--kept", type=Path, required=True)
    args = parser.parse_args()
    lines = args.kept.read_text(encoding="utf-8").splitlines() if args.kept.exists() else []
    kept = {tuple(one["key"]): one for one in map(json.loads, lines)}
    if args.what == "table":
        table(kept)
        return
    began = time.monotonic()
    for key, task in tasks(args):
        if key in kept:
            continue
        if time.monotonic() - began > args.seconds:
            print("time is up; run the command again")
            return
        done = {"key": key, **task()}
        with args.kept.open("a", encoding="utf-8") as file:
            file.write(json.dumps(done) + "\n")


if __name__ == "__main__":
    main()
