"""Training by several processes and hosts, through the command line: lost, stopped and resumed."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest
import yaml

from federated.rounds import state
from pipeline.ground import settings as settings_module
from pipeline.ground.errors import PermanentError
from pipeline.launch.config import launch_id, load_launch
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run import runner
from pipeline.stages import ingest
from pipeline.stages.graph import STAGES
from tests.helpers.launches.command import environment
from tests.helpers.launches.installed import installed
from tests.helpers.launches.tiny_launch import write_launch
from tests.helpers.processes.forked import Forked

# Nine processes that have nothing to import; that real ones find each other is seen to in federated/test_workers.py.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_python")]

ROUNDS = 60
MECHANISM = {
    "kind": "tree",
    "noise_multiplier": 4.0,
    "clip_norm": 0.3,
    "rounds": ROUNDS,
    "report_goal": 12,
    "min_sep": 2,
    "max_participations": 30,
    "delta": 1e-6,
    "randomness": "secure",
}
POLICY = {
    "max_rho": 1e4,
    "max_total_epsilon": 1e5,
    "population_delta": 1e-4,
    "population_max_rho": 1e4,
    "population_max_epsilon": 1e5,
    "max_discovery_epsilon0": 8.0,
    "min_canary_rank": 1,
    "min_variety": 0.0,
    "min_ngram_gain": -1.0,
    "min_top1_gain": -1.0,
}
HOSTS = f"bash {Path(__file__).parents[2] / 'docker' / 'gang' / 'this_machine'} {{hosts}} {{command}}"
RUNTIME = {"chunk_devices": 4, "checkpoint_every_rounds": 1, "evaluate_every_rounds": 20}


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A home in which everything before fine-tuning is done, and the launch's id."""
    home = tmp_path_factory.mktemp("planned")
    config = load_launch(write_launch(home, mechanism=MECHANISM, policy=POLICY, runtime=RUNTIME))
    here, run_id = settings_module.load({"TACIT_HOME": str(home)}), launch_id(config)
    installed(home, config.population)
    for name in takewhile(lambda name: name != "fine_tune", STAGES):
        runner.run_stage(name, config, run_id, here, STAGES)
    # The key is drawn now: every copy of this home adds the same noise.
    runner.stage_key(config, runner.open_run(config, run_id, here), "fine_tune")
    return home, run_id


@pytest.fixture(scope="module")
def expected(planned: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What one process leaves behind."""
    home, run_id = copied(planned, tmp_path_factory.mktemp("alone") / "one", workers=1), planned[1]
    run_here(home, run_id)
    made = left_behind(home, run_id)
    assert len(made["records"]) == ROUNDS
    return made


def copied(planned: tuple[Path, str], home: Path, workers: int, hosts: int = 1) -> Path:
    shutil.copytree(planned[0], home)
    file = home / "tiny.yaml"
    raw = yaml.safe_load(file.read_text(encoding="utf-8"))
    raw["runtime"] |= {"workers": workers, "hosts": hosts}
    file.write_text(yaml.safe_dump(raw), encoding="utf-8")
    return home


def run_here(home: Path, run_id: str, **variables: str) -> None:
    """Fine-tuning by this process, or by what it starts."""
    here = settings_module.load({"TACIT_HOME": str(home), **variables})
    runner.run_stage("fine_tune", load_launch(home / "tiny.yaml"), run_id, here, STAGES)


def start(forked: Forked, home: Path, run_id: str, log: Path, **told: str) -> subprocess.Popen:
    arguments = ["stage", "fine_tune", str(home / "tiny.yaml"), "--id", run_id, "--json"]
    variables = environment(home) | told
    with log.open("w") as errors:
        return subprocess.Popen(
            [forked.tacit, *arguments], cwd=home, env=variables, stdout=subprocess.PIPE, stderr=errors, text=True
        )


def workers_of(home: Path) -> dict[int, int]:
    """Process id of each rank at work under this home, launchers as rank -1; of the scripts that the forks end with."""
    found = {}
    for path in Path("/proc").iterdir():
        if not path.name.isdecimal():
            continue
        try:
            command, variables = (path / "cmdline").read_bytes(), (path / "environ").read_bytes()
        except OSError:
            continue  # ended meanwhile
        if b"pipeline.stages.training.fine_tune_workers" in command and str(home).encode() in command:
            rank = [value for value in variables.split(b"\0") if value.startswith(b"RANK=")]
            found[int(rank[0][5:]) if rank and b"torch.distributed.run" not in command else -1] = int(path.name)
    return found


def wait_for(true: Callable[[], bool], seconds: float = 300.0) -> None:
    ended = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ended, "nothing happened"
        time.sleep(0.005)


def last_round(home: Path, run_id: str) -> int:
    folder = home / "runs" / run_id / "private" / "fine_tune" / "rounds"
    return max((int(path.stem[6:]) for path in folder.glob("round-*.ckpt")), default=0)


def left_behind(home: Path, run_id: str) -> dict[str, object]:
    """What fine-tuning made, without times."""
    public, private = (home / "runs" / run_id / half / "fine_tune" for half in ("public", "private"))
    record = json.loads((public / "result.json").read_text(encoding="utf-8"))
    with np.load(private / "audit.npz") as file:
        audit = {name: file[name].tobytes() for name in file.files}
    # A hidden one is what a killed worker was about to write; while its zombie waits for its parent, it stays.
    records = {path.name: path.read_bytes() for path in (private / "rounds" / "participation.parquet").glob("[!.]*")}
    return {"result": record["result"], "outputs": record["outputs"], "audit": audit, "records": records}


def test_two_workers_lost_stopped_and_gone_on_with_give_the_bits_of_one(
    planned, expected, tmp_path: Path, forked: Forked
) -> None:
    run_id = planned[1]
    home, log = copied(planned, tmp_path / "two", 2), tmp_path / "log"

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
    home, run_id, log = copied(planned, tmp_path / "hosts", workers=2, hosts=2), planned[1], tmp_path / "log"
    lost = start(forked, home, run_id, log, TACIT_GANG=HOSTS)
    wait_for(lambda: last_round(home, run_id) >= 3 or lost.poll() is not None)
    os.kill(workers_of(home)[3], signal.SIGKILL)
    answer, _ = lost.communicate(timeout=300)
    assert lost.returncode == 75, log.read_text()
    assert "one of 4 workers was lost" in json.loads(answer)["error"]
    wait_for(lambda: not workers_of(home))  # the other host's end a moment after their launcher
    reached = last_round(home, run_id)
    assert 3 <= reached < ROUNDS

    killed = start(forked, home, run_id, log, TACIT_GANG=HOSTS)
    wait_for(lambda: last_round(home, run_id) > reached or killed.poll() is not None)
    assert workers_of(home).keys() == {-1, 0, 1, 2, 3}
    killed.kill()
    killed.communicate(timeout=300)
    wait_for(lambda: not workers_of(home))  # nobody is left who would end them
    assert reached < last_round(home, run_id) < ROUNDS

    run_here(home, run_id, TACIT_GANG=HOSTS)
    found = left_behind(home, run_id)
    for name, made in expected.items():
        assert found[name] == made, name
    ledger = PrivacyLedger(settings_module.load({"TACIT_HOME": str(home)}).ledger_url)
    assert [entry.kind for entry in ledger.spends() if entry.stage == "fine_tune"] == ["reserve", "commit"]


def test_workers_share_the_devices_of_an_ingest(planned, tmp_path: Path, monkeypatch) -> None:
    """Text is read once more, to the same store, and later launches would find it as that of one process."""
    home, run_id = copied(planned, tmp_path / "home", workers=2), planned[1]
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
    home = copied(planned, tmp_path / "home", 2)
    rounds = home / "runs" / run_id / "private" / "fine_tune" / "rounds"
    rounds.mkdir(parents=True)
    # As another launch would have left it.
    state.write_checkpoint(state.Checkpoint(1, "another run", {}, [], {}), rounds)
    config, here = load_launch(home / "tiny.yaml"), settings_module.load({"TACIT_HOME": str(home)})
    with pytest.raises(PermanentError, match="holds a checkpoint of a run with other settings"):
        runner.run_stage("fine_tune", config, run_id, here, STAGES)
    assert not workers_of(home)
