"""An index of every launch that has a report: one static page, nothing to serve."""

import logging
from pathlib import Path

from pydantic import ValidationError

from pretrain.files import write_text
from reports.disclosure.document import Disclosure
from reports.render import environment

_LOG = logging.getLogger(__name__)


def build(runs_dir: Path) -> Path:
    """Write ``runs_dir/index.html``, newest launch first, and return it.

    A disclosure that this version cannot read is listed by its folder, without numbers.
    """
    rows, unreadable = [], []
    for path in sorted(runs_dir.glob("*/public/report/disclosure.json")):
        link = path.with_name("report.html").relative_to(runs_dir).as_posix()
        try:
            disclosure = Disclosure.model_validate_json(path.read_bytes())
        except ValidationError:
            _LOG.warning("%s: not a disclosure of this version; listed without numbers", path)
            unreadable.append((link.split("/")[0], link))
            continue
        rows.append((disclosure, link, _top1(disclosure)))
    rows.sort(key=lambda row: (row[0].launch.created_at, row[0].launch.id), reverse=True)
    page = environment(html=True).get_template("site.html.j2").render(rows=rows, unreadable=unreadable)
    index = runs_dir / "index.html"
    write_text(index, page)
    return index


def _top1(disclosure: Disclosure) -> float | None:
    arms = disclosure.utility.arms if disclosure.utility else ()
    return next((row.value for row in arms if (row.arm, row.metric) == ("private", "top1_recall")), None)
