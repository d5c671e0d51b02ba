"""What a reader sees: every number, nothing from outside, loud warnings, no broken page."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pydantic import ValidationError
from reports_example import example

from reports import site
from reports.disclosure import DataAccess, Disclosure
from reports.figures import all_figures
from reports.render import percent, render, strength, up


def rendered(disclosure: Disclosure, folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in render(disclosure, folder)}


def block(name: str, **changes: object) -> dict:
    """A top-level block of the example with some fields replaced."""
    return json.loads(example().model_dump_json())[name] | changes


def test_machine_and_people_read_the_same(tmp_path: Path) -> None:
    disclosure = example()
    files = rendered(disclosure, tmp_path)
    assert Disclosure.model_validate_json(files["disclosure.json"]) == disclosure
    for name in ("report.html", "report.md"):
        text = files[name]
        for gate in disclosure.decision.gates:
            assert gate.id in text
            assert gate.title in text
        # Rounded up: 0.50012, 1.00012, 4.8812.
        for shown in ("0.501", "1.01", "4.89", "test-fixture-01", "held-out aggregates", "700,000", "80.00"):
            assert shown in text, f"{name} lacks {shown}"
    assert "epsilon: 4.89" in files["README.md"]


def test_page_is_whole_and_needs_nothing_else(tmp_path: Path) -> None:
    page = rendered(example(), tmp_path)["report.html"]

    class Reader(HTMLParser):
        opened: list[str]
        ids: list[str]

        def handle_starttag(self, tag: str, attrs: list) -> None:
            self.ids += [value for name, value in attrs if name == "id"]
            assert tag not in ("script", "link", "iframe", "img")
            for name, value in attrs:
                if name in ("src", "href", "xlink:href"):
                    assert value.startswith("#")

    reader = Reader()
    reader.opened, reader.ids = [], []
    reader.feed(page)
    assert len(set(reader.ids)) == len(reader.ids), "ids of figures clash"
    assert "@import" not in page
    assert re.search(r"url\((?!#)", page) is None
    assert page.count("<svg") == len(all_figures(example())) == 7


def test_figures_are_the_same_every_time() -> None:
    first, second = all_figures(example()), all_figures(example())
    assert first == second
    assert all("currentColor" in svg and "<title>" in svg for svg in first.values())


@pytest.mark.parametrize("name", ["report.html", "README.md"])
def test_hostile_text_stays_text(tmp_path: Path, name: str) -> None:
    evil = "<script>alert(1)</script>|"
    launch = block("launch", contact=evil, intended_use=evil)
    page = rendered(example(launch=launch), tmp_path)[name]
    assert "<script>" not in page


def test_weak_synthetic_seeded_and_held_are_said_loudly(tmp_path: Path) -> None:
    calm = rendered(example(), tmp_path)
    loud = rendered(
        example(
            launch=block("launch", synthetic_population=True, seeded_randomness=True),
            decision=block("decision", decision="hold", reasons=["budget exceeded"]),
            accounting=block("accounting", epsilon=12.0, epsilon_pld=12.0),
        ),
        tmp_path,
    )
    for name in ("report.html", "report.md"):
        for phrase in ("is synthetic", "was seeded", "on hold. Nothing was published", "above 10 is weak"):
            assert phrase in loud[name]
            assert phrase not in calm[name]
    assert strength(1.0) == "strong"
    assert strength(10.0) == "reasonable"
    assert strength(10.01) == "weak"


def test_missing_parts_still_give_a_report(tmp_path: Path) -> None:
    files = rendered(example(audit=None, utility=None), tmp_path)
    for name in ("report.html", "report.md"):
        assert "No audit was made" in files[name]
        assert "No comparison was made" in files[name]


def test_words_are_shown_only_after_review(tmp_path: Path) -> None:
    assert "nobody has reviewed" in rendered(example(), tmp_path)["report.html"]
    page = rendered(example(discovery=block("discovery", words=["haha"])), tmp_path)["report.html"]
    assert "<code>haha</code>" in page


def test_private_access_outside_the_guarantee_needs_a_reason() -> None:
    with pytest.raises(ValidationError, match="say why"):
        DataAccess(stage="ab_test", data="private", covered=False)
    with pytest.raises(ValidationError, match="Extra inputs"):
        example(surprise=1)


def test_losses_are_rounded_up_and_shares_are_percent() -> None:
    assert up(4.8812) == "4.89"
    assert up(0.29) == "0.29"
    assert up(None) == "none"
    assert percent(0.0885) == "8.85%"


def test_index_of_launches(tmp_path: Path) -> None:
    assert "No launch" in site.build(tmp_path).read_text(encoding="utf-8")
    folder = tmp_path / "test-fixture-01" / "public" / "report"
    folder.mkdir(parents=True)
    render(example(), folder)
    page = site.build(tmp_path).read_text(encoding="utf-8")
    assert 'href="test-fixture-01/public/report/report.html"' in page
    assert "9.00%" in page
    (folder / "disclosure.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="not a disclosure"):
        site.build(tmp_path)
