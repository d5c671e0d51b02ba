"""The price list: each capability has files, and the launch files that ask for it."""

from pathlib import Path

import pytest
import yaml

from benchmarks import structure
from benchmarks.structure import Price, asked, launch_fields, prices

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def listed() -> dict[str, Price]:
    return {price.capability: price for price in prices(ROOT)}


def test_each_capability_has_a_price(listed: dict[str, Price]) -> None:
    assert all(price.product for price in listed.values())
    central = listed["words by an aggregator"]
    assert central.used_by is not None
    assert {"de-DE", "demo-en-US-central"} <= set(central.used_by)
    assert "demo-en-US" not in central.used_by
    assert "demo-en-US" in (listed["words by local discovery"].used_by or ())
    assert listed["words by local discovery"].tests > 0


def test_a_file_that_is_gone_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "list.yaml").write_text("gone: {files: [pipeline/gone/*]}")
    monkeypatch.setattr(structure, "CAPABILITIES", tmp_path / "list.yaml")
    with pytest.raises(ValueError, match="gone: no file matches pipeline/gone"):
        list(prices(ROOT))


def test_a_launch_file_inherits_what_it_asks_for(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(yaml.safe_dump({"counts": {"model": "mixture"}, "runtime": {"workers": 2}}))
    (tmp_path / "b.yaml").write_text(yaml.safe_dump({"like": "a.yaml", "counts": None, "runtime": {"workers": 1}}))
    first, second = (launch_fields(tmp_path / f"{name}.yaml") for name in "ab")
    assert asked(first, {"field": "counts"})
    assert not asked(second, {"field": "counts"})
    several = {"field": "runtime.workers", "is": "more than one"}
    assert asked(first, several)
    assert not asked(second, several)
