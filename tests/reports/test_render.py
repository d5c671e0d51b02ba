"""The report's files: the page says what the Markdown says, needs nothing else, and keeps text text."""

import functools
import html
import re
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from pipeline.ledger.devices import MOST_SHARED
from reports import appendix
from reports.disclosure.document import Disclosure
from reports.disclosure.guarantee import Accounting
from reports.markdown import code, escape
from reports.render import pages, render
from tests.helpers.launches.checkout import ROOT
from tests.helpers.reports.reports_example import REPORTS, block, drawn, example, rendered


def words(text: str) -> list[str]:
    """Words in order, without markup of either kind and without pictures."""
    text = re.sub(
        r"<head>.*?</head>|<svg.*?</svg>|!\[.*?\]\(.*?\)|^\|[-:|]+\|$", " ", text, flags=re.DOTALL | re.MULTILINE
    )
    text = re.sub(r"\[([^\]]*)\]\([#\w./-]+\)", r"\1", text)  # a link
    text = re.sub(r"</?(?:em|strong|code|a)(?: href=\"[#\w./-]+\")?>|[\\*`]", "", text)
    return html.unescape(re.sub(r"<[^>]+>|^(?:> )?- |[|#>]", " ", text, flags=re.MULTILINE)).split()


@pytest.mark.parametrize("change", [{}, {"audit": None, "utility": None}])
def test_the_page_says_what_the_markdown_says_word_for_word(change: dict) -> None:
    if change:
        change = change | {"decision": block("decision", decision="hold", reasons=["evidence is missing"])}
    files = rendered(**change)
    assert words(files["report.html"]) == words(files["report.md"])


def test_what_a_device_in_several_populations_loses_is_said() -> None:
    assert MOST_SHARED == 0.1
    said = "may share up to a tenth of the devices of the smaller one. A device in several populations"
    for text in (rendered()["report.md"], (ROOT / "docs/privacy.md").read_text(encoding="utf-8")):
        assert said in " ".join(text.split())


def test_every_file_is_written_and_the_disclosure_can_be_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reports.render.draw", lambda _: drawn())
    paths = render(example(), tmp_path / "report")
    assert {path for path in (tmp_path / "report").rglob("*") if path.is_file()} == set(paths)
    files = {path.name: path.read_text(encoding="utf-8") for path in paths}
    assert Disclosure.model_validate_json(files["disclosure.json"]) == example()
    assert files.items() >= pages(example(), drawn()).items()
    # Pictures that the Markdown names stand beside it.
    pictures = re.findall(r"\]\((figures/.*?)\)", files["report.md"])
    assert sorted(pictures) == sorted(f"figures/{name}.svg" for name in drawn())
    tables = re.findall(r"\]\((appendix/.*?)\)", files["report.md"])
    assert all((tmp_path / "report" / table).exists() for table in tables)
    listed = {f"appendix/{table.name}.csv" for table in appendix.tables(example())}
    assert {*tables} == listed, "the report links each table"
    assert all((tmp_path / "report" / picture).exists() for picture in pictures)


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    page = rendered()["report.html"]
    ids: list[str] = []
    stack: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list) -> None:
            if tag not in ("meta", "br", "img"):
                stack.append(tag)
            ids.extend(value for name, value in attrs if name == "id")
            assert tag not in ("script", "link", "iframe")
            # Where the launch stands changes, and what people read does not.
            assert tag != "img" or dict(attrs)["src"] == "../launch/state.svg"
            for name, value in attrs:
                assert not name.startswith("on")
                if tag != "img" and name in ("src", "href", "xlink:href"):
                    assert value.startswith(("#", "appendix/", "figures/"))

        def handle_startendtag(self, tag: str, attrs: list) -> None:
            self.handle_starttag(tag, attrs)
            stack.pop()

        def handle_endtag(self, tag: str) -> None:
            assert stack.pop() == tag

    Reader().feed(page)
    assert stack == []
    assert ids
    assert len(set(ids)) == len(ids), "ids of figures clash"
    assert "@import" not in page
    assert re.search(r"url\((?!#)", page) is None
    assert page.count("<svg") == page.count("<figcaption") == 1
    assert len(drawn()) == 13


def test_figures_can_be_read_aloud() -> None:
    for name, svg in drawn().items():
        assert "currentColor" in svg
        labels = re.search(r'aria-labelledby="(\S+) (\S+)"', svg)
        assert labels, name
        assert f'<title id="{labels[1]}">' in svg
        assert f'<desc id="{labels[2]}">' in svg
        assert not re.search(r"<svg[^>]* (width|height)=", svg)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*REPORTS, "README.md"])
def test_hostile_text_stays_text(name: str) -> None:
    evil = "<script>alert(1)</script> [click](http://evil.example) | `x`\n# heading"
    gate = block("decision")["gates"][0] | {"evidence": evil, "title": evil}
    page = rendered(
        launch=block("launch", contact=evil, intended_use=evil, locale=evil),
        decision=block("decision", reasons=[evil], gates=[gate]),
        unit=evil,
        limitations=[evil],
        assumptions=[evil],
        population=block("population", name=evil, source=evil),
        words=block("words", words=[evil]),
    )[name]
    if name.endswith(".html"):
        assert "<script" not in page
        assert re.findall(r"<a (?!href=\"(?:#|appendix/|figures/)[\w.-]+\">)", page) == []
        assert page.count("<h1>") == 1
        assert "&lt;script&gt;alert(1)&lt;/script&gt; [click](http://evil.example) | `x` # heading" in page
        return
    outside_code = re.sub(r"`[^`]*`", "", page.split("---", 2)[-1].replace("\\`", ""))
    assert "<script" not in outside_code
    assert "\n# heading" not in page
    assert not re.search(r"(?<!\\)\[click", outside_code)


EVIL = (
    "![i](http://evil.example/i.png) [l](javascript:alert(1)) <img src=x onerror=alert(1)> <http://evil.example> [r]",
    "a\n\n[r]: javascript:alert(1)\n\n![i](x)\u2028# h",
    "`` ![i](x) `",
    "",
)


def leaves(value: object, path: tuple = ()) -> Iterator[tuple]:
    """Paths of every text of a disclosure but the names of arms and metrics, which are ours."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        if name != "utility":
            yield from leaves(each, (*path, name))
    if isinstance(value, str):
        yield path


def with_text(text: str) -> Disclosure:
    """The example with a text in every place that takes any."""
    content = example().model_dump(mode="json")
    for *parents, last in leaves(content):
        place = functools.reduce(lambda inner, name: inner[name], parents, content)
        before, place[last] = place[last], text
        try:
            Disclosure.model_validate(content)
        except ValueError:
            place[last] = before
    return Disclosure.model_validate(content)


def markup(text: str) -> Counter:
    """Pictures, links, HTML and blocks of code that a reader of Markdown sees."""
    tokens = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)
    flat = [inner for token in tokens for inner in (token.children or [token])]
    wanted = {"image", "link_open", "html_inline", "html_block", "s_open", "code_block", "fence"}
    return Counter((token.type, token.attrs.get("src")) for token in flat if token.type in wanted)


@pytest.mark.slow
@pytest.mark.parametrize("evil", EVIL)
def test_no_text_of_a_disclosure_becomes_markup(evil: str) -> None:
    figures = dict.fromkeys(drawn(), "<svg></svg>")
    hostile, plain = pages(with_text(evil), figures), pages(example(), figures)
    for name in ("report.md", "README.md"):
        body, expected = (files[name].split("---\n", 2)[-1] for files in (hostile, plain))
        assert markup(body) == markup(expected)
    page = hostile["report.html"]
    assert page.count("<img") == 1
    assert not re.search(r"<(?:script|iframe|object|base|form)\b", page)
    tags = Counter(re.findall(r"<(?!/)(\w+)", page))
    assert tags["h1"] == 1
    assert tags["svg"] == 1
    assert re.findall("<a .*?>", page) == re.findall("<a .*?>", plain["report.html"])


@pytest.mark.parametrize("value", ["", " \n", "`", "``", "a`b", "a\n\nb"])
def test_a_code_span_ends_where_its_value_does(value: str) -> None:
    (inline,) = [token for token in MarkdownIt().parse(f"{code(value)}, then {code('after')}.") if token.children]
    assert [token.type for token in inline.children] == ["code_inline", "text", "code_inline", "text"]


@pytest.mark.parametrize("text", ["ftp://evil.example", "file:///etc/passwd", "JavaScript://x", "x:/y"])
def test_only_addresses_of_the_web_stay_whole(text: str) -> None:
    assert escape(text) == text.replace(":/", "\\:/", 1)
    for address in ("http://example.org", "HTTPS://example.org/a", "someone@example.org"):
        assert escape(address) == address


def test_a_page_may_run_nothing_and_fetch_only_the_picture_of_its_state() -> None:
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', rendered()["report.html"])
    assert policy
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].split(";"))
    assert rules == {"default-src": "'none'", "style-src": "'unsafe-inline'", "base-uri": "'none'"} | {
        "form-action": "'none'",
        "img-src": "'self' file:",
    }


def test_one_epsilon_more_or_less_is_a_forecast_with_its_error() -> None:
    plain = example()
    gains = [{"epsilon": 6.0211 + more, "points": 2.5 + 0.25 * more, "error": 0.8} for more in range(3)]
    stated = {"forecast": gains, "forecast_of": "ten people gained"}
    accounting = Accounting.model_validate(plain.accounting.model_dump() | stated)
    text = pages(plain.model_copy(update={"accounting": accounting}), {})["report.md"]
    assert "is a forecast" in text
    assert "the start: +2.5 ± 1.6 at ε 6.03, +2.8 ± 1.6 at ε 7.03, +3.0 ± 1.6 at ε 8.03. It is what ten people" in text
    assert "One ε more or less" not in pages(plain, {})["report.md"]


def test_model_card_front_matter_is_yaml_with_the_numbers() -> None:
    yaml = pytest.importorskip("yaml")
    evil = 'device"\nepsilon: 0'
    for unit in ("device", evil):
        card = rendered(unit=unit)["README.md"]
        privacy = yaml.safe_load(card.split("---\n")[1])["differential_privacy"]
        assert privacy["unit"] == unit
        assert (privacy["epsilon"], privacy["delta"], "rho" in privacy) == (7.03, 1e-6, False), "words have no rho"


def test_model_card_is_read_by_the_hub_s_own_library() -> None:
    """License, data sets, metrics and evaluation, with the numbers of the record."""
    hub = pytest.importorskip("huggingface_hub")
    text = block("public_text", source="allenai/c4", revision="f" * 40)
    plain, of_the_hub = (hub.ModelCard(rendered(**change)["README.md"]).data for change in ({}, {"public_text": text}))
    assert (plain.license, plain.datasets, of_the_hub.datasets) == ("unknown", None, ["allenai/c4"])
    results = {each.metric_name: each for each in plain.eval_results}
    first = results["top-1 recall"]
    assert (first.metric_type, first.metric_value, first.dataset_name) == ("accuracy", 0.09, "people, held-out devices")
    assert plain.metrics == [each.metric_type for each in plain.eval_results]
    held = rendered(utility=None, decision=block("decision", decision="hold", reasons=["no evidence"]))["README.md"]
    assert hub.ModelCard(held).data.eval_results is None


def test_each_launch_s_epsilon_stands_beside_its_rho_and_nist_s_questions_have_answers() -> None:
    text = rendered()["report.md"]
    assert "| `test-fixture-00` | 0.4569 | 6.50 | 1e-06 |\n| **all**, added up | 0.5002 | 13.53 | 2e-06 |" in text
    assert "7.03 = 2.01 + 5.02: the ε and δ of the parts" in text
    part = text[text.index("### The questions of NIST SP 800-226") :].split("### ")[1]
    rows = dict(re.findall(r"^\| \*\*(.+?)\*\* \| (.+) \|$", part, flags=re.MULTILINE))
    assert rows.keys() >= {"Privacy parameters", "Unit of privacy", "Trust models", "Side channels"}
    assert rows["Privacy parameters"].startswith("ε ≤ 7.03 at δ = 1e-06")
    assert "2 of 2" in rows["Algorithms and correctness"]
    seeded = {"launch": block("launch", seeded_randomness=True)}
    seeded["accounting"] = block("accounting", randomness="seeded")
    void = rendered(**seeded)["report.md"]
    assert "| **Randomness** | **Seeded: anyone can subtract this noise** |" in void


def test_tables_in_markdown_are_tables() -> None:
    lines = rendered()["report.md"].splitlines()
    rules = [number for number, line in enumerate(lines) if re.fullmatch(r"\|(?:-+:?\|)+", line)]
    assert len(rules) >= 4
    for number in rules:
        columns = lines[number].count("|")
        assert [line.count("|") for line in lines[number - 1 : number + 2]] == [columns] * 3, lines[number - 1]
    assert not any("\\|" in line for line in lines)
