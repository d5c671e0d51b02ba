"""The report in a real browser: fits any screen, hides no value, prints what is folded, asks nobody for anything."""

import base64
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from reports.formats import METRICS
from reports.render import PAGE
from tests.helpers.reports.browser import Page, tab
from tests.helpers.reports.reports_example import block, rendered

pytestmark = [pytest.mark.browser, pytest.mark.slow]

# Cells that are not all on the screen, pictures too flat to read, and whether the page itself scrolls sideways.
_MEASURE = """JSON.stringify({
  hidden: [...document.querySelectorAll("td")].filter(e => e.textContent && e.checkVisibility()
    && (e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().width < 8)).length,
  wide: [...document.querySelectorAll("main > *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1).length,
  flat: [...document.querySelectorAll("svg")]
    .filter(e => e.checkVisibility() && e.getBoundingClientRect().height < 60).length,
  scrolls: document.documentElement.scrollWidth > innerWidth + 1,
  dead: [...document.querySelectorAll("a[href^='#']")].map(e => e.hash)
    .filter(hash => !document.getElementById(hash.slice(1))),
})"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a launch for Germany with six arms, without the policy that would stop what measures it."""
    row, names = block("utility")["arms"][0], ("private", "start", "ngram", "counts", "non_private", "public_mixture")
    arms = [row | {"arm": arm, "metric": metric} for arm in names for metric in METRICS]
    differences = [
        {"candidate": "private", "baseline": arm, "metric": "prate", "value": 0.1, "low": 0.05, "high": 0.15}
        for arm in names[1:]
    ]
    utility = block("utility", arms=arms, differences=differences, features={"NWP": list(METRICS)})
    page = rendered(launch={**block("launch"), "locale": "de-DE"}, utility=utility)[PAGE]
    free = re.sub(r"<meta http-equiv=\"Content-Security-Policy\"[^>]*>", "", page)
    assert free != page
    folder = tmp_path_factory.mktemp("run")
    (folder / "launch").mkdir()
    (folder / "launch" / "state.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>', encoding="utf-8")
    path = folder / "report" / PAGE
    path.parent.mkdir()
    path.write_text(free, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def page(chromium: str) -> Iterator[Page]:
    with tab(chromium) as opened:
        yield opened


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (600, True), (390, False)])
def test_it_fits_hides_nothing_and_is_for_everybody(
    page: Page, report: Path, axe: Path, width: int, dark: bool
) -> None:
    page.open(report, width, dark=dark)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate(_MEASURE) == '{"hidden":0,"wide":0,"flat":0,"scrolls":false,"dead":[]}'
    assert [each for each in page.asked if "state.svg" not in each] == []
    assert page.complaints == []
    assert page.violations(axe) == []


def test_a_phone_says_the_column_of_each_value(page: Page, report: Path) -> None:
    page.open(report, 390)
    said = page.evaluate("getComputedStyle(document.querySelector('#gate-gate_0 td + td'), '::before').content")
    assert said == '"condition"' or said.startswith("attr(")
    page.resize(1200)
    said = page.evaluate("getComputedStyle(document.querySelector('#gate-gate_0 td + td'), '::before').content")
    assert said == "none"


def test_what_is_folded_is_on_paper(page: Page, report: Path) -> None:
    page.open(report, 1200)
    pages = []
    for opened in ("false", "true"):
        page.evaluate(f"document.querySelectorAll('details').forEach(each => each.open = {opened})")
        paper = base64.b64decode(page.call("Page.printToPDF", preferCSSPageSize=True)["data"])
        # A stream may end in the byte of a line's end, which belongs to its checksum.
        parts = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", paper, flags=re.DOTALL)
        drawn = b"".join(zlib.decompressobj().decompress(part) for part in parts if part.startswith(b"x"))
        pages.append((len(re.findall(rb"/Type\s*/Page\b", paper)), drawn.count(b"Tj") + drawn.count(b"TJ")))
    folded, unfolded = pages
    assert folded == unfolded
    assert folded[0] <= 5  # four, and the first page in German
