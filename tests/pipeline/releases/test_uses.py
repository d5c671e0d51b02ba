"""The table of data accesses: nothing is uncovered under a budget, and a file that asks for that without is refused."""

import pytest
from pydantic import ValidationError

from pipeline.preflight.shortfalls import too_few
from pipeline.releases.release import EVERY_RELEASE, Release
from pipeline.releases.uses import RELEASES, USES, accesses, uncovered
from pipeline.run.stage import imported, kept
from pipeline.stages.graph import STAGES
from tests.helpers.launches.pipeline_launch import launch_config

BUDGET = {"noise_multiplier": 2.0}
COUNTS = {"noise_multiplier": 3.0, "model": "network"}


def test_without_a_budget_what_is_not_covered_says_why() -> None:
    config = launch_config(ab_test={"non_private_upper_bound": True})
    assert uncovered(config) == (
        "ingest_private",
        "fine_tune: validation curve",
        "ab_test",
        "ab_test: coverage",
        "ab_test: an arm trained without privacy",
    )


@pytest.mark.parametrize("counts", [None, COUNTS])
def test_with_a_budget_every_private_row_is_covered(counts: dict | None) -> None:
    rows = accesses(launch_config(evaluation=BUDGET, counts=counts))
    private = [row for row in rows if row.data == "private"]
    assert all(row.covered for row in private)
    assert {row.stage for row in private} == {
        *("ingest_private", "discover", "fine_tune", "audit", "ab_test", "audit_releases"),
        *(("count",) if counts else ()),
    }
    assert uncovered(launch_config(evaluation=BUDGET, counts=counts)) == ()


def test_every_stage_that_opens_private_files_is_in_the_list() -> None:
    """But for the vocabulary, which opens words that were released; the runner refuses a file that is not declared."""
    private = {name for name, stage in STAGES.items() if stage.private}
    assert {use.stage for use in USES} - {"publish"} == private - {"build_vocabulary"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"policy": {"cover_everything": True}}, "policy.cover_everything: true, but held-out devices are evaluated"),
        (
            {"evaluation": BUDGET, "ab_test": {"non_private_upper_bound": True}},
            "with the block evaluation every result has noise",
        ),
        (
            {"evaluation": {"noise_multiplier": 0.9}},
            "0.9 is rho 0.617284 for a test device, which leaves nothing of policy.max_rho 0.5; raise",
        ),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(changes: dict, expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        launch_config(**changes)
    launch_config(policy={"cover_everything": True}, evaluation=BUDGET)


def test_too_few_test_devices_for_the_noise_are_known_before_a_spend() -> None:
    splits = {"train": 900, "validation": 100, "test": 20}
    for words, fewest in ((0, 40), (100, 57)):  # typing shares the noise
        config = launch_config(evaluation=BUDGET, ab_test={"session_words": words})
        (line,) = too_few(config, splits)
        assert line.startswith(f"evaluation.noise_multiplier: 2 is too much for fewer than {fewest} test devices")
        assert too_few(config, splits | {"test": fewest}) == []
    assert too_few(launch_config(), splits) == []


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: f"{release.stage}: {release.name}")
def test_what_a_release_names_for_its_audit_is_there(release: Release) -> None:
    assert callable(imported(release.make))
    assert release.proves
    assert not {*release.proves} & {*EVERY_RELEASE}
    assert set(release.keeps) <= set(kept(release.stage, STAGES)), "an audit opens what its stage does not keep"
