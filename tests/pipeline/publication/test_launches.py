"""Launches of this machine as ``tacit runs``, ``status`` and ``launch`` tell of them: state, cost and next steps."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline.ground.errors import HELD
from pipeline.ground.settings import Settings
from pipeline.launch.policy import PolicyConfig
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.gates.decide import Evidence, decide
from pipeline.publication.gates.words import GATES, words_of
from pipeline.run.attempts import running
from pipeline.run.known import run_folder
from pipeline.run.stage import of_launch
from pipeline.stages.graph import STAGES
from pipeline.verify.erase import forget
from pretrain import progress
from tests.helpers.launches.command import answered, ended
from tests.helpers.launches.decided import EPSILON, RHO, decided_launch
from tests.helpers.launches.pipeline_launch import RAW, write_launch
from tests.helpers.launches.spends import budget


def printed(home: Path, *arguments: str, code: int = 0) -> str:
    return ended(*arguments, code=code, variables={"TACIT_HOME": str(home), "MLFLOW_TRACKING_URI": None}).stdout


@pytest.mark.slow
def test_runs_say_what_each_launch_was_for_spent_and_gained(tracked: Settings):
    began = datetime.now(UTC)
    held = decided_launch(tracked, "hold")[1]
    passed = decided_launch(tracked, "launch", name="other", features=["OTF", "NWP"])[1]
    begun = decided_launch(tracked, until="plan", name="begun", locale="fr-FR")[1]
    rows = {row["launch_id"]: row for row in answered(tracked.home, "runs")["runs"]}
    assert {name: row["state"] for name, row in rows.items()} == {held: "held", passed: "approved", begun: "unfinished"}
    assert (rows[held]["decision"], rows[passed]["decision"], rows[begun]["decision"]) == ("hold", "launch", None)
    assert (rows[held]["rho"], rows[held]["epsilon"], rows[held]["delta"]) == (RHO, EPSILON, 1e-6)
    assert rows[passed]["features"] == ["OTF", "NWP"]
    assert rows[begun]["rho"] is rows[begun]["top1_gain"] is None
    text = printed(tracked.home, "runs")
    assert "+2.9 points (+2.6 to +3.3)" in text
    assert any(f"{day:%Y-%m-%d}" in text for day in (began, datetime.now(UTC))), "whatever midnight it met"
    assert [row["launch_id"] for row in answered(tracked.home, "runs", "--locale", "fr-FR")["runs"]] == [begun]


def test_what_runs_is_seen_and_not_disturbed(tracked: Settings):
    config, run_id = decided_launch(tracked, until="plan")
    names = of_launch(config, STAGES)
    assert running(tracked) == [], "a lock that nobody holds is no stage that runs"
    run = run_folder(tracked, run_id)
    with run.lock("fine_tune"):
        (now,) = running(tracked)
        assert (now.launch_id, now.stage) == (run_id, "fine_tune")
        (row,) = answered(tracked.home, "runs")["runs"]
        assert row["running"] == "fine_tune"
        place = f"stage {names.index('fine_tune') + 1} of {len(names)}"
        assert f"running: {run_id}, fine_tune ({place}), since" in printed(tracked.home, "status")
        assert "wait, or see its progress" in printed(tracked.home, "status", run_id)
        with progress.kept_in(run.private("fine_tune") / progress.FILE):
            progress.along("words", 8.0)(2.0)
            (point,) = [each["progress"] for each in answered(tracked.home, "status")["running"]]
            assert (point["what"], point["share"]) == ("words", 0.25)
        assert not (run.private("fine_tune") / progress.FILE).exists()
    assert running(tracked) == []
    (run.path / "private" / "fine_tune" / ".lock").write_text("1")  # runs, and holds nothing
    assert running(tracked) == []


@pytest.mark.slow
def test_status_says_what_is_left_in_the_window_and_for_ever(tracked: Settings):
    ledger = PrivacyLedger.of(tracked)
    ledger.register("chitchat:windowed", budget(max_rho=1.0, window_days=60, lifetime_rho=3.0), "tests")
    run_id = decided_launch(tracked, "hold", private_text={"name": "windowed"})[1]
    answer = answered(tracked.home, "status")
    assert answer["running"] == []
    assert answer["last"]["launch_id"] == run_id
    left = {(row["population"], row["days"]): row["left"] for row in answer["left"] if row["unit"] == "device"}
    assert left["chitchat:windowed", 60] == 1.0 - RHO
    assert left["chitchat:windowed", None] == 3.0 - RHO
    assert "left:    rho 0.75 of 1 in any 60 days, for chitchat:windowed" in printed(tracked.home, "status")


@pytest.mark.slow
def test_status_of_a_launch_says_what_was_spent_and_what_to_do_next(tracked: Settings):
    config, begun = decided_launch(tracked, until="fine_tune")
    names = of_launch(config, STAGES)
    done = names.index("fine_tune") + 1
    answer = answered(tracked.home, "status", begun)
    assert answer["spent"] == [{"stage": "fine_tune", "unit": "device", "amount": RHO, "kind": "commit"}]
    assert answer["next"] == [f"resume it: tacit launch {begun}"]
    assert f"{done} of {len(names)} stages" in printed(tracked.home, "status", begun)
    assert f"not yet: {', '.join(names[done:])}" in printed(tracked.home, "status", begun)
    waiting = decided_launch(tracked, name="other", reviewers=["ana"])[1]
    assert f"main concerns: tacit review {waiting}, then answer" in answered(tracked.home, "status", waiting)["next"][0]


def test_nothing_here_yet(tmp_path: Path):
    assert "begin one: tacit launch FILE" in printed(tmp_path, "runs")
    assert "tacit ledger init" in printed(tmp_path, "status")
    assert not (tmp_path / "runs").exists(), "looking makes nothing"


def test_status_says_what_was_erased_and_that_it_was_not_verified(tracked: Settings):
    _, begun = decided_launch(tracked, until="plan")
    forget(run_folder(tracked, begun), tracked, "its window is over")
    erased, end = answered(tracked.home, "status", begun)["next"]
    assert "without verification, because its window is over" in erased
    assert end == "it cannot resume: launch for a later date, or under another name"


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
    text = printed(tracked.home, "launch", file, code=HELD)
    assert f"launch {run_id}: held" in text
    assert f"spent:   rho {RHO} by fine_tune" in text
    assert f"next:    {words_of('utility').fix}" in text
    again = answered(tracked.home, "status", file)
    assert {name: again[name] for name in ("failed_gates", "spent", "left", "next")} == {
        name: answer[name] for name in ("failed_gates", "spent", "left", "next")
    }


def test_every_gate_has_words_and_all_words_are_of_a_gate():
    every = {
        "budget": {"rho": 1.0, "days": 1},
        "population_max_rho": 1.0,
        "population_max_words_epsilon": 9.0,
        "max_total_epsilon": 9.0,
        "population_delta": 1e-5,
        "max_discovery_epsilon0": 1.0,
    }
    every |= {"population_max_discovery_epsilon": 1.0, "min_variety": 0.0, "min_ngram_gain": 0.0}
    every |= {"max_rho": 1.0, "min_canary_rank": 1, "min_top1_gain": 0.0, "min_new_word_top3": 0.5}
    policy = PolicyConfig.model_validate(every | {"cover_everything": True})
    assert {gate.id for gate in decide(Evidence(), policy).gates} == GATES.keys()
    for words in GATES.values():
        assert words.asks.endswith(".")
        assert words.fix
    assert words_of("typing_OTF") == GATES["typing"]
    assert "report" in words_of("of another version").fix
