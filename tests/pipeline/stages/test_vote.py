"""Stage ``vote``: what it spends is what is disclosed, unasked it spends nothing, and only what follows it sees it."""

from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import ValidationError

from federated.accounting.gaussian import epsilon_of_rho
from federated.devices import store as population
from federated.votes import clusters
from pipeline.config import LaunchConfig, config_digest, launch_id
from pipeline.covered import spends
from pipeline.covered.accesses import accesses
from pipeline.ledger.foresee import spends_of
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.preflight.shortfalls import too_few
from pipeline.releases.policy import above_policy
from pipeline.releases.spends import local_discovery, planned
from pipeline.runner import Stages, run_stage
from pipeline.settings import Settings
from pipeline.stages import artifacts, reuse, vote
from pretrain.vocabulary import SPECIALS, Vocabulary
from pretrain.words import write_words
from tests.helpers.launches.pipeline_launch import RAW, Counted, launch_config

WORDS = Vocabulary((*SPECIALS, "see", "you", "soon"))
MADE_UP = {"source": "synthetic", "name": "made-up", "devices": 40, "max_words_per_device": 30}
ASKED = {"vote": {"noise_multiplier": 1.3}, "public_text": {"select_by": "vote"}}
POLICY = {"max_rho": 1.0, "population_max_rho": 4.0}
RHO = 1 / (2 * 1.3**2)


def asked(**changes: object) -> LaunchConfig:
    return launch_config(**{**ASKED, "policy": POLICY, "private_text": MADE_UP, **changes})


@pytest.fixture
def stages(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Stages:
    """The stage itself on a small store; the stages before it are stand-ins."""
    text = [[["see", "you", "soon"], ["see", "you"], ["soon"]]] * 10
    public = write_words(settings.home / "public", text).encode(WORDS)
    population.build_store(asked().private_text, "en-US", 1, settings.home / "store")
    store = population.open_store(settings.home / "store")
    embedding = SimpleNamespace(
        detach=lambda: SimpleNamespace(
            double=lambda: SimpleNamespace(cpu=lambda: SimpleNamespace(numpy=lambda: np.eye(len(WORDS))))
        )
    )
    monkeypatch.setattr(clusters, "GROUPS", 3)
    monkeypatch.setattr(vote, "GROUPS", 3)
    monkeypatch.setattr(artifacts, "vocabulary", lambda ctx, stage: WORDS)
    monkeypatch.setattr(artifacts, "public_streams", lambda ctx, given: (public, public))
    monkeypatch.setattr(artifacts, "model", lambda ctx, stage: SimpleNamespace(embedding=embedding))
    monkeypatch.setattr(artifacts, "store", lambda ctx: store)
    before = ("ingest_public", "ingest_private", "pretrain", "plan")
    return Stages(
        functions={**{name: lambda ctx: Counted(value=1) for name in before}, "vote": vote.vote},
        spends={"vote": spends.SPENDS["vote"]},
    )


def run(config: LaunchConfig, settings: Settings, stages: Stages) -> dict:
    for name in stages.functions:
        done = run_stage(name, config, launch_id(config), settings, stages)
    return done.result


@pytest.mark.slow
def test_what_is_spent_is_what_is_stated_and_a_retry_is_the_same_release(settings: Settings, stages: Stages) -> None:
    result = run(asked(), settings, stages)
    ledger = PrivacyLedger(settings.ledger_url)
    spent = [("reserve", "vote", RHO), ("commit", "vote", RHO)]
    assert [(entry.kind, entry.stage, entry.rho) for entry in ledger.spends()] == spent
    assert ledger.total(asked().population) == result["votes"]["rho"] == RHO
    assert result["votes"]["epsilon"] == pytest.approx(epsilon_of_rho(RHO, 1e-6))
    assert result["votes"]["groups"] == 3
    folder = next(settings.runs_dir.glob("trial-*")) / "public" / "vote"
    first = np.load(folder / "selection.npy")
    assert first.sum() == len(first)
    (folder / "result.json").unlink()
    (folder / "selection.npy").unlink()
    run(asked(), settings, stages)
    np.testing.assert_array_equal(first, np.load(folder / "selection.npy"))
    assert len(ledger.spends()) == 2


@pytest.mark.slow
def test_too_little_public_text_gives_the_reservation_back(
    settings: Settings, stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vote, "GROUPS", 500)
    with pytest.raises(Exception, match=r"30 sentences for 500 groups"):
        run(asked(), settings, stages)
    assert PrivacyLedger(settings.ledger_url).total("made-up") == 0


def test_unasked_nobody_votes_and_the_launch_is_what_it_was(settings: Settings, stages: Stages) -> None:
    config = launch_config(policy=POLICY, private_text=MADE_UP)
    assert run(config, settings, stages)["votes"] is None
    assert PrivacyLedger(settings.ledger_url).spends() == []
    assert "vote" not in launch_config().canonical()
    assert config_digest(config) != config_digest(asked())


def test_a_vote_and_its_budget_go_together() -> None:
    with pytest.raises(ValidationError, match=r"public_text.select_by: 'vote', but nothing says"):
        launch_config(public_text=ASKED["public_text"])
    with pytest.raises(ValidationError, match=r"vote: noise_multiplier 1.3, but public_text.select_by is None"):
        launch_config(vote=ASKED["vote"], policy=POLICY)


def test_more_than_the_ceiling_is_refused_before_anything_is_spent() -> None:
    with pytest.raises(ValidationError, match=r"vote.noise_multiplier: 0.5 is rho 2 and leaves nothing"):
        LaunchConfig.model_validate({**asked().model_dump(), "vote": {"noise_multiplier": 0.5}})
    assert above_policy(asked(), planned(asked(), 0.7, None), None) == []
    (line,) = above_policy(asked(), planned(asked(), 0.71, None), None)
    assert line.startswith("policy.max_rho: 1, but training costs rho 0.71 at worst and vote 0.2959; raise")
    spends = planned(asked(), 0.4, None)
    assert [spend.rho for spend in spends_of(asked(), spends, ())] == [None, pytest.approx(0.4 + RHO)]
    assert [spend.rho for spend in spends_of(asked(), spends, ("vote",))] == [None, pytest.approx(0.4)]
    (line,) = too_few(asked(), {"train": 262_140, "test": 10_000})
    assert line.startswith("vote: 262,140")


@pytest.mark.slow
def test_a_launch_loses_what_its_votes_cost() -> None:
    trained = {"rho": 0.4, "mu": 0.894, "delta": 1e-6, "epsilon": 4.3, "epsilon_pld": 4.3}
    results = {
        "vote": {"spend": spends.votes(RHO, 1e-6).model_dump()},
        "fine_tune": trained | {"spend": spends.counts(0.4, 1e-6).model_dump()},
        "discover": {"spend": local_discovery(1.0, 1, 1.0, 5e-7, "of a test").model_dump()},
    }
    loss = spends.launch_loss(asked(), SimpleNamespace(result=results.__getitem__))
    assert loss.rho == pytest.approx(0.4 + RHO)
    assert loss.epsilon == pytest.approx(epsilon_of_rho(0.4 + RHO, 1e-6))
    covered = [row.stage for row in accesses(asked()) if row.covered and row.unit == "device"]
    assert covered == ["vote", "discover", "fine_tune", "audit"]


def test_only_what_follows_the_vote_reads_it() -> None:
    """The first public model, shared by launches, never sees what devices said."""
    assert "pretrain" in artifacts.BEFORE_VOTES
    assert not artifacts.BEFORE_VOTES & {"adapt", "count", "ab_test", "fine_tune"}
    assert reuse.voted(asked()) == ("vote",)
    assert reuse.voted(launch_config()) == ()
    assert RAW["public_text"].get("select_by") is None
