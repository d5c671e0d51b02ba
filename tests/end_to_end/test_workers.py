"""Training by several processes and hosts, through the command line: lost, stopped and resumed."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from federated.rounds import state
from pipeline.ground import settings as settings_module
from pipeline.ground.errors import PermanentError
from pipeline.launch.config import load_launch
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run import runner
from pipeline.stages import ingest
from pipeline.stages.graph import STAGES
from tests.helpers.launches import gangs
from tests.helpers.launches.command import environment
from tests.helpers.launches.gangs import ROUNDS, THIS_MACHINE, copied, last_round, left_behind, run_here, workers_of
from tests.helpers.processes.forked import Forked

# Nine processes that have nothing to import; that real ones find each other is seen to in federated/test_workers.py.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_python")]


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A home in which everything before fine-tuning is done, and the launch's id."""
    home = tmp_path_factory.mktemp("planned")
    return home, gangs.planned(home)


@pytest.fixture(scope="module")
def expected(planned: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What one process leaves behind."""
    home, run_id = copied(planned[0], tmp_path_factory.mktemp("alone") / "one", workers=1), planned[1]
    run_here(home, run_id)
    made = left_behind(home, run_id)
    assert len(made["records"]) == ROUNDS
    return made


def start(forked: Forked, home: Path, run_id: str, log: Path, **told: str) -> subprocess.Popen:
    arguments = ["stage", "fine_tune", str(home / "tiny.yaml"), "--id", run_id, "--json"]
    variables = environment(home) | told
    with log.open("w") as errors:
        return subprocess.Popen(
            [forked.tacit, *arguments], cwd=home, env=variables, stdout=subprocess.PIPE, stderr=errors, text=True
        )


def wait_for(true: Callable[[], bool], seconds: float = 300.0) -> None:
    ended = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ended, "nothing happened"
        time.sleep(0.005)


def test_two_workers_lost_stopped_and_gone_on_with_give_the_bits_of_one(
    planned, expected, tmp_path: Path, forked: Forked
) -> None:
    run_id = planned[1]
    home, log = copied(planned[0], tmp_path / "two", 2), tmp_path / "log"

    first = start(forked, home, run_id, log)
    wait_for(lambda: last_round(home, run_id) >= 3 or first.poll() is not None)
    os.kill(workers_of(home)[1], signal.SIGKILL)
    answer, _ = first.communicate(timeout=300)
    assert first.returncode == 75, log.read_text()
    assert json.loads(answer)["exit_code"] == 75
    assert "one of 2 workers was lost" in json.loads(answer)["error"]
    assert "fine_tune: round 1, rounds 60" in log.read_text(), "worker 0 tells of its progress"
    reached = last_round(home, run_id)
    assert 3 <= reached < ROUNDS
    assert not workers_of(home)

    second = start(forked, home, run_id, log)
    wait_for(lambda: last_round(home, run_id) > reached or second.poll() is not None)
    assert set(workers_of(home)) == {-1, 0, 1}
    second.terminate()
    second.communicate(timeout=300)
    assert second.returncode == -signal.SIGTERM
    wait_for(lambda: not workers_of(home))
    assert reached < last_round(home, run_id) < ROUNDS

    run_here(home, run_id)
    found = left_behind(home, run_id)
    for name, made in expected.items():
        assert found[name] == made, name


def test_two_hosts_lost_killed_and_resumed_give_the_bits_of_one_process(
    planned, expected, tmp_path: Path, forked: Forked
) -> None:
    """Two addresses of this machine, two workers each: a worker is killed, then the stage, then nobody."""
    home, run_id, log = copied(planned[0], tmp_path / "hosts", workers=2, hosts=2), planned[1], tmp_path / "log"
    lost = start(forked, home, run_id, log, TACIT_GANG=THIS_MACHINE)
    wait_for(lambda: last_round(home, run_id) >= 3 or lost.poll() is not None)
    os.kill(workers_of(home)[3], signal.SIGKILL)
    answer, _ = lost.communicate(timeout=300)
    assert lost.returncode == 75, log.read_text()
    assert "one of 4 workers was lost" in json.loads(answer)["error"]
    wait_for(lambda: not workers_of(home))  # the other host's end a moment after their launcher
    reached = last_round(home, run_id)
    assert 3 <= reached < ROUNDS

    killed = start(forked, home, run_id, log, TACIT_GANG=THIS_MACHINE)
    wait_for(lambda: last_round(home, run_id) > reached or killed.poll() is not None)
    assert workers_of(home).keys() == {-1, 0, 1, 2, 3}
    killed.kill()
    killed.communicate(timeout=300)
    wait_for(lambda: not workers_of(home))  # nobody is left who would end them
    assert reached < last_round(home, run_id) < ROUNDS

    run_here(home, run_id, TACIT_GANG=THIS_MACHINE)
    found = left_behind(home, run_id)
    for name, made in expected.items():
        assert found[name] == made, name
    ledger = PrivacyLedger(settings_module.load({"TACIT_HOME": str(home)}).ledger_url)
    assert [entry.kind for entry in ledger.spends() if entry.stage == "fine_tune"] == ["reserve", "commit"]


def test_workers_share_the_devices_of_an_ingest(planned, tmp_path: Path, monkeypatch) -> None:
    """Text is read once more, to the same store, and later launches would find it as that of one process."""
    home, run_id = copied(planned[0], tmp_path / "home", workers=2), planned[1]
    run = home / "runs" / run_id
    private, record = run / "private" / "ingest_private", run / "public" / "ingest_private" / "result.json"
    before, told = bytes_below(private / "store"), json.loads(record.read_text(encoding="utf-8"))
    shutil.rmtree(private / "store")
    record.unlink()
    monkeypatch.setattr(ingest, "SMALL_BYTES", 1)
    here = settings_module.load({"TACIT_HOME": str(home)})
    runner.run_stage("ingest_private", load_launch(home / "tiny.yaml"), run_id, here, STAGES)
    assert bytes_below(private / "store") == before
    again = json.loads(record.read_text(encoding="utf-8"))
    for name in ("result", "content", "outputs", "config_digest"):
        assert again[name] == told[name], name
    left = {path.name for path in private.iterdir()}
    assert left == {"store", ".lock", ".manifest.json", ".window.json"}, "no key, no piece"


def bytes_below(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_what_no_retry_can_mend_is_permanent(planned, tmp_path: Path) -> None:
    run_id = planned[1]
    home = copied(planned[0], tmp_path / "home", 2)
    rounds = home / "runs" / run_id / "private" / "fine_tune" / "rounds"
    rounds.mkdir(parents=True)
    # As another launch would have left it.
    state.write_checkpoint(state.Checkpoint(1, "another run", {}, [], {}), rounds)
    config, here = load_launch(home / "tiny.yaml"), settings_module.load({"TACIT_HOME": str(home)})
    with pytest.raises(PermanentError, match="holds a checkpoint of a run with other settings"):
        runner.run_stage("fine_tune", config, run_id, here, STAGES)
    assert not workers_of(home)
