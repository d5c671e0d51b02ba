"""The report as PDF, by WeasyPrint, which needs Pango and a font of the machine."""

import hashlib
import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any, NoReturn

_log = logging.getLogger(__name__)
# The picture of the launch's state, which changes later; a PDF leaves it out.
_STANDING = re.compile(r'<p><img class="standing"[^>]*></p>')
_NEEDED = "as root: apt-get install libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0 fonts-dejavu-core"


def printed(page: str, created_at: str) -> bytes | None:
    """A page as PDF, with bookmarks and with tags for screen readers; the same bytes every time on one machine.

    The bytes depend only on the page, the date, and the fonts and libraries of the machine. Nothing is fetched.

    Args:
      created_at: date of the file's metadata.

    Returns:
      None if the machine lacks a library of WeasyPrint; the log names it.
    """
    try:
        # The import is slow, fails if a library is missing, and logs warnings about its own style sheets.
        with _quiet():
            import weasyprint

            _keep_dates(weasyprint.pdf.fonts)
    except (ImportError, OSError) as error:
        _log.warning("report.pdf is left out: %s; %s", str(error).splitlines()[0], _NEEDED)
        return None
    with _quiet():
        document = weasyprint.HTML(string=_STANDING.sub("", page), url_fetcher=_refuse).render()
        document.metadata.created = created_at
        identifier = hashlib.sha256(page.encode()).digest()[:16]
        return document.write_pdf(pdf_variant="pdf/ua-1", pdf_identifier=identifier)


def _keep_dates(fonts: ModuleType) -> None:
    """Keep the original date of each font in the file.

    fontTools writes the current time into every font that it saves: variable fonts, fonts with coloured glyphs, and
    all fonts if the machine has no HarfBuzz-Subset.
    """
    from fontTools.ttLib import TTFont

    fonts.TTFont = partial(TTFont, recalcTimestamp=False)  # type: ignore[attr-defined]


def _refuse(url: str, *_: Any, **__: Any) -> NoReturn:
    raise ValueError(f"{url}: a report fetches nothing")


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the libraries' messages about style rules for screens and about deprecations."""
    loggers = [logging.getLogger(name) for name in ("weasyprint", "weasyprint.progress", "fontTools")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
