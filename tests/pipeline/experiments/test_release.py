"""A published launch that covers everything: the one release of its experiment, and what must not release more."""

import hashlib
import json
import shutil
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from evaluation.live import logs, noisy
from federated.counts import bounded_sum
from pipeline.experiments import decide as live
from pipeline.experiments import release as releasing
from pipeline.ground import settings as settings_module
from pipeline.ground.errors import BudgetExceeded, LedgerConflict, ReleaseRefused
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.registry import Registry
from pipeline.releases.uses import uncovered
from pipeline.run.run_dir import KEY
from pipeline.verify.launch import verify
from tests.helpers.audits.live_logs import device_logs, written
from tests.helpers.launches.command import answered
from tests.helpers.launches.publishable import NAME
from tests.helpers.launches.trial import Trial, second_launch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType.*:UserWarning"),
]
BLOCK = {"share": 0.25, "days": 2, "min_gain": -0.02, "noise_multiplier": 2.0}
COVERED = {"experiment": BLOCK, "policy": {"cover_everything": True}, "evaluation": {"noise_multiplier": 2.0}}


@pytest.fixture(scope="module")
def begun(tracking_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return second_launch(tracking_database, tmp_path_factory.mktemp("experiment"), **COVERED)


@pytest.fixture
def trial(begun: Trial, tmp_path: Path) -> Trial:
    """A copy of it, to end."""
    shutil.copytree(begun.settings.home / "runs", tmp_path / "runs")
    return Trial(settings_module.load({"TACIT_HOME": str(tmp_path)}), begun.run_id)


def logs_of(trial: Trial, *, more_picks: float = 1.5, devices: int = 6000, seed: int = 0) -> pa.Table:
    return device_logs(
        devices, BLOCK["days"], seed, share=BLOCK["share"], more_picks=more_picks, first=trial.tried.first
    )


def file_of(trial: Trial, table: pa.Table, name: str = "logs") -> list[str]:
    return [str(written(table, trial.settings.experiment_logs / trial.run_id / f"{name}.parquet"))]


def spent(trial: Trial) -> list[tuple[str, float | None, str]]:
    return [(entry.kind, entry.rho, entry.split) for entry in trial.ledger.entries() if entry.stage == "experiment"]


def test_a_better_model_becomes_everybody_s_once_and_every_device_bears_the_loss(trial: Trial):
    assert uncovered(trial.config) == ()
    files = file_of(trial, logs_of(trial))
    done = trial.decide(files)
    assert done.decision == "promote", done.reasons
    assert trial.alias("champion") == 2
    assert spent(trial) == [("reserve", 0.125, "every"), ("commit", 0.125, "every")]
    change = next(row for row in done.look.differences if row.metric == "prate").relative
    assert change["low"] < 0.5 < change["high"]
    assert [verdict.passed for verdict in done.look.audit.verdicts] == [True] * 4
    assert {gate.id for gate in done.look.gates} == {
        *("live_audit", "live_days", "live_devices", "live_split", "live_control", "live_gain", "live_guardrails"),
    }
    # A repeated decision, with any logs, changes nothing.
    count = len(trial.ledger.entries())
    assert trial.decide(file_of(trial, logs_of(trial, more_picks=0.5), "others"), by="bo") == done
    assert len(trial.ledger.entries()) == count
    about = trial.config, trial.run, trial.settings, ("files", "ledger", "tracked")
    checked = {check.id: check.passed for check in verify(*about) if "experiment" in check.id}
    assert checked == {
        "experiment": True,
        "private:experiment": True,
        "spend:experiment": True,
        "tracked:experiment": True,
    }


def test_a_worse_model_is_taken_back(trial: Trial):
    done = trial.decide(file_of(trial, logs_of(trial, more_picks=0.5)))
    assert done.decision == "roll back"
    assert [gate.id for gate in done.look.gates if not gate.passed] == ["live_gain"]
    assert trial.alias("champion") == 1


def test_what_leaves_follows_from_the_released_sums_alone(trial: Trial):
    table = logs_of(trial)
    done = trial.decide(file_of(trial, table))
    released = json.loads((trial.run.path / "private" / "experiment" / "released.json").read_text(encoding="utf-8"))
    arms = noisy.read(np.array(released["sums"]), ("NWP",), BLOCK["days"], BLOCK["noise_multiplier"])
    again = noisy.compare(arms, ("NWP",), BLOCK["share"])
    assert [row.relative["value"] for row in done.look.differences] == [row.relative.value for row in again.differences]
    assert [row.denominator for row in done.look.arms] == [row.denominator for row in again.arms]
    assert (done.look.treated_units, done.look.units) == (again.ratio.treated, again.ratio.units)
    treated = pc.sum(pc.equal(table["arm"], "treatment")).as_py() // BLOCK["days"]
    assert (treated, len(table) // BLOCK["days"]) != (done.look.treated_units, done.look.units)
    assert done.look.logged_until is None


def test_another_export_under_one_reservation_is_refused(trial: Trial, monkeypatch: pytest.MonkeyPatch):
    """The difference of both would have no noise."""
    table = logs_of(trial)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(live, "write_down", killed)
        with pytest.raises(KeyboardInterrupt):
            trial.decide(file_of(trial, table))
    rest = table.filter(pc.not_equal(table["device"], "d0"))
    with pytest.raises(ReleaseRefused, match="is bound to other files"):
        trial.decide(file_of(trial, rest, "rest"))
    with monkeypatch.context() as patched:
        patched.setattr(PrivacyLedger, "reserved", lambda *_: None)
        with pytest.raises(LedgerConflict, match="the logs changed since"):
            trial.decide(file_of(trial, rest, "rest"))
    # A retry with the same rows in files of other names is the same release.
    sums = json.loads((trial.run.path / "private" / "experiment" / "released.json").read_text())["sums"]
    assert trial.decide(file_of(trial, table, "renamed")).decision == "promote"
    assert json.loads((trial.run.path / "private" / "experiment" / "released.json").read_text())["sums"] == sums
    assert [kind for kind, *_ in spent(trial)] == ["reserve", "commit"]


def test_no_digest_of_the_logs_that_leaves_can_be_made_without_the_key(trial: Trial):
    """Whoever knows the rows of all devices but one could test guesses of its rows against a plain one."""
    files = file_of(trial, logs_of(trial, devices=300))
    trial.decide(files)
    plain = logs.digest(Path(files[0]))
    public = (trial.run.path / "public" / "experiment" / "result.json").read_text(encoding="utf-8")
    entries = "".join(entry.model_dump_json() for entry in trial.ledger.entries())
    assert plain not in public + entries
    stated = trial.tried.ended.logs
    keyed = {
        releasing.bound_digest(key, [plain]) for key in (bytes(32), hashlib.sha256(trial.run_id.encode()).digest())
    }
    assert keyed.isdisjoint(stated)
    assert stated == (releasing.bound_digest((trial.run.path / "private" / "experiment" / KEY).read_bytes(), [plain]),)
    assert stated[0] in entries


def test_logs_are_not_read_before_their_loss_is_reserved(trial: Trial, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(PrivacyLedger, "reserve", lambda *_, **__: (_ for _ in ()).throw(BudgetExceeded("no room")))
    monkeypatch.setattr(releasing.devices, "read", lambda *_: pytest.fail("read before the reservation"))
    with pytest.raises(BudgetExceeded, match="no room"):
        trial.decide(file_of(trial, logs_of(trial, devices=100)))
    assert trial.tried.ended is None


def test_a_damaged_file_gives_the_reservation_back(trial: Trial):
    table = logs_of(trial)
    (file,) = file_of(trial, table)
    content = bytearray(Path(file).read_bytes())
    content[200:2000] = bytes(1800)
    Path(file).write_bytes(bytes(content))
    with pytest.raises(ValueError, match="damaged or cut short"):
        trial.decide([file])
    assert [kind for kind, *_ in spent(trial)] == ["reserve", "release"]
    assert trial.decide(file_of(trial, table)).decision == "promote"
    assert [kind for kind, *_ in spent(trial)] == ["reserve", "release", "reserve 2", "commit"]


def test_a_file_twice_and_logs_of_buckets_are_refused_before_a_spend(trial: Trial):
    files = file_of(trial, logs_of(trial, devices=100))
    with pytest.raises(ValueError, match="is a copy of"):
        trial.decide([*files, *file_of(trial, logs_of(trial, devices=100), "again")])
    with pytest.raises(ValueError, match="column 'device' is missing"):
        trial.decide(trial.logged())
    assert spent(trial) == []


@pytest.mark.parametrize("fault", ["no noise", "a device twice", "no bound", "other sums"])
def test_a_release_with_a_fault_rolls_back_and_shows_no_metric(
    trial: Trial, fault: str, monkeypatch: pytest.MonkeyPatch
):
    make = bounded_sum.make

    def faulty(contributions, noise_of, bound, finish):
        if fault == "a device twice":
            each = list(contributions)
            contributions = [*each, each[0]]
        if fault == "no noise":
            drawn = noise_of
            noise_of = lambda: 0 * drawn()  # noqa: E731
        if fault == "no bound":
            bound = lambda vector: (vector[0], (vector[1] * (2.0**44 / 1.7677669529663689)).astype("int64"))  # noqa: E731
        return make(contributions, noise_of, bound, finish)

    if fault != "other sums":
        monkeypatch.setattr(bounded_sum, "make", faulty)
    else:
        write = releasing.write_text

        def changed(path: Path, text: str, mode: int) -> None:
            content = json.loads(text)
            content["sums"][0] += 1.0
            write(path, json.dumps(content), mode)

        monkeypatch.setattr(releasing, "write_text", changed)
    done = trial.decide(file_of(trial, logs_of(trial)))
    assert done.decision == "roll back"
    assert [gate.id for gate in done.look.gates] == ["live_audit"]
    assert (done.look.arms, done.look.differences, done.look.units) == ((), (), None)
    assert trial.alias("champion") == 1


def test_a_device_less_in_the_logs_after_the_release_is_noticed(trial: Trial, monkeypatch: pytest.MonkeyPatch):
    """Whoever replaces the files between release and audit."""
    table = logs_of(trial)
    files, reading = file_of(trial, table), releasing.audited

    def swapped(*about: object) -> object:
        file_of(trial, table.filter(pc.not_equal(table["device"], "d0")))
        return reading(*about)

    monkeypatch.setattr(releasing, "audited", swapped)
    done = trial.decide(files)
    assert {verdict.name for verdict in done.look.audit.verdicts if not verdict.passed} == {"logs", "sum"}


def test_an_arm_or_a_day_below_the_noise_gets_nobody_the_model(trial: Trial):
    few = logs_of(trial, devices=40)
    done = trial.decide(file_of(trial, few))
    failed = {gate.id for gate in done.look.gates if not gate.passed}
    assert {"live_days", "live_devices", "live_gain", "live_guardrails"} <= failed
    assert "live_audit" not in failed


def test_a_lost_day_and_a_lost_part_of_an_arm_are_seen_through_the_noise(trial: Trial):
    table = logs_of(trial, devices=8000)
    second = trial.tried.first + timedelta(days=1)
    lost = pc.and_(pc.equal(table["day"], second), pc.equal(table["arm"], "treatment"))
    done = trial.decide(file_of(trial, table.filter(pc.invert(lost))))
    assert {gate.id: gate.passed for gate in done.look.gates}["live_days"] is False


def test_a_lost_part_of_an_arm_is_seen_through_the_noise(trial: Trial):
    table = logs_of(trial, devices=8000)
    number = pc.cast(pc.utf8_slice_codeunits(table["device"], 1), pa.int64())
    lost = pc.and_(pc.less(number, 1000), pc.equal(table["arm"], "treatment"))
    done = trial.decide(file_of(trial, table.filter(pc.invert(lost))))
    assert {gate.id: gate.passed for gate in done.look.gates}["live_split"] is False


def test_ab_shows_the_release_and_nothing_before_it(trial: Trial):
    home = trial.settings.home
    files = file_of(trial, logs_of(trial))
    refused = answered(home, "ab", trial.run_id, "--logs", files[0], code=65)
    assert f"tacit experiment decide {trial.run_id}" in json.dumps(refused)
    assert spent(trial) == []
    done = answered(home, "experiment", "decide", trial.run_id, "--logs", files[0])
    others = file_of(trial, logs_of(trial, more_picks=0.5), "others")
    look = answered(home, "ab", trial.run_id, "--logs", others[0])
    assert look["differences"] == done["look"]["differences"]


def test_simulated_typists_make_logs_of_devices_that_decide(trial: Trial):
    home = trial.settings.home
    made = answered(home, "experiment", "simulate", trial.run_id)["files"]
    assert len(made) == 2
    done = live.decide(trial.config, trial.run, trial.settings, (), "ana")
    gates = {gate.id: gate.passed for gate in done.look.gates}
    assert done.look.simulated
    assert {"live_audit", "live_days", "live_devices", "live_split", "live_control"} <= {
        name for name, passed in gates.items() if passed
    }
    assert Registry(trial.settings).alias(NAME, "experiment") is None
    assert (trial.run.path / "private" / "experiment" / KEY).is_file()
