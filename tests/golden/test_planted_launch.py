"""A whole launch whose one noise generator gives nothing: maker and generator agree, and each release is held."""

import json
from pathlib import Path

import pytest

from tests.golden import seeded_launch
from tests.helpers.launches.installed import installed

NO_NOISE = """
import numpy
from pretrain.randomness import noise
noise.gaussian = lambda key, stream, index, size: numpy.zeros(size)
"""


@pytest.mark.slow
def test_a_launch_without_noise_is_held_for_each_of_its_releases(tmp_path: Path) -> None:
    seeded_launch.write_data(tmp_path)
    installed(tmp_path, seeded_launch.population("central"))
    file = seeded_launch.write_launch(tmp_path, "central")
    done = seeded_launch.tacit(Path(__file__).parents[2], tmp_path, ["launch", file.name], fault=NO_NOISE)
    assert not done.returncode, done.stderr
    run = seeded_launch.run_of(tmp_path, "central")

    def result(stage: str) -> dict:
        return json.loads((run / "public" / stage / "result.json").read_text(encoding="utf-8"))["result"]

    wrong = {
        audit["stage"]: {verdict["name"] for verdict in audit["verdicts"] if not verdict["passed"]}
        for audit in result("audit_releases")["release_audits"]
    }
    assert wrong["discover"] >= {"weights", "total", "forms"}
    assert wrong["count"] == wrong["ab_test"] == {"sum"}
    decided = result("decide")
    assert decided["decision"] == "hold"
    assert "release_audits" in {gate["id"] for gate in decided["gates"] if not gate["passed"]}
