"""Stage ``count``: what it spends is what is disclosed, it spends nothing unasked, and what fits is known before."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import ValidationError

from federated.accounting.gaussian import epsilon_of_rho
from federated.counts import cells as counted_cells
from federated.counts import release
from pipeline.ground.errors import StageInputMissing
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.preflight.shortfalls import too_few
from pipeline.releases import spent as spends
from pipeline.releases.counts import counts
from pipeline.releases.policy import above_policy
from pipeline.releases.terms import Terms
from pipeline.releases.uses import accesses
from pipeline.run import artifacts
from pipeline.run.known import run_folder
from pipeline.run.run_dir import RunDir
from pipeline.run.stage import StageContext, Stages
from pipeline.stages import decide
from pipeline.stages.audit_releases import audit_releases
from pretrain.ngrams import counted
from tests.helpers.launches.counting import GROWN, MADE_UP, counting
from tests.helpers.launches.pipeline_launch import RAW, launch_config, run_all

ASKED = {"noise_multiplier": 1.3, "model": "mixture"}
POLICY = {"max_rho": 1.0, "population_max_rho": 4.0}


def asked(**changes: object) -> LaunchConfig:
    return launch_config(counts=ASKED, policy=POLICY, private_text=MADE_UP, **changes)


def passed(config: LaunchConfig, run: RunDir, settings: Settings) -> list[str]:
    """Names of the verdicts on the counts that passed."""
    every = audit_releases(StageContext(config, run, settings, "audit_releases", None)).release_audits
    return [verdict.name for each in every if each.stage == "count" for verdict in each.verdicts if verdict.passed]


@pytest.fixture
def stages(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Stages:
    return counting(asked(), settings, monkeypatch)


def test_what_is_spent_is_what_is_stated(settings: Settings, stages: Stages) -> None:
    result = run_all(asked(), settings, stages)
    ledger = PrivacyLedger.of(settings)
    rho = 1 / (2 * 1.3**2)
    assert [(entry.kind, entry.stage, entry.rho) for entry in ledger.spends()] == [
        ("reserve", "count", rho),
        ("commit", "count", rho),
    ]
    assert ledger.total("synthetic:made-up") == result["counts"]["rho"] == rho
    assert result["counts"]["epsilon"] == pytest.approx(epsilon_of_rho(rho, 1e-6))
    assert result["counts"]["cells"] == len(GROWN) * (1 + result["counts"]["contexts"])
    assert result["counts"]["start_weight"] == 2
    assert [entry.names("start_weight") for entry in ledger.spends()] == ["2.0", "2.0"]


def test_cells_are_chosen_before_any_device_is_read(
    settings: Settings, stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, chosen = [], counted_cells.choose
    store = artifacts.store
    monkeypatch.setattr(artifacts, "store", lambda ctx: read.append("store") or store(ctx))
    monkeypatch.setattr(counted_cells, "choose", lambda *args, **more: read.append("cells") or chosen(*args, **more))
    run_all(asked(), settings, stages)
    assert read == ["cells", "store"]


@pytest.mark.slow
def test_a_retry_is_the_same_release(settings: Settings, stages: Stages) -> None:
    run_all(asked(), settings, stages)
    folder = next(settings.runs_dir.glob("trial-*")) / "public" / "count"
    first = counted.load(folder / "counts.npz")
    (folder / "result.json").unlink()
    (folder / "counts.npz").unlink()
    run_all(asked(), settings, stages)
    again = counted.load(folder / "counts.npz")
    np.testing.assert_array_equal(first.factor_V, again.factor_V)
    np.testing.assert_array_equal(first.pair_G, again.pair_G)
    assert len(PrivacyLedger.of(settings).spends()) == 2


@pytest.mark.slow
def test_a_release_goes_on_with_the_weight_that_it_was_begun_with(
    settings: Settings, stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: object) -> None:
        raise OSError("the disk is full")

    config = launch_config(counts={**ASKED, "model": "counts"}, policy=POLICY, private_text=MADE_UP)
    before = {**stages, "count": replace(stages["count"], says={"start_weight": "1.0"})}
    with monkeypatch.context() as then:
        then.setattr(counted, "save", ended)
        with pytest.raises(OSError, match="the disk is full"):
            run_all(config, settings, before)
    (reserved,) = PrivacyLedger.of(settings).spends()
    assert reserved.names("start_weight") == "1.0"
    # The noise of then is on sums of today's weights nowhere: not in the retry, and not where it is made again.
    weighed, of_devices = [], release.weighted
    monkeypatch.setattr(
        release, "weighted", lambda devices, cells: weighed.append(cells.start_weight) or of_devices(devices, cells)
    )
    assert run_all(config, settings, stages)["counts"]["start_weight"] == 1
    assert weighed == [1]
    run = run_folder(settings, launch_id(config))
    assert passed(config, run, settings) == ["key", "split", "sum", "digits", "model"]


@pytest.mark.slow
def test_counts_are_as_wide_as_the_launch_file_says_and_are_audited_so(
    settings: Settings, stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    summed, sums = [], release.released_sum
    monkeypatch.setattr(release, "released_sum", lambda *args: summed.append(args[1]) or sums(*args))
    config = launch_config(counts={**ASKED, "contexts": 2}, policy=POLICY, private_text=MADE_UP)
    result = run_all(config, settings, stages)["counts"]
    assert (result["contexts"], result["cells"]) == (2, 3 * len(GROWN))
    assert summed == [3 * len(GROWN)]
    run = run_folder(settings, launch_id(config))
    assert passed(config, run, settings) == ["key", "split", "sum", "digits", "model"]


def test_unasked_nothing_is_counted_or_spent(settings: Settings, stages: Stages) -> None:
    config = launch_config(policy=POLICY, private_text=MADE_UP)
    assert run_all(config, settings, stages)["counts"] is None
    assert PrivacyLedger.of(settings).spends() == []
    assert not list(settings.runs_dir.rglob("counts.npz"))


def test_more_than_the_ceiling_is_refused_before_anything_is_spent() -> None:
    with pytest.raises(ValidationError, match=r"counts.noise_multiplier: 0.5 is rho 2 for a train device"):
        LaunchConfig.model_validate({**RAW, "counts": {**ASKED, "noise_multiplier": 0.5}})
    assert above_policy(Terms.of(asked(), 0.7)) == []
    (line,) = above_policy(Terms.of(asked(), 0.71))
    assert line.startswith("policy.max_rho: 1, but training costs rho 0.71 at worst and counts 0.2959; raise")
    (line,) = too_few(asked(), {"train": 262_140, "test": 10_000})
    assert line.startswith("counts: 262,140")
    assert too_few(launch_config(), {"train": 10_000_000, "test": 10_000}) == []


@pytest.mark.slow
def test_a_launch_loses_both() -> None:
    trained = {"rho": 0.4, "mu": 0.894, "delta": 1e-6, "epsilon": 4.3, "epsilon_pld": 4.3}
    spent = {name: {"spend": counts(rho, 1e-6).model_dump()} for name, rho in (("count", 0.25), ("fine_tune", 0.4))}
    results = spent | {"fine_tune": trained | spent["fine_tune"]}
    both = spends.launch_loss(asked(), SimpleNamespace(result=results.__getitem__))
    assert both.rho == pytest.approx(0.65)
    assert both.epsilon == pytest.approx(epsilon_of_rho(0.65, 1e-6))
    assert both.epsilon_pld == pytest.approx(both.epsilon, abs=1e-3)
    alone = spends.launch_loss(launch_config(), SimpleNamespace(result=results.__getitem__))
    assert alone.model_dump() == trained | {"failure": 0.0}


def test_counts_alone_cost_what_counts_cost_and_may_take_all_of_the_ceiling(settings: Settings) -> None:
    alone = {"noise_multiplier": 1.0, "model": "counts"}
    policy = {**POLICY, "max_rho": 0.5}
    config = launch_config(counts=alone, policy=policy, private_text=MADE_UP)
    assert not config.trains
    assert asked().trains
    with pytest.raises(ValidationError, match=r"leaves nothing of policy.max_rho 0.5 for training"):
        launch_config(counts={**alone, "model": "mixture"}, policy=policy, private_text=MADE_UP)
    with pytest.raises(ValidationError, match=r"counts.noise_multiplier: 0.99 is rho 0.51\d* for a train device"):
        launch_config(counts={**alone, "noise_multiplier": 0.99}, policy=policy, private_text=MADE_UP)
    with pytest.raises(ValidationError, match=r"non_private_upper_bound: true, but with counts.model .counts."):
        launch_config(counts=alone, policy=policy, private_text=MADE_UP, ab_test={"non_private_upper_bound": True})
    assert spends.planned_training(config, run_folder(settings, "trial-x")) is None
    untrained = {"rho": 0.0, "mu": 0.0, "delta": 1e-6, "epsilon": 0.0, "epsilon_pld": 0.0, "spend": None}
    results = {"count": {"spend": counts(0.5, 1e-6).model_dump()}, "fine_tune": untrained}
    loss = spends.launch_loss(config, SimpleNamespace(result=results.__getitem__))
    assert loss.rho == 0.5
    assert loss.epsilon == pytest.approx(epsilon_of_rho(0.5, 1e-6))
    assert [row.stage for row in accesses(config) if row.covered and row.unit == "device"] == [
        "discover",
        "count",
        "audit",
        "audit_releases",
    ]


def test_counts_that_are_missing_leave_no_evidence(settings: Settings) -> None:
    class Run(RunDir):
        def result(self, stage: str) -> dict:
            if stage == "fine_tune":
                return {"rho": 0.1, "mu": 0.447, "delta": 1e-6, "epsilon": 2.0, "epsilon_pld": 2.0}
            raise StageInputMissing(stage)

    ctx = StageContext(asked(), Run(settings.runs_dir, "trial-x"), settings, "decide", None)
    found = decide.evidence(ctx)
    assert (found.rho, found.epsilon, found.epsilon_pld) == (None, None, None)
    assert json.loads(found.model_dump_json())["rho"] is None
