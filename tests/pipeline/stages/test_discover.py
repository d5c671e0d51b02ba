"""Stage ``discover`` with a trusted aggregator: what it spends, states and verifies, and what is refused before it."""

import json
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from discovery.config import FAILURE_SHARE
from federated.accounting.gaussian import epsilon_of_rho
from pipeline.ground.errors import StageInputMissing
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, problems
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.preflight.shortfalls import too_few
from pipeline.releases import spent as spends
from pipeline.releases.central_words import central_discovery
from pipeline.releases.counts import counts
from pipeline.releases.policy import above_policy
from pipeline.releases.terms import Terms
from pipeline.releases.uses import accesses
from pipeline.run import artifacts
from pipeline.run.artifacts import WORDS
from pipeline.run.run_dir import RunDir
from pipeline.run.stage import StageContext, Stages
from pipeline.stages import decide
from pipeline.stages import discover as discovering
from pipeline.verify.check import Check
from pipeline.verify.guarantee import by_the_file
from pretrain.text.vocabulary import SPECIALS, Vocabulary
from tests.helpers.launches.pipeline_launch import RAW, after_stand_ins, launch_config, run_all

BASE = Vocabulary((*SPECIALS, "see", "you", "soon"))
CENTRAL = {"kind": "central", "noise_multiplier": 1.5, "words_per_device": 5, "delta": 1e-6}
MADE_UP = {"source": "synthetic", "name": "made-up", "devices": 80, "max_words_per_device": 30}
POLICY = {**RAW["policy"], "max_rho": 1.0, "population_max_rho": 4.0, "max_discovery_epsilon0": None}
RHO, FAILURE = 1 / (2 * 1.5**2), FAILURE_SHARE * 1e-6


def raw(discovery: dict | None = None, policy: dict | None = None) -> dict:
    block = CENTRAL | (discovery or {})
    return RAW | {"discovery": block, "policy": POLICY | (policy or {}), "private_text": MADE_UP}


def asked(discovery: dict | None = None, policy: dict | None = None) -> LaunchConfig:
    return LaunchConfig.model_validate(raw(discovery, policy))


def refused(content: dict) -> str:
    with pytest.raises(ValidationError) as failed:
        LaunchConfig.model_validate(content)
    (line,) = problems(failed.value)
    return line


@pytest.fixture
def stages(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Stages:
    """The stage itself on sixty devices; the stages before it are stand-ins."""
    typed = {"train": [["see", "haha", f"own{device}"] for device in range(60)]}
    store = SimpleNamespace(typed_words=typed.__getitem__)
    monkeypatch.setattr(artifacts, "vocabulary", lambda ctx, stage: BASE)
    monkeypatch.setattr(artifacts, "store", lambda ctx: store)
    return after_stand_ins(("ingest_public", "ingest_private", "plan"), discovering.discover)


@pytest.mark.slow
def test_what_is_spent_is_what_is_stated_and_a_retry_is_the_same_release(settings: Settings, stages: Stages) -> None:
    result = run_all(asked(), settings, stages)
    ledger = PrivacyLedger.of(settings)
    assert [(entry.kind, entry.rho, entry.failure, entry.split) for entry in ledger.spends()] == [
        (kind, pytest.approx(RHO), pytest.approx(FAILURE), "train") for kind in ("reserve", "commit")
    ]
    assert ledger.total("synthetic:made-up") == pytest.approx(RHO)
    assert result["rho"] == pytest.approx(RHO)
    assert result["epsilon"] == pytest.approx(epsilon_of_rho(RHO, 1e-6 - FAILURE))
    private = next(settings.runs_dir.glob("trial-*")) / "private" / "discover"
    words = (private / WORDS).read_text(encoding="utf-8")
    assert [word["word"] for word in json.loads(words)["words"]] == ["haha"]
    assert result["words_found"] == 1
    (private.parents[1] / "public" / "discover" / "result.json").unlink()
    (private / WORDS).unlink()
    run_all(asked(), settings, stages)
    assert (private / WORDS).read_text(encoding="utf-8") == words
    assert len(ledger.spends()) == 2


@pytest.mark.slow
def test_a_launch_loses_words_and_training_and_what_may_fail_is_taken_off_delta(settings: Settings) -> None:
    trained = {"rho": 0.4, "mu": 0.894, "delta": 1e-6, "epsilon": 4.3, "epsilon_pld": 4.3}
    spent = central_discovery(asked().central_discovery).model_dump()
    results = {"fine_tune": trained | {"spend": counts(0.4, 1e-6).model_dump()}, "discover": {"spend": spent}}
    loss = spends.launch_loss(asked(), SimpleNamespace(result=results.__getitem__))
    assert loss.rho == pytest.approx(0.4 + RHO)
    assert loss.epsilon == pytest.approx(epsilon_of_rho(0.4 + RHO, 1e-6 - FAILURE))
    assert loss.epsilon_pld == pytest.approx(loss.epsilon, abs=1e-3)
    assert loss.delta == 1e-6

    class Run(RunDir):
        def result(self, stage: str) -> dict:
            if stage == "discover":
                raise StageInputMissing(stage)
            return trained

    found = decide.evidence(StageContext(asked(), Run(settings.runs_dir, "trial-x"), settings, "decide", None))
    assert (found.rho, found.epsilon, found.epsilon_pld) == (None, None, None)


def test_the_words_own_rho_is_never_taken_for_the_launch_s(settings: Settings) -> None:
    class Run(RunDir):
        def result(self, stage: str) -> dict:
            if stage != "discover":
                raise StageInputMissing(stage)
            return {"rho": RHO, "epsilon": 1.0, "epsilon0": 0.5, "spend": None}

    for config in (asked(), launch_config()):
        found = decide.evidence(StageContext(config, Run(settings.runs_dir, "trial-x"), settings, "decide", None))
        assert (found.rho, found.epsilon) == (None, None)


@pytest.mark.parametrize(
    ("discovery", "policy", "message"),
    [
        ({}, {"max_discovery_epsilon0": 2.0}, "policy.max_discovery_epsilon0: 2, but a central discovery sends no"),
        ({"delta": 1e-5}, {}, "discovery.delta: 1e-05 is more than mechanism.delta 1e-06"),
        (
            {"noise_multiplier": 0.5},
            {},
            "discovery.noise_multiplier: 0.5 is rho 2 for a train device, which leaves nothing of policy.max_rho",
        ),
        ({"epsilon0": 8.0}, {}, "discovery.epsilon0: no such field"),
        ({"kind": "trusted"}, {}, "discovery.kind: got 'trusted'; choose one of 'ldp-triehh', 'central'"),
        ({"words_per_device": 0}, {}, "discovery.words_per_device: got 0; give a number at least 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(discovery: dict, policy: dict, message: str) -> None:
    assert refused(raw(discovery, policy)).startswith(message)


def test_a_local_discovery_states_its_ceiling() -> None:
    policy = {name: value for name, value in RAW["policy"].items() if name != "max_discovery_epsilon0"}
    assert refused(RAW | {"policy": policy}).startswith("policy.max_discovery_epsilon0: missing, and discovery is")


def test_more_than_the_ceiling_is_refused_before_anything_is_spent() -> None:
    assert above_policy(Terms.of(asked(), 0.77)) == []
    (line,) = above_policy(Terms.of(asked(), 0.78))
    assert line.startswith("policy.max_rho: 1, but training costs rho 0.78 at worst and discovery 0.2222; raise")
    assert too_few(asked(), {"train": 10, "test": 10_000}) == []
    (line,) = too_few(asked({"noise_multiplier": 6.0}), {"train": 20, "test": 10_000})
    assert line.startswith("discovery.noise_multiplier: 6 requires a weight of 33.4 per word, more than all 20+")


def test_the_table_of_accesses_covers_words_by_device() -> None:
    (row,) = [access for access in accesses(asked()) if access.stage == "discover"]
    assert (row.covered, row.unit) == (True, "device")
    assert "weighted Gaussian" in (row.mechanism or "")


def checks(**changes: float) -> Iterator[Check]:
    config = asked().central_discovery
    stated = central_discovery(config).model_dump() | {"failure": FAILURE}
    stated |= {"forms_share": discovering.select.FORMS_SHARE, "filled_share": discovering.select.FILLED_SHARE}
    stated |= {"threshold": discovering.select.cut_of(config).threshold, "words_per_device": config.words_per_device}
    stated |= {"noise_multiplier": config.noise_multiplier} | changes
    return by_the_file(asked(), {"discover": SimpleNamespace(result=stated)})


def test_what_words_promise_is_derived_again() -> None:
    assert all(check.passed for check in checks())
    names = ("rho", "epsilon", "delta", "failure", "forms_share", "filled_share", "threshold")
    names += ("noise_multiplier", "words_per_device")
    for name in names:
        value = {check.id: check.passed for check in checks(**{name: 0.1})}
        assert value == {f"central_words {other}": other != name for other in names}
    assert list(by_the_file(launch_config(), {})) == []
