"""Exact numbers of devices: nobody who has the launch file, its public seed and every public figure finds them.

The attacker computes each public figure again for every number of devices that the stated tens allow. A figure that is
the same for all ten tells nothing; one that the attacker cannot compute, as a secret decides it, fits none.
"""

from dataclasses import asdict

import numpy as np
import pytest
from pydantic import TypeAdapter

from discovery import participation as groups
from discovery.config import TrieConfig
from federated.config.mechanism import MechanismConfig
from federated.participation.availability import Availability
from federated.participation.cohorts import Cohorts
from federated.participation.observation import observe
from federated.participation.records import no_records
from federated.rounds.rule import RoundRule
from pipeline.stages.fine_tune import participation

TENS, SYNTHETIC, SEED = range(910, 920), 67, 11
KEYS = bytes(range(32)), bytes(32)
_ANY = {"clip_norm": 0.3, "rounds": 30, "report_goal": 50, "noise_multiplier": 4.0, "delta": 1e-6}
TREE = _ANY | {"kind": "tree", "min_sep": 10, "max_participations": 3, "randomness": "secure"}
MECHANISMS = {
    "timer and cap": TREE,
    "day and night": TREE | {"availability": {"round_minutes": 30}},
    "by the clock": TREE | {"min_sep": 4, "max_participations": 8, "availability": {"timer_days": 1}},
    "secure sums": TREE | {"secagg": {"bits": 32}},
}
SAMPLED = _ANY | {"kind": "independent", "randomness": "secure", "population": 900, "report_goal": 300}
SAMPLES = {
    kind: SAMPLED | {"sampling": kind, "secagg": {"bits": 32}, "report_goal": goal}
    for kind, goal in (("poisson", 300), ("fixed", 120))
}


def rule_of(mechanism: dict, key: bytes) -> RoundRule:
    return RoundRule(TypeAdapter(MechanismConfig).validate_python(mechanism), SEED, key)


def published(rule: RoundRule, devices: int) -> dict[str, object]:
    """All figures of a run's participation that leave, for a number of devices."""
    synthetic_D = np.arange(devices + SYNTHETIC) >= devices
    cohorts = rule.cohorts(synthetic_D)
    state, records = cohorts.init(), no_records()
    for number in range(rule.config.rounds):
        cohort, state = cohorts.draw(state, number)
        records = records.add(number, cohort, state.lasted)
    shown = participation(observe(records, rule.config.rounds, cohorts, synthetic_D)).model_dump()
    encoding = rule.encoding(1000, devices, SYNTHETIC)
    joined = records.participations(devices + SYNTHETIC)[synthetic_D]
    return shown | {"synthetic_participations": joined.tolist(), "secagg": encoding and asdict(encoding)}


def by_the_seed(mechanism: dict, devices: int) -> dict[str, object]:
    """Devices of each round, computed with the public seed in place of the one that decides."""
    rule = rule_of(mechanism | {"randomness": "seeded"}, KEYS[1])
    return published(rule, devices)


def fitting(stated: dict[str, object], guesses: dict[int, dict[str, object]]) -> list[int]:
    return [devices for devices, guess in guesses.items() if guess == stated]


@pytest.mark.slow
@pytest.mark.parametrize("kind", MECHANISMS)
def test_the_public_seed_and_who_took_part_do_not_give_the_number_of_devices(kind: str) -> None:
    guesses = {devices: by_the_seed(MECHANISMS[kind], devices) for devices in TENS}
    for devices in (910, 914, 919):
        stated = published(rule_of(MECHANISMS[kind], KEYS[0]), devices)
        assert fitting(stated, guesses) == []
        assert stated != published(rule_of(MECHANISMS[kind], KEYS[1]), devices), "another key, others take part"
    # The attack leaves one or two numbers where the seed does decide: a seeded launch protects nobody.
    assert set(fitting(by_the_seed(MECHANISMS[kind], 914), guesses)) in ({914}, {913, 914})


@pytest.mark.slow
@pytest.mark.parametrize("kind", SAMPLES)
def test_a_secret_sample_shows_the_same_of_all_ten_numbers(kind: str) -> None:
    rule = rule_of(SAMPLES[kind], KEYS[0])
    told = [published(rule, devices) | {"synthetic_participations": None} for devices in TENS]
    assert all(each == told[0] for each in told)


@pytest.mark.parametrize("hours", [0.5, 24.0])
def test_devices_that_check_in_are_reckoned_from_whole_tens(hours: float) -> None:
    """Rounding twice, by shares that everybody knows, would leave fewer than ten numbers; often one."""
    day = Availability(round_minutes=60 * hours, seed=3)
    seen = set()
    for devices in TENS:
        synthetic_D = np.arange(devices + SYNTHETIC) >= devices
        cohorts = Cohorts(len(synthetic_D), 50, 1, 9, seed=3, availability=day)
        shown = participation(observe(no_records(), 30, cohorts, synthetic_D))
        seen.add((shown.check_ins, shown.fewest_check_ins))
    assert len(seen) == 1


def test_layers_of_words_are_asked_by_whole_tens() -> None:
    """The sizes of layers follow from public words; each rounded apart, they would meet in fewer than ten numbers."""
    known = frozenset({"see", "you", "soon", "today", "and", "the"})
    config = TrieConfig.model_validate(
        {"kind": "ldp-triehh", "epsilon0": 4.0, "messages_per_device": 2, "layers": 7, "max_prefixes": 20}
        | {"delta": 1e-6, "honest_share": 0.5}
    )
    sizes = {tuple(map(len, groups.assign(devices, config, KEYS[0], known).values())) for devices in TENS}
    assert len(sizes) == 1
    assert sum(sizes.pop()) == 910
