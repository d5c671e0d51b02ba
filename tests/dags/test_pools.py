"""The pools of a deployment: its file is refused with field, value and fix, or set in Airflow."""

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from dags import pools

from .conftest import ROOT

SHIPPED = json.loads((ROOT / "dags" / "pools.json").read_text(encoding="utf-8"))
CPU, GPU = SHIPPED["cpu"], SHIPPED["gpu"]
WRONG = {
    "{": "Expecting property name",
    "[]": "no pool cpu and gpu, which tasks name",
    json.dumps({"cpu": CPU}): "no pool gpu, which tasks name; add it in the form of dags/pools.json",
    json.dumps(SHIPPED | {"gpu": 2}): "gpu: 2 is no pool",
    json.dumps(SHIPPED | {"cpu": CPU | {"slots": "4"}}): "cpu.slots: '4'; write a whole number from 1",
    json.dumps(SHIPPED | {"cpu": CPU | {"slots": 0}}): "cpu.slots: 0; write a whole number from 1",
    json.dumps(SHIPPED | {"cpu": CPU | {"slots": True}}): "cpu.slots: True; write a whole number from 1",
    json.dumps(SHIPPED | {"cpu": CPU | {"slot": 4}}): "cpu.slot: no such field; a pool has slots, description",
    json.dumps(SHIPPED | {"cpu": {"description": ""}}): "cpu.slots: None; write a whole number from 1",
    json.dumps(SHIPPED | {"gpu": {"slots": 1}}): "gpu.description: None; write a text",
    json.dumps(SHIPPED | {"gpu": GPU | {"include_deferred": "no"}}): "gpu.include_deferred: 'no'; write true or false",
}


@pytest.mark.parametrize(("content", "said"), WRONG.items(), ids=range(len(WRONG)))
def test_a_wrong_file_is_refused(tmp_path: Path, content: str, said: str):
    file = tmp_path / "pools.json"
    file.write_text(content, encoding="utf-8")
    found = pools.problem(file)
    assert found.startswith(f"POOLS: {file}: ")
    assert said in found


def test_a_missing_file_is_named(tmp_path: Path):
    assert str(tmp_path / "none.json") in pools.problem(tmp_path / "none.json")


@pytest.mark.slow
def test_pools_of_a_deployment_are_airflow_s(tmp_path: Path, database: None):
    """Beside those that other tests use, with the same slots."""
    from airflow.models import Pool

    file = tmp_path / "pools.json"
    command = [sys.executable, str(ROOT / "dags" / "pools.py"), str(file)]
    file.write_text(json.dumps(SHIPPED | {"more": {"slots": 0, "description": ""}}), encoding="utf-8")
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (refused.returncode, "more.slots: 0" in refused.stderr) == (1, True)
    file.write_text(json.dumps(SHIPPED | {"more": {"slots": 7, "description": "ours"}}), encoding="utf-8")
    subprocess.run(command, check=True, capture_output=True)
    try:
        slots = {pool.pool: pool.slots for pool in Pool.get_pools()}
        assert slots == {"default_pool": 128, "cpu": CPU["slots"], "gpu": GPU["slots"], "more": 7}
    finally:
        Pool.delete_pool("more")


def test_one_gpu_holds_a_month_of_the_production_files_even_at_their_limits(dagbag, monkeypatch):
    from launch_file import read_launch_files
    from stage_task import STAGE_TIMEOUT

    monkeypatch.setenv("TACIT_LAUNCHES", str(ROOT / "dags" / "launches"))
    files = [launch for launch in read_launch_files() if launch.on_gpu]
    assert {launch.schedule for launch in files} == {"@monthly"}
    (each,) = {len(launch.on_gpu) * STAGE_TIMEOUT for launch in files}
    month = GPU["slots"] * timedelta(days=28)
    hours = [length // timedelta(hours=1) for length in (len(files) * each, month)]
    said = " ".join((ROOT / "docs" / "operations.md").read_text(encoding="utf-8").split())
    assert "the five files take {} of the {} hours".format(*hours) in said
    assert (len(files), month // each) == (5, 9)
    assert hours[0] <= hours[1]


def test_tasks_name_the_pools_that_are_required():
    assert SHIPPED.keys() == set(pools.NAMES)
