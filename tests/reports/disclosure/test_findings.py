"""What a reader sees of audits and of the comparison: populations apart, arms named for what they are."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from reports.disclosure.document import Disclosure
from reports.formats import FEATURES
from reports.render import render
from tests.helpers.reports_example import example

PAGES = ("report.html", "report.md")


def rendered(disclosure: Disclosure, folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in render(disclosure, folder)}


def block(name: str, /, **changes: object) -> dict:
    """A top-level block of the example with some fields replaced."""
    return json.loads(example().model_dump_json())[name] | changes


def test_stress_stands_apart_and_counts_nowhere_else(tmp_path: Path) -> None:
    files = rendered(example(), tmp_path)
    for name in PAGES:
        before, under = files[name].split("Under stress")
        assert "no gate reads them" in under
        assert "90,000" in under
        assert "90,000" not in before
    without = rendered(example(audit=block("audit", canaries=block("audit")["canaries"][:1], stress=None)), tmp_path)
    assert all("Under stress" not in without[name] for name in PAGES)
    with pytest.raises(ValidationError, match="exactly where canaries"):
        example(audit=block("audit", stress=None))


def test_the_launch_s_feature_comes_first_with_its_sums(tmp_path: Path) -> None:
    for feature, first in (("NWP", "Next-word prediction"), ("OTF", "On-the-fly rescoring")):
        files = rendered(example(launch=block("launch", feature=feature)), tmp_path)
        for name in PAGES:
            assert files[name].index(first) == min(files[name].index(f"{text} (") for text in FEATURES.values())
            assert "of this launch" in files[name]
            assert f"{52_252 * 0.09:,.1f}" in files[name]
    nothing = block("utility", features={"NWP": [], "SC": [], "OTF": []}, session_words=0)
    for name in PAGES:
        assert "None of its metrics could be estimated" in rendered(example(utility=nothing), tmp_path)[name]


def test_an_arm_without_privacy_is_named_as_one_everywhere(tmp_path: Path) -> None:
    files = rendered(example(), tmp_path)
    for name in PAGES:
        assert "must never be trained on people's own text" in files[name].replace("&#39;", "'")
        assert files[name].count("trained without privacy, simulation only") >= 5
        assert "non_private" not in files[name]
    with pytest.raises(ValidationError, match="not what the arms say"):
        example(utility=block("utility", simulation_without_privacy=False))


def test_what_users_have_is_named_or_said_to_be_missing(tmp_path: Path) -> None:
    known, missing = (
        rendered(example(utility=block("utility", champion=champion)), tmp_path)
        for champion in (block("utility")["champion"], None)
    )
    for name in PAGES:
        assert "test-fixture-00" in known[name]
        assert "No earlier launch of NWP for en-US" in missing[name]
