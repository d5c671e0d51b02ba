"""The report in a real browser: it fits narrow and wide screens and asks nobody for anything."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.helpers.reports.reports_example import rendered

pytestmark = pytest.mark.browser

# Runs in the test's copy of the page only; the report itself has no script.
_MEASURE = """<script>addEventListener("load", () => {
  const wide = [...document.querySelectorAll("main > *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1);
  const flat = [...document.querySelectorAll("svg")].filter(e => e.getBoundingClientRect().height < 60);
  const asked = performance.getEntriesByType("resource").map(e => e.name);
  document.documentElement.dataset.measured =
    `wide=${wide.length} flat=${flat.length} asked=${asked.length} figures=${document.querySelectorAll("svg").length} `
    + `scroll=${document.documentElement.scrollWidth > innerWidth + 1}`;
});</script>"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [600, 1200])
def test_report_fits_and_is_complete(chromium: str, tmp_path: Path, width: int) -> None:
    page = tmp_path / "measured.html"
    # The page lets no script run, so the one that measures is let in by hand.
    report = re.sub(r"<meta http-equiv=\"Content-Security-Policy\"[^>]*>", "", rendered()["report.html"])
    assert report != rendered()["report.html"]
    page.write_text(report.replace("</body>", f"{_MEASURE}</body>"), encoding="utf-8")
    quiet = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run")
    flags = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--virtual-time-budget=3000",
        "--dump-dom",
    )
    done = subprocess.run(
        [
            chromium,
            *flags,
            *quiet,
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--window-size={width},900",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    measured = re.search(r'data-measured="([^"]*)"', done.stdout)
    assert measured is not None, done.stderr[-2000:]
    assert measured[1] == f"wide=0 flat=0 asked=0 figures={report.count('<svg')} scroll=false"
    assert report.count("<svg") == 13
