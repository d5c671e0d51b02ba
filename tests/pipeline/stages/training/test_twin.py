"""A twin has the launch's noise and public text alone; a control finds what was learnt, or says that it did not."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from evaluation.audit import canaries
from evaluation.audit.canaries import CanarySet
from evaluation.audit.memorisation import CanaryRow, Rounds, attacked
from federated import mechanisms
from federated.config.mechanism import IndependentMechanism
from federated.rounds.rule import RoundRule
from federated.rounds.server import flat_weights
from pipeline.launch.config import LaunchConfig
from pipeline.preflight.shortfalls import most_training_devices
from pipeline.run import artifacts
from pipeline.run.stage import stage_key
from pipeline.stages import audit
from pipeline.stages.training import control as controls
from pipeline.stages.training import fine_tune_workers
from pipeline.stages.training.audit_inputs import TwinInputs
from pipeline.stages.training.control import MOST_ROUNDS, control, summed_up
from pipeline.stages.training.fine_tune_inputs import open_inputs
from pipeline.stages.training.twin import CONTROL_ROUNDS, pseudo_people, train_twin
from pretrain.config import ModelConfig
from pretrain.model.keyboard_lm import KeyboardLM, build_model
from pretrain.text.vocabulary import EOS, SPECIALS, TokenStream, Vocabulary, join_owners, join_streams
from tests.helpers.launches.pipeline_launch import launch_config

WORDS = Vocabulary(SPECIALS + tuple(f"w{number}" for number in range(40)))
BOTH = {"populations": ["compliant", "stress"], "examples": [1, 8]}
KEY, OTHER_KEY = bytes(32), bytes([1]) * 32


def text(sentences: int = 60) -> TokenStream:
    rng = np.random.default_rng(0)
    return join_owners([np.append(rng.integers(4, 44, size=6), EOS) for _ in range(sentences)])


def start() -> KeyboardLM:
    """About 1,300 weights."""
    return build_model(ModelConfig(embedding_dim=8, hidden_dim=12, tied=True), len(WORDS), seed=2)


def settings(**changes: dict) -> LaunchConfig:
    mechanism = {"noise_multiplier": 3.0, "clip_norm": 0.3, "rounds": 4, "report_goal": 4, "randomness": "seeded"}
    blocks = {"mechanism": mechanism, "audit": BOTH, "local_training": {"learning_rate": 0.5, "max_words": 40}}
    return launch_config(**{name: blocks.get(name, {}) | changes.get(name, {}) for name in blocks | changes})


def grid(config: LaunchConfig) -> CanarySet:
    return canaries.make(config.audit, WORDS, text(), config.seed)


def trained(folder: Path, key: bytes = KEY, **mechanism: object) -> tuple[np.ndarray, np.ndarray]:
    """Weights of a twin, and the rounds that its canary devices joined."""
    config = settings(mechanism=mechanism)
    rule = RoundRule(config.mechanism, config.seed, key)
    people = pseudo_people(text(), 12, config.seed)
    made = train_twin(start(), people, grid(config), rule, config, folder)
    return flat_weights(made.model), made.done.synthetic_joined_TD


def sentences(stream: TokenStream) -> list[tuple[int, ...]]:
    return [tuple(part) for part in np.split(stream.tokens_N, np.flatnonzero(stream.tokens_N == EOS) + 1)[:-1]]


@pytest.mark.parametrize("count", [5, 200])
def test_people_are_pieces_of_public_text_however_many_are_needed(count: int) -> None:
    people = pseudo_people(text(), count, seed=3)
    assert len(people) == count
    assert set(sentences(people)) <= set(sentences(text()))
    assert np.all(np.diff(people.offsets_D1) > 0)
    with pytest.raises(ValueError, match="no sentence"):
        pseudo_people(join_owners([np.array([5, 6])]), count, seed=3)


def test_a_twin_has_the_launch_s_noise(tmp_path: Path) -> None:
    """One round under two keys: weights differ by the noise alone, sqrt(2) z C / m each."""
    one, other = (
        trained(tmp_path / str(key[0]), key, rounds=1, min_sep=1, max_participations=1)[0] for key in (KEY, OTHER_KEY)
    )
    expected = np.sqrt(2) * 3.0 * 0.3 / 4
    assert np.std(one - other) == pytest.approx(expected, rel=0.08)


def test_a_twin_is_a_function_of_its_key_and_its_canaries_obey_the_timer(tmp_path: Path) -> None:
    weights, joined_TD = trained(tmp_path / "one")
    np.testing.assert_array_equal(weights, trained(tmp_path / "two")[0])
    np.testing.assert_array_equal(weights, trained(tmp_path / "one")[0])  # from its last checkpoint
    stress_D = grid(settings()).stress_D
    assert joined_TD.shape == (4, 4)
    assert not np.any(joined_TD[1:, ~stress_D] & joined_TD[:-1, ~stress_D])  # min_sep is 2


def context(monkeypatch: pytest.MonkeyPatch, folder: Path, config: LaunchConfig) -> SimpleNamespace:
    """A stage with a public half and a key, and without anybody's text."""
    monkeypatch.setattr(artifacts, "model", lambda ctx, stage: start())
    monkeypatch.setattr(artifacts, "mechanism", lambda run: mechanisms.build(config.mechanism))
    monkeypatch.setattr(artifacts, "vocabulary", lambda ctx, stage: WORDS)
    monkeypatch.setattr(artifacts, "public_streams", lambda ctx, words: (text(), text()))
    results = {"ingest_private": {"devices_by_split": {"train": 12}}}
    run = SimpleNamespace(result=results.__getitem__)
    return SimpleNamespace(config=config, run=run, stage="audit", private=folder, noise_key=KEY, attempt=0)


def inputs(config: LaunchConfig) -> TwinInputs:
    return TwinInputs(text(), start(), mechanisms.build(config.mechanism), devices=12)


def test_a_twin_reads_no_private_text_and_has_a_key_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = settings(audit={"in_launch": ["compliant"]})
    ctx, seen = context(monkeypatch, tmp_path, config), []
    monkeypatch.setattr(artifacts, "store", lambda ctx: pytest.fail("private text was read"))
    monkeypatch.setattr(audit, "train_twin", lambda *given: seen.append(given) or train_twin(*given))
    made, block = audit.trained_twin(ctx, inputs(config), grid(config).of(["stress"]))
    (_, people, holds, rule, *_), *_ = seen
    assert set(sentences(people)) <= set(sentences(text()))
    assert rule.key not in {stage_key(config, ctx.run, stage) for stage in ("fine_tune", "audit", "count")}
    assert (rule.config, rule.seed, made.done.rounds) == (config.mechanism, config.seed, 4)
    assert {canary.population for canary in holds.canaries} == {"stress"}
    assert block.pseudo_users == 12
    assert block.weights_sha256 == made.weights_sha256


def test_a_twin_has_as_many_devices_as_a_secret_sample_counts_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launch's devices are told rounded down, here to fewer than were accounted for."""
    sampled = {"kind": "independent", "noise_multiplier": 2.0, "clip_norm": 0.3, "rounds": 2, "report_goal": 4}
    sampled |= {"sampling": "poisson", "population": 15, "delta": 1e-6, "randomness": "seeded"}
    config = settings(audit={"populations": ["compliant"], "in_launch": []})
    config = config.model_copy(update={"mechanism": IndependentMechanism.model_validate(sampled)})
    made, block = audit.trained_twin(context(monkeypatch, tmp_path, config), inputs(config), grid(config))
    assert (block.pseudo_users, made.done.rounds) == (15, 2)


@pytest.mark.parametrize("in_launch", [None, ["compliant"], []])
def test_the_launch_trains_on_the_canaries_it_holds_and_no_others(
    in_launch: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, seen = settings(audit={"in_launch": in_launch}), []
    ctx = context(monkeypatch, tmp_path, config)
    store = SimpleNamespace(encode=lambda words, split, *beside: join_streams([text(8), *beside]))
    monkeypatch.setattr(artifacts, "store", lambda ctx: store)
    monkeypatch.setattr(artifacts, "progress", lambda ctx: None)
    monkeypatch.setattr(fine_tune_workers, "train_rounds", lambda model, data, *rest: seen.append(data))
    opened = open_inputs(ctx)
    fine_tune_workers.train(ctx, opened)
    (data,) = seen
    expected = ["compliant", "stress"] if in_launch is None else in_launch
    assert {canary.population for canary in opened.planted.canaries} == set(expected)
    # Two canaries of each population, each on one device, beside eight people.
    assert (len(data.devices), int(data.synthetic_D.sum())) == (8 + 2 * len(expected), 2 * len(expected))
    assert int(data.stress_D.sum()) == (2 if in_launch is None else 0)
    typed = set(sentences(data.devices))
    for canary in grid(config).canaries:
        assert ((*canary.ids, EOS) in typed) == (canary.population in expected)
    assert most_training_devices(config, 12) == 12 + 10 + 2 * len(expected)


def row(n_e: int, rank: int, *, found: bool) -> CanaryRow:
    return SimpleNamespace(n_e=n_e, rank=rank, found_by_beam=found, found_by_best_first=None)  # type: ignore[return-value]


def test_found_is_what_a_search_completes_and_ranks_among_the_first() -> None:
    rows = [row(8, 1, found=True), row(8, 6, found=True), row(8, 1, found=False), row(1, 9000, found=False)]
    block = summed_up(rows, 16, 4)
    assert [(each.n_e, each.canaries, each.found, each.worst_rank) for each in block.rows] == [
        (1, 1, 0, 9000),
        (8, 3, 1, 6),
    ]
    assert not block.passed
    assert summed_up([rows[0], rows[3]], 16, 4).passed


def test_a_control_that_finds_nothing_gives_up_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = settings()
    monkeypatch.setattr(controls, "train_control", lambda model, *rest: model)
    rounds, said = iter(range(1000)), list[str]()

    def attack(model: KeyboardLM, holds: CanarySet, whose: str) -> list[CanaryRow]:
        said.append(whose)
        assert {canary.n_u for canary in holds.canaries} == {1}
        next(rounds)
        return [row(canary.n_e, 9000, found=False) for canary in holds.canaries]

    block = control(start(), grid(config), config, attack, tmp_path)
    assert (block.passed, block.rounds, next(rounds)) == (False, MOST_ROUNDS, MOST_ROUNDS // CONTROL_ROUNDS)
    assert len(said) == len(set(said)), "each attack has a name of its own in the progress"


@pytest.mark.slow
def test_what_was_learnt_without_noise_is_found(tmp_path: Path) -> None:
    """By the attack itself, which finds none of them before."""
    config = settings(audit={"users": [1, 2]})

    def attack(model: KeyboardLM, holds: CanarySet, whose: str = "") -> list[CanaryRow]:
        nobody = Rounds(np.zeros(len(holds.devices), dtype=int), np.zeros(len(holds.canaries)))
        return attacked(model, holds, config.audit, WORDS, config.seed, nobody, nodes=200)

    planted = grid(config)
    assert not summed_up(attack(start(), planted.on_fewest()), 0, 4).passed
    block = control(start(), planted, config, attack, tmp_path / "control")
    assert block.passed
    assert (block.devices, [each.canaries for each in block.rows]) == (4, [2, 2])
    assert not (tmp_path / "control").exists()
