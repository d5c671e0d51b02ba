"""The decision takes its list of releases from spends, and holds a launch whose report could not be written."""

import shutil
from types import SimpleNamespace

import pytest

from pipeline.ground.settings import Settings
from pipeline.publication.gates.decide import decide as decided
from pipeline.releases.release import EVERY_RELEASE
from pipeline.releases.spent import spent
from pipeline.releases.total import total
from pipeline.run.known import run_folder
from pipeline.run.stage import StageContext
from pipeline.stages import decide
from pipeline.stages.decide import evidence
from reports.losses import up
from tests.helpers.launches.decided import decided_launch

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def trained(settings: Settings) -> StageContext:
    """A launch that has spent in ``fine_tune``, and was not audited."""
    config, run_id = decided_launch(settings, until="ab_test")
    return StageContext(config, run_folder(settings, run_id), settings, "decide", None, config.population)


def untested(ctx: StageContext) -> str:
    gates = decided(evidence(ctx).model_copy(update={"release_audits": ()}), ctx.config.policy).gates
    (gate,) = (gate for gate in gates if gate.id == "release_audits")
    assert not gate.passed
    return gate.evidence


def test_a_release_that_nobody_declares_is_named_by_its_spend(
    trained: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forgotten in the list of releases it had no row in the list that gates ask for, and passed."""
    monkeypatch.setattr(decide, "releases", lambda config: ())
    assert "fine_tune: key was not tested; fine_tune: split was not tested" in untested(trained)


def test_a_spend_whose_record_is_lost_is_named_by_the_ledger(
    trained: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decide, "releases", lambda config: ())
    shutil.rmtree(trained.run.path / "public" / "fine_tune")
    assert "fine_tune: key was not tested" in untested(trained)


def test_the_record_states_the_loss_once_rounded_and_in_words(trained: StageContext) -> None:
    """MLflow, commands and Airflow rounded it each for itself: 0.499993 and 0.5, 12.8845 and 12.89."""
    whole = total(trained.config, spent(trained.config, trained.run))
    assert whole.epsilon != float(up(whole.epsilon)), "or rounding shows nothing"
    gates = [gate.model_dump(mode="json") for gate in decided(evidence(trained), trained.config.policy).gates]
    record = SimpleNamespace(result={"gates": gates})
    stated = decide.remade(trained, record, trained.public)["headline"]
    assert {name: stated[name] for name in stated if name != "decision"} == {
        "epsilon": float(up(whole.epsilon)),
        "delta": trained.config.mechanism.delta,
        "guarantee": whole.number,
        "loss": whole.sentence,
    }
    (gate,) = (gate for gate in gates if gate["id"] == "total")
    assert (gate["value"], gate["shown"]) == (whole.epsilon, up(whole.epsilon)), "the gate judges all digits"


def test_every_release_needs_the_verdicts_that_all_have(trained: StageContext) -> None:
    releases = evidence(trained).releases
    assert releases is not None
    assert {"discover", "fine_tune"} <= releases.keys()
    assert releases.pop("build_vocabulary") == ("words", "frequencies"), "it is no release, and follows from one"
    assert all({*EVERY_RELEASE} < {*verdicts} for verdicts in releases.values())
