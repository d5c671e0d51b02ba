"""The report on paper: its page as a PDF, by WeasyPrint, which needs Pango and a font of the machine."""

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
# The picture of where the launch stands, which changes while paper does not.
_STANDING = re.compile(r'<p><img class="standing"[^>]*></p>')
_NEEDED = "as root: apt-get install libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0 fonts-dejavu-core"


def printed(page: str, created_at: str) -> bytes | None:
    """A page as PDF, with bookmarks and tags for those who have it read aloud; the same bytes every time, on a machine.

    A function of the page and the date alone: no clock, no order of a set, nothing printed before. Another machine's
    fonts and libraries give other bytes. Nothing is fetched.

    Args:
      created_at: what the file says of its date.

    Returns:
      None where the machine lacks what WeasyPrint needs; the log says what.
    """
    try:
        # Slow to import, and the first to notice that a library is missing; it reads its own rules meanwhile.
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
    """Let fonts in the file keep their own date.

    fontTools writes the time into every font that it saves: those that vary in weight, those with coloured glyphs, and
    all of them where the machine has no HarfBuzz-Subset.
    """
    from fontTools.ttLib import TTFont

    fonts.TTFont = partial(TTFont, recalcTimestamp=False)  # type: ignore[attr-defined]


def _refuse(url: str, *_: Any, **__: Any) -> NoReturn:
    raise ValueError(f"{url}: a report asks for nothing")


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the libraries say of rules for screens, and of libraries that they will need some day."""
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
