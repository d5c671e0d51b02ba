"""The report on paper: all of it, the same bytes every time, and a launch goes on where it cannot be printed."""

import importlib
import logging
import re
import struct
import sys
import zlib
from pathlib import Path

import pytest

from pipeline.publication.gates.words import GATES
from reports.formats import METRICS
from reports.paper import printed
from reports.render import PAGE, PDF, render
from tests.helpers.reports.reports_example import block, drawn, example, rendered


def inside(paper: bytes | None) -> bytes:
    """What a PDF's compressed parts hold."""
    parts = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", paper or b"", flags=re.DOTALL)
    return b"".join(zlib.decompressobj().decompress(part) for part in parts if part.startswith(b"x"))


CREATED = "2026-01-02T03:04:05+00:00"
SINCE_1904 = 2_082_844_800  # where a font's clock begins


def font_dates(paper: bytes | None) -> list[int]:
    """The last four bytes of when each font in a PDF was changed, by the font."""
    found = []
    for part in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", paper or b"", flags=re.DOTALL):
        content = zlib.decompressobj().decompress(part) if part.startswith(b"x") else b""
        if content.startswith(b"\0\1\0\0"):
            tables = struct.iter_unpack(">4s4xLL", content[12 : 12 + 16 * int.from_bytes(content[4:6])])
            (head,) = (start for tag, start, _ in tables if tag == b"head")
            found.append(int.from_bytes(content[head + 32 : head + 36]))
    return found


@pytest.mark.parametrize("subset_by", ["harfbuzz", "fonttools"])
@pytest.mark.slow
def test_no_clock_stands_in_a_font(monkeypatch: pytest.MonkeyPatch, subset_by: str) -> None:
    """Where HarfBuzz-Subset is missing, or a font varies, fontTools saves the fonts, and knows the time."""
    page = "<html lang='en'><head><title>t</title></head><body><p>Plain <b>bold</b> <i>slanted</i></p></body></html>"
    assert printed(page, CREATED)  # has imported it
    fonts = importlib.import_module("weasyprint.pdf.fonts")
    if subset_by == "fonttools":
        monkeypatch.setattr(fonts, "harfbuzz_subset", None)
    first_day = 1_800_000_000
    sheets = set()
    for now in range(first_day, first_day + 3 * 86_400, 86_400):
        monkeypatch.setattr("fontTools.misc.timeTools.time.time", lambda now=now: now)
        sheets.add(printed(page, CREATED))
    (sheet,) = sheets
    assert font_dates(sheet)
    assert max(font_dates(sheet)) < first_day + SINCE_1904  # the fonts' own


@pytest.mark.slow
def test_paper_is_the_same_every_time_and_has_tags_and_a_date() -> None:
    page = rendered()[PAGE].split("<nav")[0] + "</main></body></html>"
    paper = printed(page, CREATED)
    assert paper is not None
    assert paper.startswith(b"%PDF-1.7")
    assert paper == printed(page, CREATED)
    assert paper != printed(page.replace("</main>", "<p>More.</p></main>"), CREATED)
    assert b"/MarkInfo" in inside(paper)  # tags, for those who have it read aloud
    assert b"D:20260102030405" in inside(paper)


@pytest.mark.slow
def test_what_is_folded_is_printed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    style = re.search(r"<style>.*?</style>", rendered()[PAGE], flags=re.DOTALL)
    assert style
    head = f'<html lang="en"><head><title>t</title>{style[0]}</head>'
    rows = "".join(f"<p>{number}</p>" for number in range(300))
    sheets = [
        printed(f"{head}<body>{opening}{rows}{end}</body></html>", CREATED)
        for opening, end in (("", ""), ("<details><summary>more</summary>", "</details>"))
    ]
    plain, folded = (int(re.findall(rb"/Count (\d+)", inside(sheet))[-1]) for sheet in sheets)
    assert folded >= plain > 3
    assert not [record for record in caplog.records if record.name.startswith("weasyprint")]  # nobody wants its steps


@pytest.mark.slow
def test_a_report_is_four_pages_on_paper() -> None:
    """Of a launch with every gate, and with every metric of six arms."""
    gate, row = block("decision")["gates"][0], block("utility")["arms"][0]
    gates = [gate | {"id": name, "asks": words.asks} for name, words in GATES.items() if not name.startswith("live")]
    names = ("private", "start", "ngram", "counts", "non_private", "public_mixture")
    arms = [row | {"arm": arm, "metric": metric} for arm in names for metric in METRICS]
    utility = block("utility", arms=arms, features={"NWP": list(METRICS)})
    page = rendered(decision=block("decision", gates=gates), utility=utility)[PAGE]
    assert 3 <= len(re.findall(rb"/Type ?/Page\b", inside(printed(page, CREATED)))) <= 4


def test_without_a_library_the_report_is_whole_but_for_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Missing:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "weasyprint":
                raise OSError("cannot load library 'libpango-1.0-0'")

    monkeypatch.delitem(sys.modules, "weasyprint", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    monkeypatch.setattr("reports.render.draw", lambda _: drawn())
    with caplog.at_level(logging.WARNING):
        paths = render(example(), tmp_path, prints=True)
    assert PDF not in {path.name for path in paths}
    assert PAGE in {path.name for path in paths}
    assert "report.pdf is left out: cannot load library 'libpango-1.0-0'" in caplog.text
    assert "apt-get install libpango" in caplog.text
