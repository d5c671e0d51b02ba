"""The trade of rho for recall: splits, the scaling rule, recall by hand, and whole rehearsals on made-up people."""

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from pydantic import TypeAdapter

from federated.accounting.guarantees import account
from federated.config.counts import CountsConfig
from federated.config.mechanism import MechanismConfig
from federated.config.planning import PlanningConfig, SmallLaunch, SmallTrade
from federated.config.population import EVERYBODY_TRAINS
from federated.config.training import LocalTrainingConfig, RuntimeConfig, ServerConfig
from federated.planning import search, trade
from federated.planning.rehearsal import Rehearsal, Setting
from federated.planning.search import terms_of
from federated.planning.trade import Arm, TradeSetting, Training, own_rho
from federated.planning.verdict import Verdict
from pretrain.config import ModelConfig, PretrainConfig
from pretrain.model import KeyboardLM, build_model
from pretrain.ngrams.counted import CountedNGram
from pretrain.ngrams.ngram import NGram
from pretrain.train import pretrain
from pretrain.vocabulary import BOS, EOS, SPECIALS, UNK, TokenStream, join_owners
from tests.helpers.launches.small_run import mechanism
from tests.helpers.text.counted_devices import VOCABULARY, moved, typed

# Ways to spend a rho: none costs more, and none of its shape has less noise.

MECHANISM = mechanism(noise_multiplier=7.0, rounds=16, report_goal=100, min_sep=8, clip_norm=0.3, delta=1e-6)
PLANNING = PlanningConfig(population_estimate=1000, max_report_goal=200, round_minutes=10.0, target_rho=0.5)
TERMS = terms_of(MECHANISM, PLANNING, EVERYBODY_TRAINS)


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.05, 0.5, 1.0])
def test_a_block_costs_what_was_asked_and_no_more(rho: float) -> None:
    block = trade.training_at(MECHANISM, TERMS, rho, (16, 100), ("tree",))
    reached = account(block, (1e-6,)).rho
    assert 0.998 * rho < reached <= rho
    assert trade.own_rho(block) == reached
    assert (block.rounds, block.report_goal, block.min_sep) == (16, 100, 9)
    assert (block.clip_norm, block.randomness) == (0.3, "seeded")


def test_no_mechanism_of_the_shape_has_less_noise_at_this_rho() -> None:
    block = trade.training_at(MECHANISM, TERMS, 0.5, (16, 100), ("tree", "banded"))
    limits = (16, 9, 2)
    others = [search.tree(*limits), search.tree_with_restarts(*limits), search.as_launched(search.banded(*limits))]
    # Within the 1% that the planner gives up for memory.
    least = min(strategy.loss for strategy in others) / (100 * math.sqrt(2 * 0.5))
    assert search.noise_to_signal(block) <= 1.011 * least


def test_more_rho_is_less_noise_by_its_root() -> None:
    ratios = [
        search.noise_to_signal(trade.training_at(MECHANISM, TERMS, rho, (16, 100), ("tree",)))
        for rho in (0.1, 0.4, 1.6)
    ]
    assert [first / second for first, second in itertools.pairwise(ratios)] == pytest.approx([2, 2], rel=1e-3)


def test_shapes_are_what_the_population_can_fill() -> None:
    limits = SmallTrade(goals=(1.0, 0.5, 0.25))
    assert list(trade.shapes(MECHANISM, TERMS, limits)) == [(16, 200), (16, 100), (16, 50)]
    few = TERMS.with_planning(population_estimate=100)
    assert list(trade.shapes(MECHANISM, few, limits)) == [(16, 90), (16, 45), (16, 22)]


def test_counts_cost_no_more_than_asked() -> None:
    for rho in (0.03, 0.1, 0.9, 1.0):
        assert 0.998 * rho < trade.counts_at(rho).rho <= rho


def test_pairs_never_exceed_the_whole() -> None:
    pairs = list(trade.pairs((0.1, 0.5, 0.9, 1.0)))
    assert set(pairs) == {(0.1, 0.9), (0.9, 0.1), (0.5, 0.5), (0.1, 0.5), (0.5, 0.1), (0.1, 0.1)}


# As much noise against signal in a rehearsal as in the launch, whatever its size and kind.

USUAL = SmallTrade(most_users=3000, most_rounds=20, most_goal=200)
SHARED = {"clip_norm": 0.3, "delta": 1e-6, "randomness": "secure", "noise_multiplier": 6.0}


def launch(rounds: int, goal: int, min_sep: int, kind: str = "tree", **fields: object) -> MechanismConfig:
    joins = {"min_sep": min_sep, "max_participations": -(-rounds // min_sep)}
    block = {"kind": kind, "rounds": rounds, "report_goal": goal, **SHARED, **fields}
    return TypeAdapter(MechanismConfig).validate_python(block | ({} if kind == "independent" else joins))


LAUNCHES = [
    launch(16, 200, 4),
    launch(16, 200, 4, restarts=(8,)),
    launch(64, 500, 16, restarts=(8, 32)),
    launch(16, 200, 4, "blt", theta=(0.9, 0.4), omega=(0.2, 0.3)),
    launch(2000, 6500, 300, "blt", theta=(0.9, 0.4), omega=(0.2, 0.3)),
    launch(16, 200, 4, "banded", bands=3),
    launch(40, 200, 30, "banded", bands=24),
    launch(16, 200, 1, "independent", sampling="poisson", population=1000),
]
NAMES = [f"{launched.kind}-{launched.rounds}-{launched.report_goal}-{place}" for place, launched in enumerate(LAUNCHES)]


@pytest.mark.slow
@pytest.mark.parametrize("launched", LAUNCHES, ids=NAMES)
@pytest.mark.parametrize("users", [1, 7, 100, 900, 3000])
def test_the_ratio_is_the_launch_s_own(launched: MechanismConfig, users: int) -> None:
    played = trade.scaled(launched, users, USUAL)
    assert search.noise_to_signal(played) == pytest.approx(search.noise_to_signal(launched), rel=1e-9)
    # What the ratio is made of, by hand for the one-coordinate noise of a round's mean.
    assert played.noise_multiplier > 0
    assert played.rounds == min(launched.rounds, 20)
    assert played.report_goal <= min(launched.report_goal, 200)
    assert played.report_goal * played.min_sep <= users
    assert TypeAdapter(MechanismConfig).validate_python(played.model_dump()) == played


def test_a_population_that_can_be_played_is_not_scaled() -> None:
    launched = launch(16, 200, 4)
    played = trade.scaled(launched, 938, USUAL)
    assert played == launched.model_copy(update={"randomness": "seeded"})
    assert trade.notes(launched, 938, 938, USUAL) == ()
    assert "extrapolates" in trade.notes(launched, 500, 938, USUAL)[0]
    assert "extrapolates" in trade.notes(launch(100, 200, 4), 938, 938, USUAL)[0]


def test_scaling_by_hand() -> None:
    # Half the devices in a round of the same tree: half the noise multiplier.
    assert trade.scaled(launch(16, 200, 4), 400, USUAL).report_goal == 100
    assert trade.scaled(launch(16, 200, 4), 400, USUAL).noise_multiplier == pytest.approx(3.0)
    # A sum over a tenth of the devices, a tenth of the noise.
    assert trade.scaled_counts(1.3, 300, 3000) == pytest.approx(0.13)
    assert trade.scaled_counts(1.3, 3000, 3000) == 1.3


def test_bits_of_adaptive_clipping_keep_their_share_of_the_noise() -> None:
    adaptive = {"target_quantile": 0.5, "learning_rate": 0.2, "bit_noise_std": 10.0}
    played = trade.scaled(launch(16, 200, 4, restarts=(8,), adaptive_clipping=adaptive), 400, USUAL)
    assert played.adaptive_clipping.bit_noise_std == pytest.approx(5.0)
    assert trade.scaled(launch(32, 200, 4, restarts=(8,), adaptive_clipping=adaptive), 400, USUAL).restarts == (8,)


def test_nobody_plays_nothing() -> None:
    with pytest.raises(ValueError, match="users: 0"):
        trade.scaled(launch(16, 200, 4), 0, USUAL)


# Recall by person.

SIZE = len(VOCABULARY)


def network() -> KeyboardLM:
    """Random and sure of itself, or counts would decide every mixture."""
    model = build_model(ModelConfig(embedding_dim=4, hidden_dim=6, tied=True), SIZE, seed=2)
    with torch.no_grad():
        model.output_bias.copy_(2 * torch.randn(SIZE, generator=torch.Generator().manual_seed(1)))
        model.embedding.mul_(6)
    return model


def counted_by_hand(people: TokenStream, model: KeyboardLM | None, table: CountedNGram | None) -> list[int]:
    """One word at a time, from all words before it in its sentence."""
    hits = []
    for person in range(len(people)):
        right, sentence = 0, []
        for token in people.owner(person).tolist():
            if token > UNK:
                chance_V = np.zeros(SIZE)
                if model is not None:
                    with torch.no_grad():
                        logits = model(torch.tensor([[BOS, *sentence]]))[0][0, -1]
                    chance_V += torch.softmax(logits, 0).numpy()
                if table is not None:
                    last = ([-1, -1, BOS, *sentence])[-2:]
                    chance_V += table.dense(np.array([last]))[0]
                right += int(chance_V[len(SPECIALS) :].argmax()) + len(SPECIALS) == token
            sentence = [] if token == EOS else [*sentence, token]
        hits.append(right)
    return hits


def test_hits_are_those_of_a_count_by_hand() -> None:
    people, model, table = typed(12, 3), network(), moved(typed(60, 1), VOCABULARY)
    arms = [Arm(model, None), Arm(None, table), Arm(model, table)]
    found_AD = trade.hits(people, arms, sequence_words=20)
    expected = [counted_by_hand(people, *pair) for pair in ((model, None), (None, table), (model, table))]
    assert found_AD.tolist() == expected
    assert found_AD.sum() > 0
    assert len({tuple(row) for row in expected}) == 3


def test_words_are_all_that_was_typed() -> None:
    people = join_owners([np.array([UNK, 5, EOS, 6, EOS]), np.array([EOS]), np.array([7, EOS])])
    assert trade.words_typed(people).tolist() == [3, 0, 1]


def test_the_paired_error_is_that_of_leaving_one_out() -> None:
    rng = np.random.default_rng(1)
    words_D = rng.integers(20, 400, 300)
    start_D = rng.binomial(words_D, 0.12)
    hits_D = start_D + rng.binomial(words_D, 0.02) - rng.binomial(words_D, 0.01)
    value, error = trade.gain(hits_D, start_D, words_D)
    assert value == pytest.approx((hits_D.sum() - start_D.sum()) / words_D.sum())
    rest_D = [
        (np.delete(hits_D, out).sum() - np.delete(start_D, out).sum()) / np.delete(words_D, out).sum()
        for out in range(300)
    ]
    jackknife = np.sqrt(299 / 300 * np.sum((rest_D - np.mean(rest_D)) ** 2))
    assert error == pytest.approx(jackknife, rel=0.01)
    # An arm against itself is exactly nothing.
    assert trade.gain(start_D, start_D, words_D) == (0.0, 0.0)


@pytest.mark.parametrize("words", [[5], [0, 0]])
def test_too_few_to_judge_on(words: list[int]) -> None:
    none = np.zeros(len(words), dtype=np.int64)
    with pytest.raises(ValueError, match="held-out text"):
        trade.gain(none, none, np.array(words))


# Whole rehearsals.

# People go from word i to i + 1 four times in five; public text hardly ever does.
PUBLIC, PEOPLE = typed(150, 1, habit=0.1), typed(60, 2, habit=0.8)
LIMITS = SmallTrade(shares=(0.5, 1.0), goals=(1.0,), most_users=150, most_rounds=6, most_goal=30)
BEST = Rehearsal(
    clip_norm=1.0,
    server_learning_rate=1.0,
    noise_to_signal=0.01,
    start_accuracy=0.1,
    noiseless_accuracy=0.2,
    clip_trials=(),
    noise_trials=(),
    pseudo_users=150,
    words=3000,
)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> KeyboardLM:
    model = build_model(ModelConfig(embedding_dim=8, hidden_dim=12, tied=True), len(VOCABULARY), seed=2)
    config = {"steps": 120, "batch_sentences": 32, "sequence_words": 8, "learning_rate": 0.01}
    config |= {"evaluate_every_steps": 120}
    pretrain(PretrainConfig(**config), model, PUBLIC, PEOPLE, tmp_path_factory.mktemp("pretrain"), 1)
    return model


def stage(model: KeyboardLM, devices: int, rho: float = 1.0) -> TradeSetting:
    """A launch on so many devices, a fifth of them in a round."""
    goal = max(1, devices // 5)
    block = mechanism(noise_multiplier=4.0, clip_norm=1.0, rounds=6, report_goal=goal, min_sep=4, delta=1e-6)
    planning = {"population_estimate": devices, "max_report_goal": goal, "round_minutes": 10.0, "target_rho": rho}
    setting = Setting(
        model=model,
        users=typed(min(devices, LIMITS.most_users), 3, habit=0.8),
        held_out=PEOPLE.select(np.arange(1)),
        config=SmallLaunch(),
        local_training=LocalTrainingConfig(learning_rate=1.0, batch_sentences=2, sequence_words=8, max_words=60),
        server=ServerConfig(learning_rate=1.0),
        runtime=RuntimeConfig(chunk_devices=8),
        seed=7,
    )
    return TradeSetting(
        setting=setting,
        mechanism=block,
        counts=None,
        terms=terms_of(block, PlanningConfig.model_validate(planning), EVERYBODY_TRAINS),
        rho=rho,
        min_gain=0.0,
        vocabulary=VOCABULARY,
        public=PUBLIC,
        ngram=NGram.fit(PUBLIC, VOCABULARY, 3),
        people=PEOPLE,
        limits=LIMITS,
        inputs="digest",
    )


def quiet(made: TradeSetting) -> TradeSetting:
    """Another draw of noise, which does not fall on the one word that sentences begin with: there are 44 in all."""
    return replace(made, setting=replace(made.setting, seed=8))


def verdict(made: TradeSetting, folder: Path, lines: list[str] | None = None) -> Verdict:
    return trade.rehearse(made, BEST, folder, (lines if lines is not None else []).append)


@pytest.mark.slow
def test_the_verdict_is_monotone_in_the_population(start: KeyboardLM, tmp_path: Path) -> None:
    found = [verdict(quiet(stage(start, devices)), tmp_path) for devices in (20, 60, 300, 30_000)]
    assert [each.answer for each in found] == ["no-go", "go", "go", "go"]
    pays = [any(each.pays(row) for row in each.outcomes if row.gradient_rho) for each in found]
    assert pays == [False, False, True, True]
    assert all("by training" in each.sentence for each in found[2:])  # Counts are the better trade of so few words.
    most = [max(row.gain for row in each.outcomes if row.gradient_rho) for each in found]
    assert most == sorted(most)
    # The tiny population is told what it could have, before anything is spent.
    assert "too small: 20 devices that train gain at most" in found[0].sentence
    assert "counts would give" in found[0].sentence
    # The next can pay for counts, and the verdict has their lines.
    assert "too small to train on: 60 devices" in found[1].sentence
    advised = found[1].outcomes[found[1].best or 0]
    block = yaml.safe_load(advised.yaml)["counts"]
    assert not CountsConfig.model_validate(block).trains
    assert CountsConfig.model_validate(block).rho == pytest.approx(advised.rho)
    counts = [max(row.gain for row in each.outcomes if not row.gradient_rho) for each in found]
    assert counts[1] > max(row.gain for row in found[1].outcomes if row.gradient_rho)
    assert counts[1] < min(counts[2:])
    # The large one is played by few, and says so.
    assert found[-1].pseudo_users == 150
    assert "extrapolates" in found[-1].notes[0]
    assert all(row.rho <= 1.0 for row in found[-1].outcomes[1:])


@pytest.mark.slow
def test_what_was_trained_is_not_trained_again(
    start: KeyboardLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, runs = stage(start, 60), []
    simulate = trade.simulate

    def watched(*arguments: object) -> object:
        runs.append(arguments[1])
        return simulate(*arguments)

    monkeypatch.setattr(trade, "simulate", watched)
    once = verdict(made, tmp_path)
    assert len(runs) == 3  # the file's own, all of the rho, half of it
    assert verdict(made, tmp_path) == once
    assert len(runs) == 3
    # Killed in the middle: what stood is kept, the rest comes out the same.
    min(tmp_path.glob("*.npy")).unlink()
    assert verdict(made, tmp_path) == once
    assert len(runs) == 4
    verdict(replace(made, setting=replace(made.setting, seed=8)), tmp_path)
    assert len(runs) == 7


def test_for_nothing_comes_what_public_text_gives_alone_or_mixed(start: KeyboardLM, tmp_path: Path) -> None:
    made = quiet(stage(start, 60))
    arms = [Arm(start, None), Arm(start, made.ngram), Arm(None, made.ngram)]
    start_D, *free_AD = trade.hits(PEOPLE, arms, 8)
    words = np.sum(PEOPLE.tokens_N >= UNK)
    least = max(hits_D.sum() - start_D.sum() for hits_D in free_AD) / words
    unheard = CountsConfig(noise_multiplier=1e4, model="counts")
    gained = trade.gains(made, [(None, unheard), (None, CountsConfig(noise_multiplier=0.7, model="counts"))], tmp_path)
    nothing, _, counts, _ = gained.outcomes
    assert gained.free >= least > 0
    # Counts that nobody could hear gain nothing over what was free, however far that is from the start.
    assert (nothing.gain, nothing.over_free) == (pytest.approx(gained.free), (pytest.approx(0), pytest.approx(0)))
    assert counts.over_free[0] == pytest.approx(counts.gain - gained.free)
    assert counts.over_free[0] > 0.05


def test_what_diverges_always_says_the_same(start: KeyboardLM, tmp_path: Path) -> None:
    made = stage(start, 30)
    own = Training(made.mechanism, 1e305, own_rho(made.mechanism))
    gained = trade.gains(made, [(own, None)], tmp_path)
    (outcome,) = gained.outcomes
    first_word = np.mean(PEOPLE.tokens_N[PEOPLE.tokens_N >= UNK] == len(SPECIALS))
    assert gained.start + outcome.gain == pytest.approx(first_word)
    assert outcome.ships == "network"
