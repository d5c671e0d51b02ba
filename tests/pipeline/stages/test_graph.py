"""The list of stages: what is derived from it, that all it names is there, and that to read it is quick."""

import ast
import inspect
import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest

from pipeline.launch.config import LaunchConfig, load_launch
from pipeline.preflight.gains import forecast, measured_on, without_privacy
from pipeline.releases.uses import RELEASES
from pipeline.run import cache
from pipeline.run.run_dir import RunDir
from pipeline.run.stage import Stage, everything, imported, is_public, of_launch, view
from pipeline.stages import graph
from pipeline.stages.graph import STAGES
from tests.helpers.launches.checkout import ROOT
from tests.helpers.launches.pipeline_launch import launch_config

# Made by every launch anew: what later launches change, or what is of the launch's own key.
UNCACHED = {"plan", "fine_tune", "audit", "ab_test", "audit_releases", "decide", "report", "publish"}


def places(value: object) -> Iterator[str]:
    """Each ``module:function`` that a stage names."""
    if isinstance(value, str):
        yield from [value] if re.fullmatch(r"[\w.]+:\w+", value) else []
    elif is_dataclass(value):
        for field in fields(value):
            yield from places(getattr(value, field.name))
    elif inspect.isfunction(value):
        yield from places(inspect.getclosurevars(value).nonlocals.get("place", ""))


def test_edges_are_the_fewest_by_which_a_stage_waits_for_all_that_it_opens_and_follows() -> None:
    """By powers of a matrix; which they are, Airflow's file holds."""
    waits = np.array([[name in (*each.opens, *each.follows) for name in STAGES] for each in STAGES.values()])
    for _ in STAGES:
        waits |= waits @ waits
    assert [{*graph.before(name)} for name in STAGES] == [{*itertools.compress(STAGES, row)} for row in waits]
    fewest = waits & ~(waits @ waits)
    without = waits & ~np.array([graph.is_evidence(name) for name in STAGES])
    fewest |= without & ~(without @ without)  # and of those that hold no launch when they fail
    assert list(graph.edges().values()) == [list(itertools.compress(STAGES, row)) for row in fewest]


def test_nothing_is_spent_before_the_plan() -> None:
    """Although discovery opens nothing of it, so that words can be taken over by a launch with another plan."""
    assert all("plan" in graph.before(name) for name in graph.SPENDING)
    assert "plan" not in STAGES["discover"].opens


@pytest.mark.parametrize("field", ["needs", "may_need", "evidence", "follows"])
@pytest.mark.parametrize("other", ["report", "nowhere"])
def test_a_stage_that_stands_before_what_it_waits_for_is_refused(field: str, other: str) -> None:
    early = replace(STAGES["audit"], **{field: ("plan", other)})
    with pytest.raises(ValueError, match=f"audit: {other} must stand before it in the list of stages"):
        graph.require_order({**STAGES, "audit": early})


@pytest.mark.slow
def test_airflow_reads_what_the_list_says() -> None:
    command = [sys.executable, "-m", "pipeline.stages.graph"]
    written = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert written == (ROOT / "dags" / "stages.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["audit_releases", "decide", "report"])
def test_what_is_said_of_every_release_waits_for_every_release(name: str) -> None:
    """Under Airflow nothing else keeps a stage from a run beside the release that it audits, sums or tells of."""
    before = {release.stage for release in RELEASES}
    assert before <= {*STAGES[name].opens}
    assert before == set(graph.SPENDING)


def test_a_launch_is_decided_anew_when_the_block_of_a_release_changes() -> None:
    blocks = {release.block for release in RELEASES}
    assert all(blocks <= set(STAGES[name].reads(launch_config())) for name in ("plan", "decide", "report"))


@pytest.mark.parametrize("name", ["demo-en-US", "demo-en-US-counts", "de-DE"])
def test_the_report_declares_all_that_its_forecast_depends_on(name: str) -> None:
    config = load_launch(ROOT / "dags" / "launches" / f"{name}.yaml")
    seen = view(config, "report", STAGES)
    for told in (without_privacy, lambda each: forecast(each, 921), lambda each: measured_on(each, 921)):
        assert told(seen) == told(config)


def test_what_is_public_and_what_may_fail_is_derived() -> None:
    assert {name for name in STAGES if is_public(name, STAGES)} == {"ingest_public", "pretrain"}
    assert {name for name in STAGES if graph.is_evidence(name)} == {"audit", "ab_test", "audit_releases"}
    assert all(name == stage.name for name, stage in STAGES.items())


def test_a_launch_runs_all_but_what_it_did_not_ask_for() -> None:
    counting = launch_config(counts={"noise_multiplier": 2.0, "model": "network"})
    for config, blocks in ((launch_config(), {""}), (counting, {"", "counts"})):
        assert of_launch(config, STAGES) == tuple(name for name, stage in STAGES.items() if stage.block in blocks)
    assert {stage.block for stage in STAGES.values()} <= {"", *LaunchConfig.model_fields}


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
def test_all_that_a_stage_names_is_there(stage: Stage) -> None:
    assert stage.function.__name__ == stage.name
    for place in places(stage):
        assert callable(imported(place)), place
    assert len(cache.code_digest(ROOT, stage.code)) == 64
    assert all(cache.version_of(name) for name in stage.libraries)
    result = get_type_hints(stage.function)["return"]
    for each in get_args(result) or (result,):
        assert set(re.findall(r"{(\w+)", stage.line)) <= each.model_fields.keys(), "what a terminal shows of it"


def imports(place: str) -> set[str]:
    """Files of ``discovery`` that a file imports."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / place).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "discovery":
            names = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
            found |= {path for name in names if (ROOT / (path := name.replace(".", "/") + ".py")).is_file()}
    return found


def test_the_code_of_discovery_is_what_finds_words_without_what_filters_them() -> None:
    reached, queue = set(), ["pipeline/stages/discover.py"]
    while queue:
        more = imports(queue.pop()) - reached
        reached |= more
        queue += more
    code = STAGES["discover"].code
    assert "discovery/device/randomizer.py" in reached
    assert [place for place in reached if not any(place == each or place.startswith(f"{each}/") for each in code)] == []
    assert reached.isdisjoint({"discovery/filters.py", "discovery/review.py"})
    assert {"discovery", "discovery/filters.py", "discovery/review.py"}.isdisjoint(code)


def test_a_stage_is_given_the_fields_that_it_names() -> None:
    """All of the file stands beside the model in MLflow, is held against each key, and gives public figures again."""
    whole = {name for name, stage in STAGES.items() if stage.reads is everything}
    assert whole == {"audit_releases", "decide", "publish"}
    assert {name for name, stage in STAGES.items() if not stage.cached} >= UNCACHED


@pytest.mark.parametrize("file", sorted((ROOT / "dags" / "launches").glob("*.yaml")), ids=lambda path: path.stem)
def test_fields_that_stages_name_exist(file: Path) -> None:
    config = load_launch(file)
    content = config.model_dump(mode="json")
    for name in of_launch(config, STAGES):
        view(config, name, STAGES)
        for field in (*STAGES[name].reads(config), *STAGES[name].sees):
            value = content
            for part in field.split("."):
                value = value[part]


def test_places_are_found_wherever_a_stage_names_them() -> None:
    """Or the test above looks at none of them."""
    assert {
        "pipeline.stages.discover:discover",
        "pipeline.stages.identity:words",
        "pipeline.preflight.readiness:planned_discovery",
    } <= set(places(STAGES["discover"]))
    assert "pipeline.stages.comparison:compared_again" in places(STAGES["ab_test"])


@pytest.mark.parametrize("name", [name for name, stage in STAGES.items() if stage.block])
def test_a_stage_that_a_launch_leaves_out_reserves_nothing(name: str, tmp_path: Path) -> None:
    assert STAGES[name].planned(launch_config(), RunDir(tmp_path, "trial-1")) is None


@pytest.mark.slow
def test_to_read_the_list_is_to_import_nothing_that_computes() -> None:
    code = "import sys, pipeline.stages.graph; print(*{'torch', 'scipy', 'mlflow', 'sqlalchemy'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert found.split() == []
