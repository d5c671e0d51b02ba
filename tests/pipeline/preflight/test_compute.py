"""CPU minutes of a launch: they grow as what is trained, and those that were measured come out."""

from pathlib import Path

from federated.counts import distil
from pipeline.launch.config import LaunchConfig, load_launch
from pipeline.preflight.compute import LESSONS, launch_minutes

ROOT = Path(__file__).parents[3]


def changed(config: LaunchConfig, block: str, **fields: object) -> LaunchConfig:
    return config.model_copy(update={block: getattr(config, block).model_copy(update=fields)})


def test_minutes_grow_as_what_is_trained() -> None:
    demo = changed(load_launch(ROOT / "dags" / "launches" / "demo-en-US.yaml"), "mechanism", report_goal=1_000)
    twice = changed(changed(demo, "mechanism", report_goal=2_000), "pretrain", steps=10_000)
    for stage, minutes in launch_minutes(demo).items():
        assert abs(launch_minutes(twice)[stage] - 2 * minutes) <= 1
    assert "audit" not in launch_minutes(changed(demo, "audit", populations=("compliant",)))


def test_a_moved_start_is_counted() -> None:
    demo = load_launch(ROOT / "dags" / "launches" / "demo-en-US.yaml")
    assert distil.STEPS * distil.ROWS == LESSONS
    assert set(launch_minutes(demo)) == {"pretrain", "fine_tune", "audit", "ab_test", "decide"}
    assert "decide" not in launch_minutes(demo.model_copy(update={"counts": None}))
    assert "ab_test" not in launch_minutes(changed(demo, "ab_test", non_private_upper_bound=False))
    assert launch_minutes(changed(demo, "runtime", device="cuda")) == {}


def test_a_measured_launch_comes_out_within_twice() -> None:
    # Seconds of benchmarks/results/2026-11-28-epsilon-one.md, on cores twice as slow as usual.
    minutes = launch_minutes(load_launch(ROOT / "benchmarks" / "utility" / "talk-en-US.yaml"))
    for stage, seconds in (("pretrain", 460), ("fine_tune", 3_100)):
        assert 0.5 <= minutes[stage] / (seconds / 2 / 60) <= 2
