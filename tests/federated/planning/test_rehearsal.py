"""Rehearsal: a partition of public text, and choices that follow from trials, on a model of a few hundred weights."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from federated.config.mechanism import MechanismConfig
from federated.config.planning import SmallLaunch
from federated.config.training import LocalTrainingConfig, RuntimeConfig, ServerConfig
from federated.planning import rehearsal
from federated.planning import search as plan_search
from federated.planning.rehearsal import Setting, Trial, acceptable, pseudo_users, rehearse
from federated.rounds.rule import RoundRule
from federated.train import FineTuneResult, TrainingData, Workplace
from pretrain.model import KeyboardLM
from pretrain.vocabulary import EOS, TokenStream, join_owners
from tests.helpers.launches.small_run import model_at_start, stream

CONFIG = SmallLaunch(
    pseudo_users=40,
    words_per_user="fixed",
    median_words=8,
    report_goal=6,
    rounds=6,
    server_learning_rates=(0.5, 1.0),
    noise_to_signal=(0.001, 0.01, 20.0, 40.0, 80.0),
    max_accuracy_loss=0.05,
)


def pattern(documents: int, seed: int) -> TokenStream:
    """Sentences of six words, four in five of them the same: learnt in a few rounds."""
    rng = np.random.default_rng(seed)
    texts = []
    for _ in range(documents):
        words = np.where(rng.random((12, 6)) < 0.8, 7, rng.integers(4, 40, size=(12, 6)))
        texts.append(np.hstack([words, np.full((12, 1), EOS)]).ravel())
    return join_owners(texts)


def setting(config: SmallLaunch = CONFIG) -> Setting:
    users = pseudo_users(pattern(30, 1), config.pseudo_users, config.words_per_user, config.median_words, 3)
    return Setting(
        model=model_at_start(),
        users=users,
        held_out=pattern(4, 2),
        config=config,
        local_training=LocalTrainingConfig(learning_rate=0.8, batch_sentences=2, sequence_words=6, max_words=16),
        server=ServerConfig(learning_rate=123.0),
        runtime=RuntimeConfig(chunk_devices=4),
        seed=7,
    )


def sentences(text: TokenStream) -> list[tuple[int, ...]]:
    ends = np.flatnonzero(text.tokens_N == EOS) + 1
    return [tuple(part.tolist()) for part in np.split(text.tokens_N, ends) if len(part)]


@pytest.mark.parametrize("words_per_user", ["fixed", "heavy-tailed"])
def test_pseudo_users_are_whole_sentences_each_owned_once(words_per_user: str) -> None:
    text = stream(200, 5)
    users = pseudo_users(text, 1000, words_per_user, 10, 3)
    assert all(users.owner(number)[-1] == EOS for number in range(len(users)))
    own, everyone = sentences(users), sentences(text)
    # The last budget may not be filled, and then its sentences have no owner.
    assert len(everyone) - 200 < len(own) <= len(everyone)
    remaining = list(everyone)
    for sentence in own:
        remaining.remove(sentence)
    again = pseudo_users(text, 1000, words_per_user, 10, 3)
    assert np.array_equal(again.tokens_N, users.tokens_N)
    assert not np.array_equal(pseudo_users(text, 1000, words_per_user, 10, 4).tokens_N, users.tokens_N)


def test_budgets_are_reached_by_the_last_sentence() -> None:
    users = pseudo_users(pattern(30, 1), 50, "fixed", 8, 3)
    # Sentences of 6 words: a budget of 8 takes two.
    assert len(users) == 50
    assert set(np.diff(users.offsets_D1)) == {14}


@pytest.mark.statistical
def test_heavy_tails_are_log_normal() -> None:
    ones = join_owners([np.tile([5, EOS], 200_000)])
    words = np.diff(pseudo_users(ones, 1000, "heavy-tailed", 100, 3).offsets_D1) / 2
    # Standard errors at 1,000 users: 4% of the median, 0.022 of the spread.
    assert np.median(words) == pytest.approx(100, rel=0.13)
    assert np.std(np.log(words)) == pytest.approx(1.0, abs=0.09)


def test_little_text_makes_few_users() -> None:
    assert len(pseudo_users(pattern(1, 1), 5, "fixed", 1000, 3)) == 1
    assert len(pseudo_users(join_owners([]), 5, "fixed", 10, 3)) == 0
    with pytest.raises(ValueError, match="public_text: it makes only 3 pseudo-users"):
        rehearse(replace(setting(), users=setting().users.select(np.arange(3))), Path("unused"), Path("unused"))


def watched_runs(monkeypatch: pytest.MonkeyPatch) -> dict[str, MechanismConfig]:
    """The mechanism of each trial that is really run, by the trial's folder."""
    fine_tune, runs = rehearsal.fine_tune, {}

    def watched(
        model: KeyboardLM, data: TrainingData, rule: RoundRule, *rest: LocalTrainingConfig | ServerConfig | Workplace
    ) -> FineTuneResult:
        runs[rest[-1].directory.name] = rule.config
        return fine_tune(model, data, rule, *rest)

    monkeypatch.setattr(rehearsal, "fine_tune", watched)
    return runs


@pytest.mark.slow
def test_a_whole_rehearsal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    runs = watched_runs(monkeypatch)
    found = rehearse(setting(), tmp_path / "shown", tmp_path / "work", lines.append)
    assert found.noiseless_accuracy > found.start_accuracy + 0.1  # it learned
    assert found.noise_to_signal == 0.01  # and 20 clip norms of noise undid it
    assert [trial.noise_to_signal for trial in found.noise_trials] == [0.001, 0.01, 20.0, 40.0]  # two misses end it
    assert found.noise_trials[-1].accuracy < found.noiseless_accuracy - 0.05
    assert [trial.server_learning_rate for trial in found.clip_trials] == [0.5, 1.0]
    best = max(found.clip_trials, key=lambda trial: trial.accuracy)
    assert found.server_learning_rate == best.server_learning_rate
    assert found.clip_norm == pytest.approx(best.clip_norm, rel=0.05)
    assert found.clip_norm != CONFIG.start_clip_norm
    assert found.pseudo_users == 40
    assert found.words == 40 * 12
    assert len(lines) == 7
    # The ratio means what the planner takes it for.
    config = runs["noise-to-signal-0.01"]
    assert config.clip_norm == found.clip_norm
    assert plan_search.noise_to_signal(config) == pytest.approx(0.01)
    assert found.noise_trials[1].noise_multiplier == config.noise_multiplier
    assert not list((tmp_path / "work").glob("*"))


@pytest.mark.slow
def test_finished_trials_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    once = rehearse(setting(), tmp_path, tmp_path / "work")
    runs = watched_runs(monkeypatch)
    assert rehearse(setting(), tmp_path, tmp_path / "work") == once
    assert runs == {}
    # As if killed after three trials: those stay, the others are made again and come out the same.
    content = json.loads((tmp_path / "trials.json").read_text())
    content["trials"] = content["trials"][:3]
    (tmp_path / "trials.json").write_text(json.dumps(content))
    assert rehearse(setting(), tmp_path, tmp_path / "work") == once
    assert list(runs) == [trial.name.replace(" ", "-") for trial in once.noise_trials]
    # Another tolerance judges the same trials; another text is another rehearsal.
    runs.clear()
    strict = setting(replace(CONFIG, max_accuracy_loss=1e-9, noise_to_signal=(0.001,)))
    rehearse(strict, tmp_path, tmp_path / "work")
    assert runs == {}
    rehearse(replace(strict, held_out=pattern(4, 3)), tmp_path, tmp_path / "work")
    assert len(runs) == 4


def test_one_lucky_trial_does_not_stand_for_a_ratio_training_cannot_bear() -> None:
    trials = [Trial("", 1.0, ratio, 1.0, 1.0, 0.1, accuracy) for ratio, accuracy in ((1, 0.30), (2, 0.27), (3, 0.30))]
    assert acceptable(trials, 0.30, 0.01) == 1
    assert acceptable(trials, 0.30, 0.04) == 3
    assert acceptable(trials[1:], 0.30, 0.01) is None


@pytest.mark.slow
def test_a_rate_at_which_training_diverges_is_an_answer(tmp_path: Path) -> None:
    found = rehearse(setting(replace(CONFIG, server_learning_rates=(1.0, 1e305))), tmp_path, tmp_path / "work")
    assert found.clip_trials[1].accuracy == 0.0
    assert found.server_learning_rate == 1.0
    with pytest.raises(ArithmeticError, match=r"diverged at each of 1e\+305; lower"):
        rehearse(setting(replace(CONFIG, server_learning_rates=(1e305,))), tmp_path, tmp_path / "work")
