"""Whole rehearsals on made-up people: a tiny population is told to stop, a large one to go, once and for all."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from federated.config.counts import CountsConfig
from federated.config.mechanism import TreeMechanism
from federated.config.planning import PlanningConfig, SmallLaunch, SmallTrade
from federated.config.population import EVERYBODY_TRAINS
from federated.config.training import LocalTrainingConfig, RuntimeConfig, ServerConfig
from federated.planning import recall, trade
from federated.planning.rehearsal import Rehearsal, Setting
from federated.planning.search import terms_of
from federated.planning.trade import TradeSetting, Training, own_rho
from federated.planning.verdict import Verdict
from pretrain.config import ModelConfig, PretrainConfig
from pretrain.model import KeyboardLM, build_model
from pretrain.ngrams.ngram import NGram
from pretrain.train import pretrain
from pretrain.vocabulary import SPECIALS, UNK
from tests.helpers.text.counted_devices import VOCABULARY, typed

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
    mechanism = TreeMechanism(
        kind="tree",
        noise_multiplier=4.0,
        clip_norm=1.0,
        rounds=6,
        report_goal=goal,
        min_sep=4,
        max_participations=2,
        delta=1e-6,
        randomness="secure",
    )
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
        mechanism=mechanism,
        counts=None,
        terms=terms_of(mechanism, PlanningConfig.model_validate(planning), EVERYBODY_TRAINS),
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
    arms = [recall.Arm(start, None), recall.Arm(start, made.ngram), recall.Arm(None, made.ngram)]
    start_D, *free_AD = recall.hits(PEOPLE, arms, 8)
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
