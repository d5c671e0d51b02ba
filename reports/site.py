"""An index of every launch that has a report: one static page, nothing to serve."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import ValidationError

from reports.disclosure import Disclosure
from reports.render import TEMPLATES, percent, up


def build(runs_dir: Path) -> Path:
    """Write ``runs_dir/index.html``, newest launch first, and return it.

    Raises:
      ValueError: a disclosure that this version cannot read; names the file.
    """
    rows = []
    for path in runs_dir.glob("*/public/report/disclosure.json"):
        try:
            disclosure = Disclosure.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise ValueError(f"{path}: not a disclosure of this version; move the run elsewhere") from error
        rows.append((disclosure, path.with_name("report.html").relative_to(runs_dir).as_posix(), _top1(disclosure)))
    rows.sort(key=lambda row: (row[0].launch.created_at, row[0].launch.id), reverse=True)
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters.update(up=up, percent=percent)
    page = runs_dir / "index.html"
    temporary = page.with_name(".index.html.tmp")
    temporary.write_text(environment.get_template("site.html.j2").render(rows=rows), encoding="utf-8")
    temporary.replace(page)
    return page


def _top1(disclosure: Disclosure) -> float | None:
    arms = disclosure.utility.arms if disclosure.utility else ()
    return next((row.value for row in arms if (row.arm, row.metric) == ("private", "top1_recall")), None)
