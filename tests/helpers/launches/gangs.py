"""A launch whose training is shared by a gang: the state before it, its processes, and what it leaves behind."""

import json
import shutil
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import numpy as np
import yaml

from pipeline.ground import settings as settings_module
from pipeline.launch.config import launch_id, load_launch
from pipeline.run import runner
from pipeline.run.stage import stage_key
from pipeline.stages.graph import STAGES
from tests.helpers.launches.installed import installed
from tests.helpers.launches.tiny_launch import write_launch

GANGS = Path(__file__).resolve().parents[3] / "docker" / "gang"
THIS_MACHINE = f"bash {GANGS / 'this_machine'} {{hosts}} {{command}}"
SLURM = f"sh {GANGS / 'slurm'} {{hosts}} {{command}}"
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
    "max_rho": 1e3,
    "max_total_epsilon": 1e5,
    "population_delta": 1e-4,
    "population_max_rho": 1e3,
    "population_max_words_epsilon": 1e5,
    "max_discovery_epsilon0": 8.0,
    "min_canary_rank": 1,
    "min_variety": 0.0,
    "min_ngram_gain": -1.0,
    "min_top1_gain": -1.0,
}
RUNTIME = {"chunk_devices": 4, "checkpoint_every_rounds": 1, "evaluate_every_rounds": 20}


def planned(home: Path) -> str:
    """Run everything before training in a home, and draw training's key; returns the launch's id.

    Every copy of this home adds the same noise.
    """
    config = load_launch(write_launch(home, mechanism=MECHANISM, policy=POLICY, runtime=RUNTIME))
    here, run_id = settings_module.load({"TACIT_HOME": str(home)}), launch_id(config)
    installed(home, config.population)
    for name in takewhile(lambda name: name != "fine_tune", STAGES):
        runner.run_stage(name, config, run_id, here, STAGES)
    stage_key(config, runner.open_run(config, run_id, here), "fine_tune")
    return run_id


def copied(source: Path, home: Path, workers: int, hosts: int = 1) -> Path:
    """A home like another one, whose training has so many workers on each of so many hosts."""
    shutil.copytree(source, home, dirs_exist_ok=True)
    file = home / "tiny.yaml"
    raw = yaml.safe_load(file.read_text(encoding="utf-8"))
    raw["runtime"] |= {"workers": workers, "hosts": hosts}
    file.write_text(yaml.safe_dump(raw), encoding="utf-8")
    return home


def run_here(home: Path, run_id: str, **variables: str) -> None:
    """Training by this process, or by what it starts."""
    here = settings_module.load({"TACIT_HOME": str(home), **variables})
    runner.run_stage("fine_tune", load_launch(home / "tiny.yaml"), run_id, here, STAGES)


@dataclass(frozen=True)
class Member:
    """A process of a gang; host -1 is the installation's command, rank -1 a host's ``torchrun``."""

    process: int
    host: int
    rank: int


def members(home: Path) -> list[Member]:
    """Processes of a gang at work under a home; of the scripts that the forks of tests end with."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command, words = (path / "cmdline").read_bytes(), (path / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # ended meanwhile
        if b"pipeline.stages.training.fine_tune_workers" not in command or str(home).encode() not in command:
            continue
        variables = dict(word.split(b"=", 1) for word in words if b"=" in word)
        rank = -1 if b"torch.distributed.run" in command else int(variables.get(b"RANK", b"-1"))
        found.append(Member(int(path.name), int(variables.get(b"PET_NODE_RANK", b"-1")), rank))
    return found


def workers_of(home: Path) -> dict[int, int]:
    """Process id of each rank at work under a home, a launcher as rank -1."""
    return {member.rank: member.process for member in members(home)}


def last_round(home: Path, run_id: str) -> int:
    """The round of the newest checkpoint; 0 before the first."""
    folder = home / "runs" / run_id / "private" / "fine_tune" / "rounds"
    return max((int(path.stem[6:]) for path in folder.glob("round-*.ckpt")), default=0)


def left_behind(home: Path, run_id: str) -> dict[str, object]:
    """What training made, without times."""
    public, private = (home / "runs" / run_id / half / "fine_tune" for half in ("public", "private"))
    record = json.loads((public / "result.json").read_text(encoding="utf-8"))
    with np.load(private / "audit.npz") as file:
        audit = {name: file[name].tobytes() for name in file.files}
    # A hidden one is what a killed worker was about to write; while its zombie waits for its parent, it stays.
    records = {path.name: path.read_bytes() for path in (private / "rounds" / "participation.parquet").glob("[!.]*")}
    return {"result": record["result"], "outputs": record["outputs"], "audit": audit, "records": records}
