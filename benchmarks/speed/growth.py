"""Growth of a round's cost with the cohort, the population and the rounds done, and the waste of scheduling.

    .venv/stages/bin/python -m benchmarks.speed.growth [--rounds 2000]

CPU time of one thread, medians. Growth with the number of workers is ``workers.py``'s.
"""

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.speed.workloads import CASES, CLIP, RATE, clipped_sum, cpu_seconds, lognormal_sizes, text, typed
from federated import mechanisms, train
from federated.config.blt_presets import PRESETS
from federated.config.mechanism import BltMechanism, TreeMechanism
from federated.config.training import LocalTrainingConfig, RuntimeConfig, ServerConfig
from federated.local_training.kernel.fixed_shapes import narrowest, widths
from federated.local_training.kernel.layout import Chunk, Steps
from federated.local_training.rows import cohort_rows
from federated.local_training.sums import most_steps_first
from federated.participation.cohorts import Cohorts
from federated.participation.records import no_records
from federated.rounds import server
from federated.rounds.rule import RoundRule
from pretrain.config import ModelConfig
from pretrain.kernel.threads import one_torch_thread
from pretrain.model.keyboard_lm import build_model
from pretrain.randomness.noise import seeded_key
from pretrain.text.vocabulary import EOS, TokenStream, join_owners

REPORT_GOAL = 6_500
_FIELDS = {"noise_multiplier": 7.0, "clip_norm": CLIP, "min_sep": 100, "max_participations": 20, "delta": 1e-10}

_PRODUCTION = {"theta": PRESETS["min-sep-100"].theta, "omega": PRESETS["min-sep-100"].omega}


def people(devices: int, vocabulary: int) -> TokenStream:
    """Devices of very different sizes, with sentences of 8 words in the mean."""
    rng = np.random.default_rng(0)
    owners = []
    for size in lognormal_sizes(devices):
        words = text(rng, int(size), vocabulary)
        words[words == EOS] = vocabulary - 1
        words[rng.random(len(words)) < 1 / 9] = EOS
        words[-1] = EOS
        owners.append(words)
    return join_owners(owners)


def by_cohort() -> None:
    """Cost of a device in cohorts of different size, measured in turn."""
    print("\ncohort (tiny)   CPU ms a device")
    acts = {}
    for count in (16, 64, 256, 1024):
        case = replace(CASES["tiny"], devices=count)
        model, devices = build_model(case.model, case.vocabulary, 0), typed(case)
        acts[count] = partial(clipped_sum, model, devices, case.training, CLIP, case.chunk)
    spent = [{count: cpu_seconds(act) for count, act in acts.items()} for _ in range(8)]
    for count in acts:
        print(f"{count:>14}{1e3 * statistics.median(turn[count] for turn in spent[1:]) / count:>12.2f}")


def by_population() -> None:
    """Cost of drawing and recording a cohort."""
    print("\npopulation   cohort   planning a round, CPU ms (after 1, 50, 200 rounds)")
    for population, cohort in ((10_000, 650), (100_000, 650), (1_000_000, 650), (1_000_000, REPORT_GOAL)):
        cohorts = Cohorts(population, cohort, 10, 10**6, 1)
        state, records, spent = cohorts.init(), no_records(), []
        for number in range(205):
            began = time.process_time()
            drawn, state = cohorts.draw(state, number)
            records = records.add(number, drawn)
            spent.append(1e3 * (time.process_time() - began))
        told = "".join(f"{statistics.median(spent[first : first + 5]):>8.2f}" for first in (1, 50, 200))
        print(f"{population:>10}{cohort:>9}{told}")


def by_rounds_done(rounds: int) -> None:
    """Cost of early and of late rounds: of the noise alone, and of the whole loop over a small model."""
    quarters = [slice(number * rounds // 4, (number + 1) * rounds // 4) for number in range(4)]
    print(f"\nquarters of {rounds} rounds         CPU ms a round, mean")
    parameters = 50_000
    for config in (
        TreeMechanism(kind="tree", rounds=rounds, report_goal=REPORT_GOAL, randomness="seeded", **_FIELDS),
        BltMechanism(kind="blt", **_PRODUCTION, rounds=rounds, report_goal=REPORT_GOAL, randomness="seeded", **_FIELDS),
    ):
        mechanism, spent = mechanisms.build(config), []
        state = mechanism.init(parameters)
        for number in range(rounds):
            began = time.process_time()
            _, state = mechanism.noise(state, number, seeded_key(1))
            spent.append(1e3 * (time.process_time() - began))
        told = "".join(f"{statistics.mean(spent[quarter]):>8.2f}" for quarter in quarters)
        print(f"{f'{config.kind} noise, {parameters} parameters':<30}{told}")
    spent = loop_milliseconds(rounds)
    told = "".join(f"{statistics.mean(spent[quarter]):>8.2f}" for quarter in quarters)
    print(f"{'whole loop, 16 devices a round':<30}{told}")


def loop_milliseconds(rounds: int) -> list[float]:
    """CPU time of each round of ``fine_tune``, the making of its cohort and its checkpoints included."""
    devices, clock, spent = people(4_000, 500), [0.0], []

    def told(_: dict[str, float]) -> None:
        spent.append(1e3 * (time.process_time() - clock[0]))
        clock[0] = time.process_time()

    local = LocalTrainingConfig(learning_rate=RATE, batch_sentences=8, sequence_words=10, epochs=1, max_words=32)
    config = TreeMechanism(kind="tree", rounds=rounds, report_goal=16, randomness="seeded", **_FIELDS)
    with tempfile.TemporaryDirectory() as folder:
        clock[0] = time.process_time()
        train.fine_tune(
            build_model(ModelConfig(embedding_dim=8, hidden_dim=16, tied=True), 500, 0),
            train.TrainingData(devices, np.zeros(len(devices), dtype=bool), devices.select(np.arange(10))),
            RoundRule(config, 1, seeded_key(1)),
            local,
            ServerConfig(learning_rate=0.1),
            train.Workplace(
                Path(folder) / "rounds",
                RuntimeConfig(chunk_devices=16, checkpoint_every_rounds=20, evaluate_every_rounds=rounds),
                threads=1,
                on_round=told,
            ),
        )
    return spent[1:-1]  # the first makes ready, the last measures the model


def noise_share() -> None:
    """Noise and the server's step against a round of 6,500 paper-size devices."""
    case = replace(CASES["100"], devices=8)
    model, devices = build_model(case.model, case.vocabulary, 0), typed(case)
    act = partial(clipped_sum, model, devices, case.training, CLIP, case.chunk)
    act()
    training = statistics.median(cpu_seconds(act) for _ in range(5)) / case.devices * REPORT_GOAL
    settings = ServerConfig(learning_rate=1.0)
    start = server.init(model, settings)
    print(f"\na round of {REPORT_GOAL} devices of {case.words} words, {len(start.weights_P)} parameters, CPU s")
    print(f"{'local training':<26}{training:>8.1f}")
    for config in (
        TreeMechanism(kind="tree", rounds=2000, report_goal=REPORT_GOAL, randomness="seeded", **_FIELDS),
        BltMechanism(kind="blt", **_PRODUCTION, rounds=2000, report_goal=REPORT_GOAL, randomness="seeded", **_FIELDS),
    ):
        mechanism, spent = mechanisms.build(config), []
        state = mechanism.init(len(start.weights_P))
        for number in range(9):
            began = time.process_time()
            noise_P, state = mechanism.noise(state, number, seeded_key(1))
            server.step(start, noise_P, float(REPORT_GOAL), settings)
            spent.append(time.process_time() - began)
        share = statistics.mean(spent[1:])
        print(f"{f'{config.kind} noise, server step':<26}{share:>8.2f}{share / training:>9.2%} of it")


def slots() -> None:
    """Executed steps over needed ones, devices sorted by their number of steps."""
    local = LocalTrainingConfig(learning_rate=RATE, batch_sentences=8, sequence_words=10, epochs=1, max_words=1600)
    rows = cohort_rows(people(REPORT_GOAL, 2_000), np.arange(REPORT_GOAL), local, 0.0)
    print("\nexecuted over needed    step slots    positions of the recurrent layer   (6500 people, sorted; unsorted)")
    for name, sizes in (("CPU, shapes that shrink", (1, 2, 8, 16)), ("GPU, fixed shapes", (64, 128, 256, 512))):
        for chunk in sizes:
            told = []
            for ordered in (most_steps_first(rows, local), rows):
                executed, needed = np.zeros(2), np.zeros(2)
                for first in range(0, len(ordered), chunk):
                    own = most_steps_first(ordered[first : first + chunk], local)
                    done, real = executed_slots(own, local, chunk, fixed=name.startswith("GPU"))
                    executed, needed = executed + done, needed + real
                told.append(executed / needed)
            (steps, places), (unsorted_steps, unsorted_places) = told
            print(
                f"{name:<24}{chunk:>4} devices{steps:>7.2f}; {unsorted_steps:.2f}{places:>12.2f}; {unsorted_places:.2f}"
            )


def executed_slots(
    own: list, local: LocalTrainingConfig, chunk: int, *, fixed: bool
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Step slots and positions of one chunk: executed, and needed."""
    tokens = [rows.inputs_RT for rows in own]
    words = sum(int(np.count_nonzero(rows.targets_RT)) for rows in own)
    needed = sum(rows.steps(local.batch_sentences, 1) for rows in own)
    if fixed:
        active_K = Steps.lay_out(own, tokens, local, local.sequence_words).active_K.tolist()
        steps = sum(narrowest(active, widths(chunk)) for active in active_K)
        return (steps, steps * local.batch_sentences * local.sequence_words), (needed, words)
    joined, places = Chunk.join(own, tokens, local), 0
    for step in range(own[0].steps(local.batch_sentences, 1)):
        active = [rows for rows in own if rows.steps(local.batch_sentences, 1) > step]
        places += joined.batch([rows.batch(step, local.batch_sentences) for rows in active]).tokens_CN.size
    # Only the devices that still train are executed; the tests of fixed shapes count them.
    return (needed, places), (needed, words)


def main() -> None:
    """Print every table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2000)
    options = parser.parse_args()
    with one_torch_thread():
        by_cohort()
        by_population()
        by_rounds_done(options.rounds)
        noise_share()
        slots()


if __name__ == "__main__":
    main()
