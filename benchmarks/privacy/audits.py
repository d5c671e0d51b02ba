"""What the audits of the noise notice, and how often they alarm where all is right.

    .venv/stages/bin/python -m benchmarks.privacy.audits bugs --setting tiny --seeds 20 --kept runs.jsonl
    .venv/stages/bin/python -m benchmarks.privacy.audits honest --seeds 200 --kept runs.jsonl
    .venv/stages/bin/python -m benchmarks.privacy.audits_table runs.jsonl

Each run trains with the project's own round loop, with or without one of the bugs of
``tests/helpers/audits/training_bugs.py`` in it, and is then audited as the audit stage does; held means that a row
speaks against the run. One JSON line a run goes to the file ``--kept``; runs that it holds are not made again, so a
command may be cut short (``--seconds``) and repeated. ``honest`` trains every kind of mechanism of the tests, with
restarts too, in tiny. Settings:

* ``tiny``: 1,302 weights, tree, 3 rounds, 64 directions;
* ``blt``: the same with BLT noise, 6 rounds and a restart;
* ``demo``: the shipped demo's model (388,456 weights), mechanism (banded), 16 rounds of 200 devices, 500 directions;
* ``demo-restart``: the same with the BLT noise of the demo with secure aggregation, and a restart at round 8; for noise
  that is missing after a restart. Made with ``demo``.

A demo is cut short where no audit looks: devices type 20 to 200 words; what they trained in the first round of a seed
stands for their updates in later rounds and in all runs of that seed, canaries and normal numbers are made once a
seed, bugs take the sums that they leave as they are from the seed's first run, and the tests of the noise drawn again
are made once for all bugs that leave it as it is. All else is done for every run anew.
"""

import argparse
import copy
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
import yaml

from evaluation.audit import one_shot
from evaluation.audit.directions import Directions
from federated import train
from federated.config.training import LocalTrainingConfig, RuntimeConfig, ServerConfig
from federated.local_training import rows as training_rows
from federated.local_training import sums
from pretrain.config import ModelConfig
from pretrain.model import KeyboardLM, build_model
from pretrain.randomness import noise
from pretrain.randomness.noise import seeded_key
from pretrain.vocabulary import EOS, TokenStream, join_owners
from tests.helpers.audits import audited_run
from tests.helpers.audits.audited_run import audited, failed, model_at_start
from tests.helpers.audits.mechanism_kinds import BLT, KINDS, PARSER
from tests.helpers.audits.mechanism_kinds import SPACED as SHORT
from tests.helpers.audits.training_bugs import (
    MORE_DEVICES,
    OF_CLIPPING,
    OF_NOISE,
    OF_RECORDS,
    OF_ROWS,
    OF_SUMS,
    SHARED_OF_NOISE,
    SHARED_OF_ROWS,
    Bug,
    without_in_round,
)
from tests.helpers.launches.small_run import Launch, run, stream

LAUNCHES = Path("dags/launches")
DEVICES, WORDS = 44, 4200
SPACED = {"noise_multiplier": 4.0, "clip_norm": 0.2, "rounds": 3, "report_goal": 12, "delta": 1e-5}
SPACED |= {"randomness": "seeded", "min_sep": 2, "max_participations": 2}
SETTINGS = ("tiny", "blt", "demo", "demo-restart")
HONEST, LAST, LAST_DRAWN = "none", "no noise in the last round", "no noise in the last round, drawn so"
# Every mechanism first, then what else may be chosen with them.
_KINDS = KINDS | {
    "tree, restarted": SHORT | {"kind": "tree", "restarts": [3, 7]},
    "blt, restarted": SHORT | BLT | {"restarts": [4]},
}
_FIRST = ("tree", "tree, restarted", "blt", "blt, restarted", "banded", "poisson", "fixed")
HONEST_KINDS = {name: _KINDS[name] for name in dict.fromkeys((*_FIRST, *sorted(_KINDS, key=lambda n: "secagg" in n)))}


def block_of(setting: str) -> dict[str, Any]:
    """The mechanism's block of a setting."""
    if setting == "tiny":
        return SPACED | {"kind": "tree"}
    if setting == "blt":
        return SPACED | BLT | {"rounds": 6, "min_sep": 3, "restarts": [4]}
    name, more = ("demo-en-US", {}) if setting == "demo" else ("demo-en-US-secagg", {"secagg": None, "restarts": [8]})
    return shipped(name)["mechanism"] | more | {"randomness": "seeded"}


def shipped(name: str) -> dict[str, Any]:
    """A launch file."""
    return yaml.safe_load((LAUNCHES / f"{name}.yaml").read_text(encoding="utf-8"))


def launch_of(setting: str, seed: int) -> Launch:
    """A seeded launch; every seed has devices, cohorts, directions and noise of its own."""
    config = PARSER.validate_python(block_of(setting))
    if not setting.startswith("demo"):
        return replace(Launch(mechanism=config, devices=stream(DEVICES, seed)), seed=seed, key=seeded_key(seed))
    raw = shipped("demo-en-US")
    return Launch(
        mechanism=config,
        device=LocalTrainingConfig.model_validate(raw["local_training"]),
        server=ServerConfig.model_validate(raw["server"]),
        runtime=RuntimeConfig(chunk_devices=16, checkpoint_every_rounds=16, evaluate_every_rounds=16),
        devices=typed(1050, seed),
        seed=seed,
        key=seeded_key(seed),
    )


def typed(devices: int, seed: int) -> TokenStream:
    """From 4 to 40 sentences of five words each, by Zipf's law: half of the updates are longer than the clip norm.

    One device in 25 typed nothing, or no round would have fewer arrivals than the report goal.
    """
    rng = np.random.default_rng(seed)
    shares = 1 / np.arange(1, WORDS - 2)
    sentences_D = rng.integers(4, 41, size=devices) * (np.arange(devices) % 25 > 0)
    words = rng.choice(np.arange(3, WORDS), size=(int(sentences_D.sum()), 5), p=shares / shares.sum())
    ended = np.concatenate([words, np.full((len(words), 1), EOS)], axis=1)
    return join_owners([part.reshape(-1) for part in np.split(ended, np.cumsum(sentences_D)[:-1])])


def demo_model() -> KeyboardLM:
    """The demo's size."""
    return build_model(ModelConfig(embedding_dim=64, hidden_dim=256, tied=True), WORDS, seed=2)


@dataclass(frozen=True)
class Planted:
    """A bug, and what its runs may share.

    Attributes:
      stays: in the audit too, as it lies in code that the audit runs.
      sums: what of the sums of another run of the seed are its own: all, all but the text they are said to be of, the
        canaries', none.
    """

    bug: Bug
    stays: bool = False
    sums: Literal["all", "but rows", "canaries", "none"] = "all"

    @property
    def leaves_noise(self) -> bool:
        """Whether drawing the noise again gives what it gives without the bug."""
        return not self.stays or self.sums != "all"


@contextmanager
def shared(memory: dict[Any, Any], planted: Planted) -> Iterator[None]:
    """Runs of one seed that take what ``memory`` holds, and leave there what they made."""
    true_update, true_normals, true_chunk = Directions.update, noise.gaussian, sums.train_chunk
    true_sum, true_look, true_rows = train.round_sum, audited_run.looked_through, training_rows.device_rows

    def remembered(key: tuple[object, ...], make: Callable[[], Any]) -> Any:
        if key not in memory:
            memory[key] = make()
        return memory[key]

    def update(self: Directions, number: int) -> np.ndarray:
        return remembered(("canary", number), lambda: true_update(self, number))

    def normals(key: bytes, stream: str, index: int, size: int) -> np.ndarray:
        return remembered(("noise", stream, index, size), lambda: true_normals(key, stream, index, size)).copy()

    def rows_of(tokens_N: np.ndarray, local: Any, offset: float) -> Any:
        return remembered(("rows", tokens_N.tobytes(), offset), partial(true_rows, tokens_N, local, offset))

    def chunk(start: Any, rows: Any, *others: Any, **named: Any) -> Any:
        memory["chunk"] += 1
        # Its tensors are good until the next chunk is trained.
        make = partial(lambda: copy.deepcopy(true_chunk(start, rows, *others, **named)))
        return remembered(("updates", memory["chunk"], len(rows)), make)

    def round_sum(trainer: Any, rows: Any, clip: Any, rule: Any, encoding: Any, number: int, canaries: Any) -> Any:
        memory["chunk"] = 0
        make = partial(true_sum, trainer, rows, clip, rule, encoding, number)
        if planted.sums == "none":
            return make(canaries)
        if planted.sums == "all":
            return remembered(("sum", number), partial(make, canaries))
        honest = memory["sum", number]
        if planted.sums == "canaries":
            return replace(make(None), planted_P=honest.planted_P)
        digest = int(training_rows.rows_digest(rows)[0])
        return replace(honest, tally=replace(honest.tally, rows=digest))

    def look(*arguments: Any) -> Any:
        make = partial(true_look, *arguments)
        return remembered(("looked", arguments[0].config.kind), make) if planted.leaves_noise else make()

    with (
        patch.object(audited_run, "looked_through", look),
        patch.object(Directions, "update", update),
        patch.object(noise, "gaussian", normals),
        patch.object(training_rows, "device_rows", rows_of),
        patch.object(sums, "train_chunk", chunk),
        patch.object(train, "round_sum", round_sum),
    ):
        yield


def held(launch: Launch, planted: Planted, memory: dict[Any, Any] | None = None) -> dict[str, object]:
    """Train with a bug and audit.

    Args:
      memory: of the seed's other runs; None for a small run.
    """

    def training(*arguments: object, **named: object) -> object:
        with nullcontext() if planted.stays else planted.bug():
            return run(*arguments, **named)

    size = {"model": model_at_start, "count": 64}
    if memory is not None:
        size = {"model": demo_model, "count": shipped("demo-en-US")["audit"]["directions"]}
        if not memory and planted.sums != "all":
            held(launch, Planted(nullcontext), memory)
    sharing = nullcontext() if memory is None else shared(memory, planted)
    began = time.process_time()
    with (
        tempfile.TemporaryDirectory() as folder,
        sharing,
        # The one-shot estimate decides nothing, and is half of a small run's time.
        patch.object(one_shot, "epsilon_between", lambda *_: 0.0),
        planted.bug() if planted.stays else nullcontext(),
    ):
        found = audited(launch, Path(folder), training, **size)
    return {
        "held": not found.passed,
        "rows": sorted(failed(found)),
        "least": {row.type: (row.least_noise, row.least_clip) for row in found.rows},
        "p": {row.type: row.p_value for row in found.rows},
        "seconds": round(time.process_time() - began, 2),
    }


def bugs_of(setting: str) -> dict[str, Planted]:
    """All bugs by name; without one first."""
    silent = without_in_round(block_of(setting)["rounds"] - 1)
    few = {HONEST: Planted(nullcontext), LAST: Planted(silent), LAST_DRAWN: Planted(silent, stays=True)}
    if setting == "demo-restart":
        return few
    named = (
        few
        | {name: Planted(bug) for name, bug in (OF_NOISE | OF_RECORDS).items()}
        | {name: Planted(bug, stays=True) for name, bug in SHARED_OF_NOISE.items()}
        | {name: Planted(bug, sums="canaries") for name, bug in OF_SUMS.items()}
        | {name: Planted(bug, sums="none") for name, bug in OF_CLIPPING.items()}
        | {name: Planted(bug, sums="but rows") for name, bug in OF_ROWS.items()}
        | {name: Planted(bug, stays=True, sums="but rows") for name, bug in SHARED_OF_ROWS.items()}
    )
    return named | {name: replace(named[name], sums="canaries") for name in MORE_DEVICES}


Task = tuple[tuple[str, str, int], Callable[[], dict[str, object]]]


def tasks(setting: str, seeds: int) -> Iterator[Task]:
    """What is to be run, by (setting, bug, seed): a seed of everything, then the next."""
    # Cohorts and canaries of the two demos are the same, so they share what devices add.
    settings = ("demo", "demo-restart") if setting == "demo" else (setting,)
    for seed in range(seeds):
        memory: dict[Any, Any] | None = {} if setting == "demo" else None
        for one in settings:
            launch = launch_of(one, seed)
            for name, planted in bugs_of(one).items():
                yield (one, name, seed), partial(held, launch, planted, memory)


def honest_tasks(seeds: int) -> Iterator[Task]:
    """All kinds of mechanisms, without a bug: a kind after the other."""
    for place, (kind, block) in enumerate(HONEST_KINDS.items()):
        config = PARSER.validate_python(_with_more_noise(block))
        for seed in range(seeds):
            # The same key would be the same chance for all kinds.
            own = 1000 * (place + 1) + seed
            launch = replace(Launch(mechanism=config), devices=stream(24, own), seed=own, key=seeded_key(own))
            yield (f"honest: {kind}", HONEST, seed), partial(held, launch, Planted(nullcontext))


def _with_more_noise(block: dict[str, Any]) -> dict[str, Any]:
    more = block | {"noise_multiplier": 4.0}
    if "adaptive_clipping" in block:
        more["adaptive_clipping"] = block["adaptive_clipping"] | {"bit_noise_std": 4.0}
    return more


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("bugs", "honest"))
    parser.add_argument("--setting", choices=SETTINGS[:3], default="tiny")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--kept", type=Path, required=True)
    args = parser.parse_args()
    lines = args.kept.read_text(encoding="utf-8").splitlines() if args.kept.exists() else []
    kept = {tuple(one["key"]): one for one in map(json.loads, lines)}
    began = time.monotonic()
    for key, task in honest_tasks(args.seeds) if args.what == "honest" else tasks(args.setting, args.seeds):
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
