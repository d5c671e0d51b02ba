"""A launch that is held says why, what it spent, and what to do next; its exit code is its own."""

from pathlib import Path

import pytest

from pipeline.ground.errors import HELD
from pipeline.ground.settings import Settings
from pipeline.launch.policy import PolicyConfig
from pipeline.publication.gates.decide import decide
from pipeline.publication.gates.evidence import Evidence
from pipeline.publication.gates.words import GATES, words_of
from tests.helpers.launches.command import answered, ended
from tests.helpers.launches.decided import RHO, decided_launch
from tests.helpers.launches.pipeline_launch import RAW, write_launch


@pytest.mark.slow
def test_a_launch_that_is_held_ends_with_a_code_of_its_own_and_says_what_it_cost(tracked: Settings, tmp_path: Path):
    _, run_id = decided_launch(tracked, "hold", until="publish")
    file = str(write_launch(tmp_path))
    answer = answered(tracked.home, "launch", file, code=HELD)
    assert (answer["launch_id"], answer["state"]) == (run_id, "held")
    gates = {gate["id"]: gate for gate in answer["failed_gates"]}
    assert gates["utility"]["field"] == "policy.min_top1_gain"
    assert gates["budget"]["threshold"] == RAW["policy"]["max_rho"]
    assert gates["budget"]["value"] is None, "nobody has any evidence"
    assert answer["spent"] == [{"stage": "fine_tune", "unit": "device", "amount": RHO, "kind": "commit"}]
    assert words_of("utility").fix in answer["next"]
    assert "another launch" in answer["next"][-1]
    text = ended("launch", file, code=HELD, variables=home(tracked)).stdout
    assert f"launch {run_id}: held" in text
    assert f"spent:   rho {RHO} by fine_tune" in text
    assert f"next:    {words_of('utility').fix}" in text
    again = answered(tracked.home, "status", file)
    assert {name: again[name] for name in ("failed_gates", "spent", "left", "next")} == {
        name: answer[name] for name in ("failed_gates", "spent", "left", "next")
    }


@pytest.mark.slow
def test_a_launch_that_passed_ends_with_0(tracked: Settings, tmp_path: Path):
    decided_launch(tracked, "launch", until="publish")
    answer = answered(tracked.home, "launch", str(write_launch(tmp_path)))
    assert "failed_gates" not in answer


def home(here: Settings) -> dict[str, str | None]:
    return {"TACIT_HOME": str(here.home), "MLFLOW_TRACKING_URI": None}


def test_every_gate_has_words_and_all_words_are_of_a_gate():
    every = {
        "budget": {"rho": 1.0, "epsilon": 1e6, "days": 1},
        "population_max_rho": 1.0,
        "population_max_epsilon": 9.0,
        "max_total_epsilon": 9.0,
        "population_delta": 1e-5,
        "max_discovery_epsilon0": 1.0,
    }
    every |= {"population_max_discovery_epsilon": 1.0, "min_distinct_first_words": 1, "min_ngram_gain": 0.0}
    every |= {"max_rho": 1.0, "min_canary_rank": 1, "min_top1_gain": 0.0, "min_new_word_top3": 0.5}
    policy = PolicyConfig.model_validate(every | {"cover_everything": True})
    of_experiments = {name for name in GATES if name.startswith("live_")}
    assert {gate.id for gate in decide(Evidence(), policy).gates} == GATES.keys() - of_experiments
    for words in GATES.values():
        assert words.asks.endswith(".")
        assert words.fix
    assert words_of("typing_OTF") == GATES["typing"]
    assert "report" in words_of("of another version").fix
