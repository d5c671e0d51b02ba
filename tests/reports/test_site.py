"""The site of launches: what its index lists, links and draws."""

import base64
import hashlib
import html
import logging
import re
from pathlib import Path

import pytest

from reports import site
from reports.keyboard import Writing
from reports.site import Launches
from tests.helpers.reports.keyboard_run import add_published, add_report, no_public_model, published_in
from tests.helpers.reports.listed_launches import LAUNCHES, row
from tests.helpers.reports.reports_example import visible


def index(runs: Path, launches: Launches | None = None) -> str:
    """The index of runs, made where no runtime for keyboards is."""
    made = site.build(
        runs, runs / "nothing", lambda locale: Writing((), {}), published_in(runs), no_public_model, launches
    )
    return made.index.read_text(encoding="utf-8")


def listed(page: str) -> dict[str, str]:
    """What the table says of each launch, by its id."""
    rows = re.findall(r'<tbody role="rowgroup" id="([^"]*)"[^>]*>(.*?)</tbody>', page, flags=re.DOTALL)
    return {name: " ".join(visible(text).split()) for name, text in rows}


def test_nothing_here_yet(tmp_path: Path) -> None:
    assert "tacit launch FILE" in visible(index(tmp_path))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return index(tmp_path_factory.mktemp("runs"), LAUNCHES)


def test_every_launch_is_listed_with_its_numbers_or_why_it_has_none(page: str) -> None:
    rows = listed(page)
    assert list(rows) == [each["launch_id"] for each in LAUNCHES.rows]
    published = rows["en-US-90c1e2f4"]
    for shown in ("NWP, SC, OTF", "launch, published", "0.4500", "4.62 at δ 1e-10", "+3.4 points (+3.0 to +3.8)"):
        assert shown in published
    assert "2026-09-28 ana, luis" in published
    assert "hold, held" in rows["en-US-3f9d1c20"]
    assert "at least +0.5 wanted" in rows["en-US-3f9d1c20"]
    assert "failed – – – 2026-11-03" in rows["fr-FR-1b2c3d4e"]
    assert "exit code 65 (BudgetExceeded)" in rows["fr-FR-1b2c3d4e"]
    assert "unfinished (fine_tune runs)" in rows["demo-en-GB-5e6f7a8b"]
    assert "a simulation" in rows["demo-en-GB-5e6f7a8b"]
    text = " ".join(visible(page).split())
    assert "pt-BR-aa00bb11-20261001 br-keyboards rho 0.45 by fine_tune; epsilon per typed word 8 by discover" in text


def test_users_have_what_was_published_and_not_what_came_after(page: str) -> None:
    (table,) = re.findall(r'<table class="grid".*?</table>', page, flags=re.DOTALL)
    rows = {
        name: cells.split("</td>")
        for name, cells in re.findall(r'<tr role="row" data-locale="([^"]*)">(.*?)</tr>', table)
    }
    english = [" ".join(visible(cell).split()) for cell in rows["en-US"]]
    assert "published 2026-09-28" in english[0]
    assert "since then: held 2026-10-26" in english[0]
    assert "since then" not in english[1]
    assert "waiting 2026-10-12" in " ".join(visible(rows["es-ES"][1]).split()), (
        "nothing was published for Smart Compose"
    )


def test_noise_that_was_seeded_is_said(tmp_path: Path) -> None:
    assert "protects nobody" in listed(index(tmp_path, Launches((row("one", seeded=True),))))["one"]


def test_links_lead_to_what_is_there(tmp_path: Path) -> None:
    add_published(tmp_path, "one")
    add_report(tmp_path, "two")
    for name in ("one", "two"):
        (tmp_path / name / "public" / "report" / "report.html").write_text("", encoding="utf-8")
    (tmp_path / "two" / "public" / "report" / "report.pdf").write_bytes(b"")
    page = index(tmp_path, Launches((row("one"), row("two"), row("three"))))
    links = dict.fromkeys(re.findall(r'href="([^#"]+)"', page))
    assert list(links) == [
        *(
            "one/public/report/report.html",
            "one/public/report/disclosure.json",
            "one/public/publish/bundle/bundle.json",
        ),
        *("two/public/report/report.html", "two/public/report/report.pdf", "two/public/report/disclosure.json"),
    ]
    assert all((tmp_path / address).is_file() for address in links)
    assert "make web" in visible(page), "one launch could have a keyboard"


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    add_report(tmp_path, "older").write_text("{}", encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        page = index(tmp_path, Launches((row("newer"),)))
    assert "Not read" in visible(page)
    assert 'href="older/public/report/disclosure.json"' in page
    assert "not a disclosure of this version" in caplog.text


def test_figures_say_in_words_what_they_show(page: str) -> None:
    figures = re.findall(r"<svg\b.*?</svg>", page, flags=re.DOTALL)
    titles = [re.search(r"<title[^>]*>(.*?)</title>", svg)[1] for svg in figures]
    assert titles == [
        f"{what}, {locale}" for locale in ("en-US", "es-ES") for what in ("Budget spent", "Gain of each launch")
    ]
    told = [re.search(r"<desc[^>]*>(.*?)</desc>", svg)[1] for svg in figures]
    assert "us-keyboards, in any 60 days: rho 0.9000 of 1; us-keyboards, for ever: rho 1.8000 of 4" in told[0]
    assert told[1].endswith("en-US-3f9d1c20 +0.3 (-0.1 to +0.7).")
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_what_a_launch_says_of_itself_is_text(tmp_path: Path) -> None:
    page = index(tmp_path, Launches((row("one", detail="</td><script>alert(1)</script>", approvers=["<b>"]),)))
    assert "<script>alert" not in page
    assert "<b>" not in page
    (script,) = re.findall(r"<script[^>]*>(.*?)</script>", page, flags=re.DOTALL)
    policy = html.unescape(re.findall(r'Content-Security-Policy" content="([^"]*)"', page)[0])
    assert policy.startswith("default-src 'none'; ")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"; script-src 'sha256-{digest}'; " in policy, "its own script and no other"
