"""A launch rehearsed on public text: pseudo-users, the scaling rule, ways to spend rho, and whole rehearsals."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from pydantic import TypeAdapter

from federated.config.counts import CountsConfig
from federated.config.mechanism import MechanismConfig
from federated.config.planning import PlanningConfig, SmallLaunch
from federated.config.population import EVERYBODY_TRAINS
from federated.config.training import LocalTrainingConfig, RuntimeConfig, ServerConfig
from federated.counts import distil
from federated.planning import law, rehearsal
from federated.planning.recall import Arm, hits
from federated.planning.rehearsal import Setting, Training, own_rho, pseudo_users
from federated.planning.search import terms_of
from federated.planning.verdict import Verdict
from pretrain.config import ModelConfig, PretrainConfig
from pretrain.model import KeyboardLM, build_model
from pretrain.ngrams.ngram import NGram
from pretrain.train import pretrain
from pretrain.vocabulary import EOS, SPECIALS, UNK, TokenStream, join_owners
from tests.helpers.launches.small_run import mechanism, stream
from tests.helpers.text.counted_devices import VOCABULARY, typed

# Pseudo-users.


def pattern(documents: int, seed: int) -> TokenStream:
    """Sentences of six words, four in five of them the same: learnt in a few rounds."""
    rng = np.random.default_rng(seed)
    texts = []
    for _ in range(documents):
        words = np.where(rng.random((12, 6)) < 0.8, 7, rng.integers(4, 40, size=(12, 6)))
        texts.append(np.hstack([words, np.full((12, 1), EOS)]).ravel())
    return join_owners(texts)


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


# The launch's own way and step noise in its rehearsal, whatever its size and kind.

USUAL = SmallLaunch(most_users=3000, most_rounds=20, most_goal=200)
SERVER = ServerConfig(learning_rate=0.7)
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
def test_way_and_step_noise_are_the_launch_s_own(launched: MechanismConfig, users: int) -> None:
    played, rate = rehearsal.scaled(launched, SERVER, users, USUAL)
    server = ServerConfig(learning_rate=rate)
    assert law.way(played, server) == pytest.approx(law.way(launched, SERVER), rel=1e-9)
    assert law.step_noise(played, server) == pytest.approx(law.step_noise(launched, SERVER), rel=1e-9)
    assert played.rounds == min(launched.rounds, 20)
    assert played.report_goal <= min(launched.report_goal, 200)
    assert played.report_goal * played.min_sep <= users
    assert TypeAdapter(MechanismConfig).validate_python(played.model_dump()) == played


def test_a_population_that_can_be_played_is_not_scaled() -> None:
    launched = launch(16, 200, 4)
    played, rate = rehearsal.scaled(launched, SERVER, 938, USUAL)
    assert (played, rate) == (launched.model_copy(update={"randomness": "seeded"}), SERVER.learning_rate)
    assert rehearsal.notes(launched, SERVER, 938, 938, USUAL) == ()
    assert "extrapolates" in rehearsal.notes(launched, SERVER, 500, 938, USUAL)[0]
    assert "extrapolates" in rehearsal.notes(launch(100, 200, 4), SERVER, 938, 938, USUAL)[0]


def test_scaling_by_hand() -> None:
    # Half the devices in a round of the same tree: half the noise multiplier.
    played, _ = rehearsal.scaled(launch(16, 200, 4), SERVER, 400, USUAL)
    assert (played.report_goal, played.noise_multiplier) == (100, pytest.approx(3.0))
    # A sum over a tenth of the devices, a tenth of the noise.
    assert rehearsal.scaled_counts(1.3, 300, 3000) == pytest.approx(0.13)
    assert rehearsal.scaled_counts(1.3, 3000, 3000) == 1.3


def test_bits_of_adaptive_clipping_keep_their_share_of_the_noise() -> None:
    adaptive = {"target_quantile": 0.5, "learning_rate": 0.2, "bit_noise_std": 10.0}
    played, _ = rehearsal.scaled(launch(16, 200, 4, restarts=(8,), adaptive_clipping=adaptive), SERVER, 400, USUAL)
    assert played.adaptive_clipping.bit_noise_std == pytest.approx(5.0)
    played, _ = rehearsal.scaled(launch(32, 200, 4, restarts=(8,), adaptive_clipping=adaptive), SERVER, 400, USUAL)
    assert played.restarts == (8,)


def test_nobody_plays_nothing() -> None:
    with pytest.raises(ValueError, match="users: 0"):
        rehearsal.scaled(launch(16, 200, 4), SERVER, 0, USUAL)


# Whole rehearsals.

# People go from word i to i + 1 four times in five; public text hardly ever does.
PUBLIC, PEOPLE = typed(150, 1, habit=0.1), typed(60, 2, habit=0.8)
LIMITS = SmallLaunch(shares=(1.0, 0.5), most_users=150, most_rounds=24, most_goal=30)


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts that move a start by few steps, for tests that do not look at where it goes."""
    monkeypatch.setattr(distil, "STEPS", 60)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> KeyboardLM:
    model = build_model(ModelConfig(embedding_dim=8, hidden_dim=12, tied=True), len(VOCABULARY), seed=2)
    config = {"steps": 120, "batch_sentences": 32, "sequence_words": 8, "learning_rate": 0.01}
    config |= {"evaluate_every_steps": 120}
    pretrain(PretrainConfig(**config), model, PUBLIC, PEOPLE, tmp_path_factory.mktemp("pretrain"), 1)
    return model


def stage(model: KeyboardLM, devices: int, rho: float = 1.0) -> Setting:
    """A launch on so many devices, a fifth of them in a round."""
    goal = max(1, devices // 5)
    block = mechanism(noise_multiplier=4.0, clip_norm=1.0, rounds=24, report_goal=goal, min_sep=4, delta=1e-6)
    planning = {"population_estimate": devices, "max_report_goal": goal, "round_minutes": 10.0, "target_rho": rho}
    server = ServerConfig(learning_rate=1.0)
    return Setting(
        model=model,
        users=typed(min(devices, LIMITS.most_users), 3, habit=0.8),
        people=PEOPLE,
        local_training=LocalTrainingConfig(learning_rate=2.0, batch_sentences=2, sequence_words=8, max_words=60),
        server=server,
        runtime=RuntimeConfig(chunk_devices=8),
        seed=7,
        mechanism=block,
        counts=None,
        terms=terms_of(PlanningConfig.model_validate(planning), EVERYBODY_TRAINS, server),
        rho=rho,
        min_gain=0.0,
        vocabulary=VOCABULARY,
        public=PUBLIC,
        ngram=NGram.fit(PUBLIC, VOCABULARY, 3),
        limits=LIMITS,
        inputs="digest",
    )


def quiet(made: Setting) -> Setting:
    """Another draw of noise, which does not fall on the one word that sentences begin with: there are 44 in all."""
    return replace(made, seed=8)


def verdict(made: Setting, folder: Path, lines: list[str] | None = None) -> Verdict:
    return rehearsal.rehearse(made, folder, (lines if lines is not None else []).append)


@pytest.mark.slow
@pytest.mark.parametrize("own", [None, "counts", "mixture", "network"])
def test_no_way_costs_more_than_the_rho(start: KeyboardLM, own: str | None) -> None:
    block = None if own is None else CountsConfig(noise_multiplier=3.0, model=own)
    found = rehearsal.ways(replace(stage(start, 300, rho=0.4), counts=block))
    training, counts = found[0]
    assert counts == block
    assert (training is None) == (own == "counts")
    assert training is None or (training.moved_by == block) == (own in (None, "network"))
    costs = [(way[0].rho if way[0] else 0.0) + (way[1].rho if way[1] else 0.0) for way in found[1:]]
    assert max(costs) <= 0.4
    assert len(found) == 6  # The file's own, training and counts with all and with half, counts that move the start.


@pytest.mark.slow
def test_the_verdict_is_monotone_in_the_population(start: KeyboardLM, tmp_path: Path) -> None:
    found = [verdict(quiet(stage(start, devices)), tmp_path) for devices in (20, 60, 30_000)]
    assert [each.answer for each in found] == ["no-go", "go", "go"]
    pays = [any(each.pays(row) for row in each.outcomes if row.gradient_rho) for each in found]
    assert pays == [False, False, True]
    assert "by training" in found[2].sentence  # Counts are the better trade of so few words.
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
    assert counts[1] < counts[2]
    # The large one is played by few, and says so.
    assert found[-1].pseudo_users == 150
    assert "extrapolates" in found[-1].notes[0]
    assert all(row.rho <= 1.0 for row in found[-1].outcomes[1:])


@pytest.mark.slow
@pytest.mark.usefixtures("few_steps")
def test_what_was_trained_is_not_trained_again(
    start: KeyboardLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, runs = stage(start, 60), []
    simulate = rehearsal.simulate

    def watched(*arguments: object) -> object:
        runs.append(arguments[1])
        return simulate(*arguments)

    monkeypatch.setattr(rehearsal, "simulate", watched)
    once = verdict(made, tmp_path)
    # The file's own, all of the rho, half of it, from a moved start, without noise.
    assert len(runs) == 5
    assert verdict(made, tmp_path) == once
    assert len(runs) == 5
    # Killed in the middle: what stood is kept, the rest comes out the same.
    min(tmp_path.glob("*.npy")).unlink()
    assert verdict(made, tmp_path) == once
    assert len(runs) == 6
    verdict(replace(made, seed=8), tmp_path)
    assert len(runs) == 11


@pytest.mark.slow
@pytest.mark.usefixtures("few_steps")
def test_text_that_teaches_nothing_is_noticed_by_the_first_training(start: KeyboardLM, tmp_path: Path) -> None:
    made, lines = stage(start, 60), list[str]()
    limits = replace(made.limits, least_headroom=1.0)
    found = verdict(replace(made, limits=limits), tmp_path, lines)
    assert (found.answer, found.outcomes, found.best) == ("inconclusive", (), None)
    assert len(list(tmp_path.glob("*.npy"))) == 1
    assert [line.startswith("training 1 of 1, without noise") for line in lines] == [True, False]
    whole = verdict(made, tmp_path)
    assert (found.start, found.free) == (whole.start, whole.free)


def test_for_nothing_comes_what_public_text_gives_alone_or_mixed(start: KeyboardLM, tmp_path: Path) -> None:
    made = quiet(stage(start, 60))
    arms = [Arm(start, None), Arm(start, made.ngram), Arm(None, made.ngram)]
    start_D, *free_AD = hits(PEOPLE, arms, 8)
    words = np.sum(PEOPLE.tokens_N >= UNK)
    least = max(hits_D.sum() - start_D.sum() for hits_D in free_AD) / words
    unheard = CountsConfig(noise_multiplier=1e4, model="counts")
    gained = rehearsal.gains(
        made, [(None, unheard), (None, CountsConfig(noise_multiplier=0.7, model="counts"))], tmp_path
    )
    nothing, _, counts, _ = gained.outcomes
    assert gained.free >= least > 0
    # Counts that nobody could hear gain nothing over what was free, however far that is from the start.
    assert (nothing.gain, nothing.over_free) == (pytest.approx(gained.free), (pytest.approx(0), pytest.approx(0)))
    assert counts.over_free[0] == pytest.approx(counts.gain - gained.free)
    assert counts.over_free[0] > 0.05


def test_what_diverges_always_says_the_same(start: KeyboardLM, tmp_path: Path) -> None:
    made = stage(start, 30)
    own = Training(made.mechanism, 1e305, own_rho(made.mechanism))
    gained = rehearsal.gains(made, [(own, None)], tmp_path)
    (outcome,) = gained.outcomes
    first_word = np.mean(PEOPLE.tokens_N[PEOPLE.tokens_N >= UNK] == len(SPECIALS))
    assert gained.start + outcome.gain == pytest.approx(first_word)
    assert outcome.ships == "network"
