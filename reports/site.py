"""An index of every launch that has a report, and a keyboard for each that was published: static pages.

runs/index.html           the index
runs/keyboards/ID.html    a launch's model to type on (``keyboard.py``)
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pydantic import ValidationError

from pretrain.files import write_text
from reports import keyboard
from reports.disclosure.document import Disclosure
from reports.keyboard import Writing
from reports.render import environment

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Site:
    """Pages that were written, and how many launches could have a keyboard but have none for want of the runtime."""

    index: Path
    keyboards: tuple[Path, ...]
    without: int


def build(
    runs_dir: Path, web: Path, writing: Callable[[str], Writing], states: Mapping[str, str] = MappingProxyType({})
) -> Site:
    """Write ``runs_dir/index.html``, newest launch first, and the keyboards.

    A disclosure that this version cannot read is listed by its folder, without numbers. Keyboards of launches that
    are no longer there, or no longer published, are removed. Without the runtime those of before stay.

    Args:
      web: folder of ``make web``.
      writing: how a locale is typed.
      states: where launches stand, by id; without it what the gates said.
    """
    runtime = keyboard.load_runtime(web)
    rows, unreadable, without = [], [], 0
    pages: list[Path] = []
    for path in sorted(runs_dir.glob("*/public/report/disclosure.json")):
        run, report = path.parents[2], path.with_name("report.html").relative_to(runs_dir).as_posix()
        try:
            disclosure = Disclosure.model_validate_json(path.read_bytes())
        except ValidationError:
            _LOG.warning("%s: not a disclosure of this version; listed without numbers", path)
            unreadable.append((run.name, report))
            continue
        bundle, page = keyboard.bundle_of(run, disclosure), runs_dir / "keyboards" / f"{run.name}.html"
        if bundle and runtime:
            typed = writing(disclosure.launch.locale)
            keyboard.write(page, bundle, disclosure, f"../{report}", typed, runtime)
        if bundle and page.exists():
            pages.append(page)
        elif bundle:
            without += 1
        shown = page.relative_to(runs_dir).as_posix() if page in pages else None
        state = states.get(run.name, disclosure.decision.decision)
        rows.append((disclosure, report, shown, _top1(disclosure), state))
    for old in set((runs_dir / "keyboards").glob("*.html")) - set(pages):
        old.unlink()
    rows.sort(key=lambda row: (row[0].launch.created_at, row[0].launch.id), reverse=True)
    template = environment(html=True).get_template("site.html.j2")
    index = runs_dir / "index.html"
    write_text(index, template.render(rows=rows, unreadable=unreadable, without=without))
    return Site(index, tuple(pages), without)


def _top1(disclosure: Disclosure) -> float | None:
    arms = disclosure.utility.arms if disclosure.utility else ()
    return next((row.value for row in arms if (row.arm, row.metric) == ("private", "top1_recall")), None)
