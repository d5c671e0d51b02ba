"""The site of launches in a real browser: it fits, it filters, it is quiet, and nobody is kept from using it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from reports import site
from reports.keyboard import Writing
from tests.helpers.reports.browser import Page, tab
from tests.helpers.reports.keyboard_run import add_published, no_public_model, published_in
from tests.helpers.reports.listed_launches import LAUNCHES

pytestmark = [pytest.mark.browser, pytest.mark.slow]
ROWS = [row["launch_id"] for row in LAUNCHES.rows]
SEEN = "[...document.querySelectorAll('[data-decision]')].filter(each => each.checkVisibility()).map(each => each.id)"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    add_published(runs, "en-US-90c1e2f4")
    return site.build(
        runs, runs / "nothing", lambda locale: Writing((), {}), published_in(runs), no_public_model, LAUNCHES
    ).index


@pytest.fixture(scope="module")
def page(index: Path, chromium: str) -> Iterator[Page]:
    with tab(chromium) as opened:
        yield opened


@pytest.mark.parametrize(("width", "dark"), [(390, False), (390, True), (1200, False), (1200, True)])
def test_it_fits_is_quiet_and_is_for_everybody(page: Page, index: Path, axe: Path, width: int, dark: bool) -> None:
    page.open(index, width, dark=dark)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wide = (
        "[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1).length"
    )
    assert page.evaluate(wide) == 0
    assert page.evaluate(SEEN) == ROWS
    assert (page.asked, page.complaints) == ([], [])
    assert page.violations(axe) == []
    page.evaluate("document.querySelector('select').parentElement.replaceWith(document.querySelector('select'))")
    assert [each.split()[0] for each in page.violations(axe)] == ["select-name"], "it finds what is wrong"


def choose(page: Page, name: str, value: str) -> None:
    page.evaluate(
        f"(form => {{ form.elements.{name}.value = '{value}';"
        " form.dispatchEvent(new Event('change')); })(document.getElementById('filters'))"
    )


def test_filters_leave_what_fits_and_can_be_sent(page: Page, index: Path) -> None:
    page.open(index, 1200)
    choose(page, "locale", "es-ES")
    spanish = [row["launch_id"] for row in LAUNCHES.rows if row["locale"] == "es-ES"]
    assert page.evaluate(SEEN) == spanish
    assert page.evaluate("document.getElementById('count').textContent") == f"3 of {len(ROWS)} launches"
    trends = "[...document.querySelectorAll('.trend')].filter(e => e.checkVisibility()).map(e => e.dataset.locale)"
    assert page.evaluate(trends) == ["es-ES"]
    choose(page, "feature", "SC")
    assert page.evaluate(SEEN) == ["es-ES-77aa10b3"]
    choose(page, "decision", "hold")
    assert page.evaluate(SEEN) == []
    sent = page.evaluate("location.hash")
    assert sent == "#locale=es-ES&feature=SC&decision=hold"
    page.open("about:blank", 1200)
    page.open(f"{index.as_uri()}#locale=en-US&decision=hold&feature=none", 1200)
    assert page.evaluate(SEEN) == ["en-US-3f9d1c20"]
    page.evaluate("document.querySelector('#filters button').click()")
    page.evaluate("new Promise(done => setTimeout(done, 50))")
    assert page.evaluate(SEEN) == ROWS


def test_without_its_script_everything_is_listed(page: Page, index: Path) -> None:
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page.open(index, 1200)
        seen = page.call("Runtime.evaluate", expression=f"JSON.stringify({SEEN})", returnByValue=True)
        assert all(f'"{name}"' in seen["result"]["value"] for name in ROWS)
        assert page.evaluate("document.getElementById('filters').checkVisibility()") is False
    finally:
        page.call("Emulation.setScriptExecutionDisabled", value=False)


def test_on_paper_it_is_tables_without_filters(page: Page, index: Path) -> None:
    page.open(index, 390)
    page.call("Emulation.setEmulatedMedia", media="print")
    try:
        assert page.evaluate("document.getElementById('filters').checkVisibility()") is False
        heads = "[...document.querySelectorAll('thead')].every(each => each.checkVisibility())"
        assert page.evaluate(heads), "a phone's cards stay on the screen"
        assert page.evaluate("getComputedStyle(document.querySelector('.list tr')).display") == "table-row"
        assert page.evaluate(SEEN) == ROWS
    finally:
        page.call("Emulation.setEmulatedMedia", media="")
