"""Text stays text in Markdown and on the page; pictures, folds, warnings and tables become what they should."""

import re

import pytest

from reports.markdown import code, escape, figure, to_html, yaml

EVIL = (
    "<script>alert(1)</script>",
    "[click](http://evil.example)",
    "![picture](figures/epsilon.svg)",
    "<http://evil.example>",
    "`x` ~~x~~ **x** *x* _x_ __x__",
    "# heading",
    "- item",
    "+ item",
    "12. item",
    "3) item",
    "---",
    "===",
    " # heading",
    "a | b",
    "&lt;b&gt; &copy;",
    "\\<b>",
    "line\n# heading",
    "[a]: http://evil.example",
)


@pytest.mark.parametrize("evil", EVIL)
@pytest.mark.parametrize("place", ["{}", "words {} words", "- {}", "| head |\n|---|\n| {} |", "words\n{}", "> {}"])
def test_a_value_stays_its_own_words_wherever_it_stands(evil: str, place: str) -> None:
    plain = str(to_html(place.format("value"), {}))
    shown = " ".join(evil.split())
    page = str(to_html(place.format(escape(evil)), {"epsilon": "<svg></svg>"}))
    expected = shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert re.sub(" +", " ", page) == plain.replace("value", expected)


@pytest.mark.parametrize("value", ["+3.00 pp", "-0.5", "fine_tune", "1.5", "–", "5", ".", "; ", " (x)"])
def test_plain_values_are_not_disturbed(value: str) -> None:
    assert escape(value) == value


def test_a_code_span_cannot_be_left() -> None:
    assert code("a`b|c\nd") == "`a'b/c d`"
    assert "<code>&lt;b&gt;</code>" in to_html(code("<b>"), {})


def test_front_matter_cannot_be_left() -> None:
    assert yaml('device"\nepsilon: 0') == '"device\\"\\nepsilon: 0"'
    assert yaml(1e-6) == "1.0e-06"


def test_a_picture_is_its_svg_with_a_caption_and_one_that_is_not_there_is_words() -> None:
    text = figure("epsilon", "What <b>it</b> shows.")
    page = to_html(text, {"epsilon": "<svg>drawn</svg>"})
    caption = "<figcaption>What &lt;b&gt;it&lt;/b&gt; shows.</figcaption>"
    assert page == f'<figure tabindex="0"><svg>drawn</svg>{caption}</figure>\n'
    assert to_html(text, {}) == "<p>epsilon<br>\nWhat &lt;b&gt;it&lt;/b&gt; shows.</p>\n".replace("<br>\n", "")


def test_a_fourth_heading_folds_up_to_the_next_heading_or_the_end() -> None:
    page = to_html("#### More\n\na\n\n## Next\n\nb\n\n#### Last\n\nc", {})
    assert page == (
        '<details><summary>More</summary>\n<p>a</p>\n</details>\n<h2 id="next">Next</h2>\n<p>b</p>\n'
        "<details><summary>Last</summary>\n<p>c</p>\n</details>\n"
    )


def test_bold_alone_is_bad_news_and_a_quotation_is_a_note() -> None:
    assert to_html("**None.**", {}) == '<p class="fail"><strong>None.</strong></p>\n'
    for mixed in ("**a** b", "**a** and **b**"):
        assert "class" not in to_html(mixed, {})
    assert to_html("> **a**", {}).startswith('<blockquote role="note" class="bad">')
    assert to_html("> a", {}).startswith('<blockquote role="note">')


def test_numbers_stand_on_the_right_and_cells_say_their_column() -> None:
    narrow = to_html("| a | b |\n|---|---:|\n| c | 1 |", {})
    assert narrow.startswith('<div class="scroll"><table>')
    assert '<th class="n">b</th>' in narrow
    assert '<td data-label="a">c</td>' in narrow
    assert '<td data-label="b" class="n">1</td>' in narrow
    assert "style=" not in narrow


def test_links_lead_nowhere_but_to_headings_and_files_of_the_report() -> None:
    table = "| gate | x |\n|---|---|\n| `min_sep` | `y` |"
    page = to_html(
        f"## All gates, at once\n\n{table}\n\n[a](#two) [b](x#two) [c](//d) [e](appendix/f.csv) [g](../h.csv)", {}
    )
    assert '<h2 id="all-gates-at-once">' in page
    assert page.count(" id=") == 2
    assert '<tr id="gate-min_sep">' in page
    assert '<a href="#two">a</a> [b](x#two) [c](//d) <a href="appendix/f.csv">e</a> [g](../h.csv)' in page
    assert "id=" not in to_html("| other |\n|---|\n| `min_sep` |", {})
