"""A launch that covers everything and its experiment, from the launch file to everybody or nobody."""

import json
from pathlib import Path

import pytest
import yaml

from pipeline.launch.config import launch_id, load_launch
from tests.helpers.launches.command import answered
from tests.helpers.launches.installed import installed, keyed
from tests.helpers.launches.tiny_launch import POLICY, write_launch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType.*:UserWarning"),
]
# Of two dozen test devices nothing could be told above real noise, nor of a model that differs from its start.
AMPLE = {"max_rho": 1e3, "population_max_rho": 1e3, "max_total_epsilon": 1e4, "population_max_words_epsilon": 1e5}


def test_a_launch_whose_every_use_is_covered_verifies(tmp_path: Path) -> None:
    file = write_launch(
        tmp_path,
        policy=POLICY | AMPLE | {"cover_everything": True},
        evaluation={"noise_multiplier": 0.05},
        ab_test={"buckets": 5, "session_words": 0},
        server={"learning_rate": 0.05},
    )
    launch = yaml.safe_load(file.read_text(encoding="utf-8"))
    launch["private_text"]["source"] = "made_up_files"
    file.write_text(yaml.safe_dump(launch), encoding="utf-8")
    installed(tmp_path, "made_up_files:tiny-clients")
    keyed(tmp_path / "runs", file)
    run_id = launch_id(load_launch(file))
    done = answered(tmp_path, "launch", str(file))
    assert done["decision"] == "launch", done
    public = tmp_path / "runs" / run_id / "public"
    stated = json.loads((public / "report" / "disclosure.json").read_text(encoding="utf-8"))
    assert not [row for row in stated["data_accesses"] if row["data"] == "private" and not row["covered"]]
    verified = answered(tmp_path, "verify", run_id)
    assert verified["ok"], [check for check in verified["checks"] if not check["passed"]]
