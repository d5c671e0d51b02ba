"""What a reader sees: every number, nothing from outside, loud warnings, no broken page."""

import html
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pydantic import ValidationError

from reports.disclosure.document import DataAccess, Disclosure
from reports.figures.audit import of_audits
from reports.figures.comparison import of_utility
from reports.figures.discovery import of_discovery
from reports.figures.training import all_figures
from reports.render import render
from tests.helpers.reports_example import example

PAGES = ("report.html", "report.md")


def rendered(disclosure: Disclosure, folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in render(disclosure, folder)}


def block(name: str, /, **changes: object) -> dict:
    """A top-level block of the example with some fields replaced."""
    return json.loads(example().model_dump_json())[name] | changes


def visible(text: str) -> str:
    """A page as it reads: no tags, no style, entities resolved."""
    text = re.sub(r"<style>.*?</style>|<svg.*?</svg>", " ", text, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", " ", text))


@pytest.mark.parametrize("name", PAGES)
def test_machine_and_people_read_the_same(tmp_path: Path, name: str) -> None:
    disclosure = example()
    files = rendered(disclosure, tmp_path)
    assert Disclosure.model_validate_json(files["disclosure.json"]) == disclosure
    text = visible(files[name])
    for gate in disclosure.decision.gates:
        assert gate.id in text
        assert gate.title in text
    # Rounded up: rho 0.50012, mu 1.00012, epsilon 4.8812.
    losses = ("0.501", "1.01", "4.89", "80.00")
    others = (
        "test-fixture-01",
        "held-out aggregates",
        "700,000",
        "of them train 700 or more",
        "1,390 or more",
        "+3.00 pp",
        "better",
        "a" * 64,
    )
    for shown in losses + others + disclosure.assumptions + disclosure.limitations:
        assert shown in text, f"{name} lacks {shown}"


@pytest.mark.parametrize("name", PAGES)
def test_another_disclosure_gives_other_numbers(tmp_path: Path, name: str) -> None:
    """Nothing is typed into a template: changed values show, and the old ones are gone."""
    changed = example(
        accounting=block(
            "accounting", rho=0.7777, mu=math.sqrt(2 * 0.7777), epsilon=6.5432, epsilon_pld=6.5432, planned_rho=0.9
        ),
        mechanism=block("mechanism", rounds=23, report_goal=321, clip_norm=0.123),
        composition=block("composition", spends=[], total_rho=2.2222),
    )
    text = visible(rendered(changed, tmp_path)[name])
    for shown in ("0.778", "1.25", "6.55", "6.5432", "23 rounds", "321", "0.123", "2.2222"):
        assert shown in text
    for gone in ("0.501", "1.01", "4.89", "4.8812", "0.5002", "16 rounds"):
        assert gone not in text


def test_losses_of_different_units_are_never_added(tmp_path: Path) -> None:
    files = rendered(example(), tmp_path)
    total = 4.8812 + 8.0, 0.50012 + 8.0, 4.8812 + 80.0
    for name in PAGES:
        assert "never added" in files[name]
        assert "Given the vocabulary, whatever one device typed" in visible(files[name])
        assert "for training with the vocabulary given" in visible(files[name])
        for wrong in total:
            assert f"{wrong:.1f}" not in visible(files[name])


def test_page_is_whole_and_needs_nothing_else(tmp_path: Path) -> None:
    page = rendered(example(), tmp_path)["report.html"]
    seen: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list) -> None:
            seen.extend(value for name, value in attrs if name == "id")
            assert tag not in ("script", "link", "iframe", "img")
            for name, value in attrs:
                assert not name.startswith("on")
                if name in ("src", "href", "xlink:href"):
                    assert value.startswith("#")

    Reader().feed(page)
    assert seen
    assert len(set(seen)) == len(seen), "ids of figures clash"
    assert "@import" not in page
    assert re.search(r"url\((?!#)", page) is None
    drawn = all_figures(example()) | of_discovery(example().discovery) | of_audits(example().audit)
    drawn |= of_utility(example().utility)
    assert page.count("<svg") == len(drawn) == 13


def test_figures_are_the_same_every_time_and_can_be_read_aloud() -> None:
    first, second = all_figures(example()), all_figures(example())
    assert first == second
    for name, svg in first.items():
        assert "currentColor" in svg
        labels = re.search(r'aria-labelledby="(\S+) (\S+)"', svg)
        assert labels, name
        assert f'<title id="{labels[1]}">' in svg
        assert f'<desc id="{labels[2]}">' in svg
        assert not re.search(r"<svg[^>]* (width|height)=", svg)


@pytest.mark.parametrize("name", ["report.html", "report.md", "README.md"])
def test_hostile_text_stays_text(tmp_path: Path, name: str) -> None:
    evil = "<script>alert(1)</script> [click](http://evil.example) | `x`\n# heading"
    gate = block("decision")["gates"][0] | {"evidence": evil, "title": evil}
    disclosure = example(
        launch=block("launch", contact=evil, intended_use=evil, locale=evil),
        decision=block("decision", reasons=[evil], gates=[gate]),
        unit=evil,
        limitations=[evil],
        assumptions=[evil],
        population=block("population", name=evil, source=evil),
        discovery=block("discovery", words=[evil]),
    )
    page = rendered(disclosure, tmp_path)[name]
    if name.endswith(".html"):
        assert "<script" not in page
        return
    outside_code = re.sub(r"`[^`]*`", "", page.split("---", 2)[-1].replace("\\`", ""))
    assert "<script" not in outside_code
    assert "\n# heading" not in page
    assert not re.search(r"(?<!\\)\[click", outside_code)


def test_model_card_front_matter_is_yaml_with_the_numbers(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    evil = 'device"\nepsilon: 0'
    for unit in ("device", evil):
        card = rendered(example(unit=unit), tmp_path)["README.md"]
        privacy = yaml.safe_load(card.split("---\n")[1])["differential_privacy"]
        assert privacy["unit"] == unit
        assert (privacy["rho"], privacy["epsilon"], privacy["delta"]) == (0.5002, 4.89, 1e-6)


def test_weak_synthetic_seeded_and_held_are_said_loudly(tmp_path: Path) -> None:
    calm = rendered(example(), tmp_path)
    loud = rendered(
        example(
            launch=block("launch", synthetic_population=True, seeded_randomness=True),
            population=block("population", synthetic=True),
            mechanism=block("mechanism", randomness="seeded"),
            decision=block("decision", decision="hold", reasons=["budget exceeded"]),
            accounting=block("accounting", epsilon=12.0, epsilon_pld=12.5, agree=False),
            participation=block("participation", violations=3),
            tool=block("tool", git_commit="abc-dirty"),
        ),
        tmp_path,
    )
    phrases = (
        "is synthetic",
        "trained on made-up text that stands for what people typed",
        "was seeded",
        "void",
        "on hold. Nothing was published",
        "above 10 is weak",
        "accountants do not agree",
        "violations: 3",
        "uncommitted changes",
    )
    for name in PAGES:
        for phrase in phrases:
            assert phrase in visible(loud[name]), f"{name} lacks {phrase}"
            assert phrase not in visible(calm[name]).replace("Strong is ε", "")
    assert 'class="red on"' in loud["report.html"]
    assert 'class="green on"' in calm["report.html"]


def test_a_launch_with_a_warning_is_amber(tmp_path: Path) -> None:
    made_up = example(launch=block("launch", synthetic_population=True), population=block("population", synthetic=True))
    page = rendered(made_up, tmp_path)["report.html"]
    assert 'class="amber on"' in page
    assert "with warnings" in page


def test_missing_parts_still_give_a_report(tmp_path: Path) -> None:
    bare = example(
        decision=block("decision", decision="hold", reasons=["evidence is missing"]),
        audit=None,
        utility=None,
        curves={"pretraining": [], "adaptation": [], "fine_tuning": []},
        accounting=block("accounting", curve=[]),
        participation=block(
            "participation",
            observed_min_sep=None,
            observed_mins=None,
            observed_max_participations=0,
            participation_histogram={},
            separation_histogram={},
        ),
        discovery=block("discovery", layers=[], words=[]),
        composition=block("composition", spends=[]),
        artifacts=[],
    )
    assert all_figures(bare) == {}
    files = rendered(bare, tmp_path)
    for name in PAGES:
        assert "No audit was made" in files[name]
        assert "No comparison was made" in files[name]


def test_one_point_and_one_canary_are_enough_for_every_figure() -> None:
    one = example(
        audit=block("audit", canaries=block("audit")["canaries"][:1], stress=None),
        curves={name: points[:1] for name, points in block("curves").items()},
        participation=block("participation", participation_histogram={"1": 10}),
    )
    assert len(all_figures(one)) == 5
    assert list(of_audits(one.audit)) == ["canaries", "audits"]


def test_a_ceiling_that_rank_one_stays_under_says_nothing(tmp_path: Path) -> None:
    row = block("audit")["canaries"][0]
    most = math.log2(2_000_000)
    for bits, said in ((most + 1, "says nothing"), (most - 1, f"{most - 1:.1f}"), (None, "none")):
        audit = block("audit", canaries=[row | {"ceiling_bits": bits}], stress=None)
        files = rendered(example(audit=audit), tmp_path)
        assert all(said in files[name] for name in PAGES)


def test_tables_in_markdown_are_tables(tmp_path: Path) -> None:
    lines = rendered(example(), tmp_path)["report.md"].splitlines()
    rules = [number for number, line in enumerate(lines) if re.fullmatch(r"\|(?:-+:?\|)+", line)]
    assert len(rules) > 15
    for number in rules:
        columns = lines[number].count("|")
        assert [line.count("|") for line in lines[number - 1 : number + 2]] == [columns] * 3, lines[number - 1]
    assert not any("\\|" in line for line in lines)


def test_words_are_shown_only_after_review(tmp_path: Path) -> None:
    hidden = rendered(example(), tmp_path)
    shown = rendered(example(discovery=block("discovery", words=["haha"])), tmp_path)
    for name in PAGES:
        assert "nobody has reviewed" in hidden[name]
        assert "haha" in shown[name]


def test_private_access_outside_the_guarantee_needs_a_reason() -> None:
    with pytest.raises(ValidationError, match="say why"):
        DataAccess(stage="ab_test", data="private", covered=False)
    with pytest.raises(ValidationError, match="Extra inputs"):
        example(surprise=1)
