"""Refusals before the first reservation are those of later stages: what passes here is refused by none of them."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from discovery import participation
from discovery.central import select
from discovery.discover import require_devices
from evaluation.audit.directions import Directions
from evaluation.noisy.questions import MOST_WORDS, deviation_of_words, fewest_devices
from federated.config.mechanism import MOST_COHORT
from federated.counts.bounded_sum import MOST_DEVICES, require_few_enough
from federated.local_training.clipping import MAX_DEVICES, check_report_goal
from federated.rounds.rule import RoundRule
from federated.secagg import votes
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, load_launch
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.preflight import shortfalls
from pipeline.preflight.shortfalls import of_file, too_few, unheard, written_by_devices
from pipeline.stages.discover import discover
from pretrain.model.keyboard_lm import build_model, parameter_count
from pretrain.text.packaged import documents, typed_text
from pretrain.text.tokenise import sentences
from pretrain.text.words import write_words
from tests.helpers.launches.checkout import ROOT
from tests.helpers.launches.pipeline_launch import RAW, after_stand_ins, launch_config, run_all

CENTRAL = {"kind": "central", "noise_multiplier": 1.2, "words_per_device": 8, "delta": 1e-6}
KNOWN = ("the", "of", "and", "what", "were", "there", "could")
DRAWS = 150


def launches() -> Iterator[tuple[LaunchConfig, dict[str, int]]]:
    """Small launch files and how many devices each split really has; most are refused for something."""
    rng = np.random.default_rng(25)
    for _ in range(DRAWS):
        train, test = (int(rng.choice([0, 7, 19, 24, 45, 90, 400])) + int(rng.integers(10)) for _ in range(2))
        if rng.random() < 0.05:
            test = MOST_DEVICES + int(rng.integers(-20, 20))
        changes: dict[str, object] = {
            "discovery": {"layers": int(rng.integers(2, 24))},
            "ab_test": {"buckets": int(rng.integers(2, 60))},
            "audit": {"directions": int(rng.choice([64, 64, 100, 500]))},
            "mechanism": {"report_goal": int(rng.integers(3, 12)), "min_sep": 1, "max_participations": 1},
        }
        if rng.random() < 0.5:
            changes["mechanism"] |= {"secagg": {"bits": 24}}
        if rng.random() < 0.5:
            changes["evaluation"] = {"noise_multiplier": float(rng.choice([1.0, 1.7, 4.0]))}
        yield launch_config(**changes), {"train": train, "test": test, "validation": 30}


def told(splits: dict[str, int]) -> dict[str, int]:
    return {name: count // 10 * 10 for name, count in splits.items()}


def refused_later(config: LaunchConfig, splits: dict[str, int], parameters: int) -> Iterator[str]:
    """What the stages themselves refuse, by the functions that they call, with the counts as they are."""
    train, test, discovery = splits["train"], splits["test"], config.discovery
    with_words = {"discover": lambda: require_devices(discovery, train)}
    if config.mechanism.secagg:
        sizes = participation.group_sizes(train, discovery, KNOWN)
        with_words["discover, securely"] = lambda: votes.require_devices(min(sizes))
    if config.evaluation is not None:
        with_words["ab_test"] = lambda: require_few_enough(test)
    rule = RoundRule(config.mechanism, config.seed)
    with_words["fine_tune"] = lambda: rule.require_sums(train)
    for name, asked in with_words.items():
        try:
            asked()
        except ValueError as error:
            yield f"{name}: {error}"
    if config.evaluation is None and test < config.ab_test.buckets:
        yield "ab_test: fewer devices than buckets"
    if config.trains:
        directions = Directions((parameters // 3, parameters - parameters // 3), config.audit.directions, config.seed)
        coins_N = directions.included_N
        if min(coins_N.sum(), (~coins_N).sum()) < 3 or config.mechanism.rounds < 2:
            yield "audit: too few directions or rounds"


def test_what_passes_before_the_spend_is_refused_by_no_stage_after_it() -> None:
    passed = refused = 0
    for config, splits in launches():
        parameters = 1_100
        lines = [*of_file(config, parameters), *too_few(config, told(splits))]
        later = list(refused_later(config, splits, parameters))
        assert lines or not later, (splits, later)
        passed, refused = passed + (not lines), refused + bool(later)
    assert passed > DRAWS / 20
    assert refused > DRAWS / 20


@pytest.mark.parametrize("path", sorted((ROOT / "dags" / "launches").glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_files_have_no_shortfall_at_their_own_population(path) -> None:
    config = load_launch(path)
    assert of_file(config) == []
    if config.planning is not None:
        assert too_few(config, config.private_text.splits.expected(config.planning.population_estimate)) == []


def test_no_layer_has_fewer_devices_than_the_bound_says() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        discovery = {"layers": int(rng.integers(2, 20)), "max_prefixes": int(rng.integers(1, 200))}
        config, devices = launch_config(discovery=discovery).discovery, int(rng.integers(20, 2000))
        words = ["".join(rng.choice(list("abc"), int(rng.integers(1, 9)))) for _ in range(int(rng.integers(0, 60)))]
        smallest = min(participation.group_sizes(devices, config, words))
        assert 1 <= participation.fewest_in_a_layer(devices, config) <= smallest


def test_too_small_a_population_counts_those_that_train():
    """900 devices are 620 that train: a plan for 900 was feasible, and its launch was not."""
    config = launch_config(private_text={"test_fraction": 0.2})
    assert config.private_text.splits.expected(900) == {"train": 630, "test": 180, "validation": 90}
    many = launch_config(discovery={"layers": 40}, ab_test={"buckets": 30})
    assert too_few(many, {"train": 40, "test": 30}) == []
    lines = too_few(many, {"train": 30, "test": 20})
    assert [line.partition(":")[0] for line in lines] == ["discovery.layers", "ab_test.buckets"]


def test_rounding_hides_nobody_that_a_stage_would_miss() -> None:
    """17 devices, told as 10: a discovery of 15 layers would find them, and one of 19 would not."""
    config = launch_config(discovery={"layers": 15})
    assert too_few(config, {"train": 10, "test": 60})
    require_devices(config.discovery, 17)
    assert too_few(config, {"train": 20, "test": 60}) == []


def test_sums_that_would_overflow_are_refused_for_test_devices_too() -> None:
    config = launch_config(evaluation={"noise_multiplier": 1.0})
    (line,) = too_few(config, {"train": 5_000_000, "test": MOST_DEVICES - 3})
    assert line.startswith(
        "evaluation: 262,140+ devices, but a 64-bit fixed-point sum holds 262,143; lower private_text"
    )
    assert too_few(config, {"train": 5_000_000, "test": MOST_DEVICES - 9}) == []
    policy = RAW["policy"] | {"max_discovery_epsilon0": None, "max_rho": 9.0, "population_max_rho": 9.0}
    central = LaunchConfig.model_validate(RAW | {"discovery": CENTRAL, "policy": policy})
    many = select.weighted_gaussian.MOST_DEVICES
    assert [line.partition(":")[0] for line in too_few(central, {"train": many, "test": 60})] == ["discovery"]


def test_a_device_that_may_keep_few_words_is_counted_as_few() -> None:
    few = launch_config(evaluation={"noise_multiplier": 1.0}, private_text={"max_words_per_device": 5})
    for test, refused in ((200, True), (290, False)):
        assert bool(too_few(few, {"train": 900, "test": test})) is refused
    needed = fewest_devices(1.0, 5)
    assert needed * 5 / MOST_WORDS >= 8 * deviation_of_words(1.0) > (needed - 1) * 5 / MOST_WORDS


def test_no_mechanism_has_a_cohort_that_a_sum_does_not_hold() -> None:
    assert MOST_COHORT == MAX_DEVICES // 2
    check_report_goal(MOST_COHORT)


def test_test_devices_without_a_word_fill_no_bucket() -> None:
    config = launch_config(ab_test={"buckets": 20})
    assert unheard(config, 20) == []
    (line,) = unheard(config, 19)
    assert line.startswith("ab_test.buckets: 20, but fewer test devices have a word")


@pytest.mark.slow
@pytest.mark.parametrize("own", [True, False])
def test_devices_that_wrote_what_pretraining_reads_are_known(own: bool, tmp_path: Path) -> None:
    config = launch_config(private_text={"source": "files", "paths": ["people.parquet"]})
    chat = itertools.islice(documents([typed_text("en-US")]), 60)
    texts = [
        text if own else f"word {number} and so on it goes until the end of the line"
        for number, (_, text) in enumerate(chat)
    ]
    devices = write_words(tmp_path / "words", [sentences(text, "en-US") for text in texts])
    problems = written_by_devices(config, devices)
    assert [("'sample-with-chat' holds text of population 'people'" in line) for line in problems] == [True] * own


def test_the_first_spend_is_refused_for_a_model_too_small_for_its_audits(settings: Settings) -> None:
    config = launch_config(model={"hidden_dim": 6})
    stages = after_stand_ins(("ingest_public", "ingest_private", "plan"), discover)
    with pytest.raises(ValueError, match=r"audit\.directions: 64 in a model of \d+ parameters, and the audits need"):
        run_all(config, settings, stages)
    assert list(PrivacyLedger.of(settings).spends()) == []


@pytest.mark.parametrize("tied", [False, True])
def test_parameters_are_the_model_s(tied: bool) -> None:
    config = launch_config(model={"embedding_dim": 5, "hidden_dim": 7, "tied": tied})
    assert shortfalls.parameters(config, 11) == parameter_count(build_model(config.model, 11, seed=1))


def test_directions_that_no_audit_could_use_are_refused_before_training() -> None:
    sampled = {name: value for name, value in RAW["mechanism"].items() if name not in ("min_sep", "max_participations")}
    sampled |= {"kind": "independent", "sampling": "poisson", "population": 100, "rounds": 2}
    line, _ = of_file(LaunchConfig.model_validate(RAW | {"mechanism": sampled}), 10_000)
    assert line.startswith(
        "audit.directions: about 2 of 64 would have a round, and the audits need 64; raise it to 1,617"
    )
    once = launch_config(mechanism={"rounds": 1, "max_participations": 1})
    assert of_file(once) == ["audit.directions: noise is audited over 2 rounds or more, and there is 1; raise rounds"]
    assert of_file(launch_config(), 2_000) == []
    (line,) = of_file(launch_config(audit={"directions": 500}), 2_000)
    assert line.startswith("audit.directions: 500 in a model of 2,000 parameters, and the audits need 65,537")
    # A vocabulary may turn out smaller than the file's, never larger.
    assert of_file(launch_config(audit={"directions": 500})) != []


def sampled(rate: float, rounds: int, repeats: int) -> LaunchConfig:
    """A launch whose people, and canaries, are drawn by a secret sample."""
    block = {name: value for name, value in RAW["mechanism"].items() if name not in ("min_sep", "max_participations")}
    block |= {"kind": "independent", "sampling": "poisson", "population": 100, "report_goal": int(100 * rate)}
    audit = {"users": [1], "examples": [1], "repeats": repeats, "directions": 100_000}
    return LaunchConfig.model_validate(RAW | {"mechanism": block | {"rounds": rounds}, "audit": audit})


@pytest.mark.parametrize(("rate", "rounds"), [(0.1, 4), (0.05, 20), (0.4, 2)])
def test_a_secret_sample_that_may_leave_out_every_canary_is_refused(rate: float, rounds: int) -> None:
    """The refusal begins where more than one honest launch in a hundred has no canary that trained."""
    missed = (1 - rate) ** rounds
    for repeats in range(1, 40):
        lines = [line for line in of_file(sampled(rate, rounds, repeats), 10**9) if line.startswith("audit.repeats")]
        assert bool(lines) == (missed**repeats > 0.01), repeats
    few = of_file(sampled(rate, rounds, 1), 10**9)[-1]
    needed = int(few.partition("at least ")[2].split()[0])
    assert missed**needed <= 0.01 < missed ** (needed - 1)


def test_canaries_that_would_fill_a_round_are_refused() -> None:
    many = launch_config(audit={"users": [1, 40], "repeats": 1, "examples": [1]}, mechanism={"min_sep": 1})
    assert of_file(many)[-1].startswith("audit: 41 canary devices, of which 12 join one round, fill the 2 places")
    assert of_file(launch_config()) == []
