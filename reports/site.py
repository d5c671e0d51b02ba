"""The site of all launches: an index with the loss and gain of each, and a keyboard page for each published launch.

runs/index.html           the index
runs/keyboards/ID.html    a launch's model to type on (``keyboard.py``)

Static pages: no server, no network. Without its script the index lists everything; the script filters.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from pydantic import ValidationError

from pretrain.files import write_text
from reports import keyboard, listed
from reports.disclosure.document import Disclosure
from reports.keyboard import Writing
from reports.listed import Row
from reports.render import environment

if TYPE_CHECKING:
    from reports.figures.trends import Course

# Launch id -> digests of the files that its stage ``publish`` wrote; empty if it published nothing, or if the ledger
# does not hold its record.
PublishedFiles = Callable[[str], Mapping[str, str]]
# A launch's public model as a graph of int8 weights, by its id and its bundle; None where its files are gone.
PublicModel = Callable[[str, Path], bytes | None]
_LOG = logging.getLogger(__name__)
_WEB = Path(__file__).parent / "web"
# Pages of a launch, relative to its public folder, with their labels.
_FILES = (("report", "report/report.html"), ("PDF", "report/report.pdf"))
_MORE = (("disclosure", "report/disclosure.json"), ("bundle", "publish/bundle/bundle.json"))
_DONE = frozenset({"published", "approved"})
_STOPPED = frozenset({"held", "rejected", "rolled back", "failed"})


@dataclass(frozen=True)
class LedgerLaunch:
    """A launch in the ledger without a folder on this machine.

    Attributes:
      spent: each amount in words.
      began, ended: times of its first and last entry.
    """

    launch_id: str
    populations: tuple[str, ...]
    spent: tuple[str, ...]
    began: str
    ended: str
    approvers: tuple[str, ...]


@dataclass(frozen=True)
class Launches:
    """Content of the index.

    Attributes:
      rows: launches of this machine as ``tacit runs`` lists them, the newest first.
      courses: loss of each population over time.
    """

    rows: Sequence[Row] = ()
    elsewhere: Sequence[LedgerLaunch] = ()
    courses: "Sequence[Course]" = ()


@dataclass(frozen=True)
class Site:
    """Written pages, and the number of launches without a keyboard page because the runtime is missing."""

    index: Path
    keyboards: tuple[Path, ...]
    without: int


def build(
    runs_dir: Path,
    web: Path,
    writing: Callable[[str], Writing],
    published: PublishedFiles,
    public_model: PublicModel,
    launches: Launches | None = None,
) -> Site:
    """Write ``runs_dir/index.html`` and the keyboards.

    The index names a folder that is no launch of this version, without numbers. Keyboards of launches that are no
    longer present, or no longer published, are removed. Without the runtime, existing keyboards stay.

    Args:
      web: folder of ``make web``.
      writing: typing rules of a locale.
      published: files that a launch published, by its id.
      launches: their rows; by default none, so the index only names the folders.
    """
    launches = launches or Launches()
    pages, without = _keyboards(runs_dir, web, writing, published, public_model)
    names = {row["launch_id"] for row in launches.rows}
    files = [*runs_dir.glob("*/public/launch/launch.json"), *runs_dir.glob("*/public/report/disclosure.json")]
    others = sorted({path.parents[2].name for path in files} - names)
    script = (_WEB / "site.js").read_text(encoding="utf-8")
    values = {
        "rows": [_shown(row) for row in launches.rows],
        "links": {name: _links(runs_dir, name, pages) for name in (*names, *others)},
        "now": _standing(launches.rows),
        "figures": _figures(launches),
        "elsewhere": launches.elsewhere,
        "others": others,
        "without": without,
        "made": listed.minute(datetime.now(UTC)),
        "style": Markup((_WEB / "site.css").read_text(encoding="utf-8")),
        "script": Markup(script),
        "digest": keyboard.digest(script),
        "minute": listed.minute,
        "gain": listed.gain,
    }
    index = runs_dir / "index.html"
    write_text(index, environment(html=True).get_template("site.html.j2").render(values))
    return Site(index, tuple(pages.values()), without)


def _keyboards(
    runs_dir: Path,
    web: Path,
    writing: Callable[[str], Writing],
    published: PublishedFiles,
    public_model: PublicModel,
) -> tuple[dict[str, Path], int]:
    """Keyboard pages by launch, and the number of launches that lack one because the runtime is missing."""
    runtime, pages, without = keyboard.load_runtime(web), dict[str, Path](), 0
    for path in sorted(runs_dir.glob("*/public/report/disclosure.json")):
        run, report = path.parents[2], path.with_name("report.html").relative_to(runs_dir).as_posix()
        try:
            disclosure = Disclosure.model_validate_json(path.read_bytes())
        except ValidationError:
            _LOG.warning("%s: not a disclosure of this version; its launch gets no keyboard", path)
            continue
        bundle = keyboard.bundle_of(run, disclosure, published(run.name))
        page = runs_dir / "keyboards" / f"{run.name}.html"
        if bundle and runtime:
            typed = writing(disclosure.launch.locale)
            start = public_model(run.name, bundle)
            keyboard.write(page, bundle, disclosure, f"../{report}", typed, runtime, start)
        if bundle and page.exists():
            pages[run.name] = page
        elif bundle:
            without += 1
    for old in set((runs_dir / "keyboards").glob("*.html")) - set(pages.values()):
        old.unlink()
    return pages, without


def _shown(row: Row) -> dict[str, Any]:
    """A row with its display state, its colour and its decision."""
    state = listed.shown_state(row)
    mood = "pass" if state in _DONE else "fail" if state in _STOPPED else "wait"
    return {**row, "shown": state, "mood": mood, "decided": row["decision"] or "undecided"}


def _links(runs_dir: Path, name: str, keyboards: Mapping[str, Path]) -> list[tuple[str, str]]:
    """Links to a launch's pages: the name of each, and its address from the index."""
    public = runs_dir / name / "public"
    files = [(label, public / path) for label, path in (*_FILES, *_MORE) if (public / path).is_file()]
    if name in keyboards:
        files.append(("keyboard", keyboards[name]))
    return [(label, path.relative_to(runs_dir).as_posix()) for label, path in files]


def _standing(rows: Iterable[Row]) -> dict[str, dict[str, tuple[Row, Row | None]]]:
    """Newest published launch per locale and feature, with the newest later launch; else the newest launch."""
    newest: dict[str, dict[str, list[Row]]] = {}
    for row in map(_shown, rows):
        for feature in row["features"]:
            newest.setdefault(row["locale"], {}).setdefault(feature, []).append(row)
    table: dict[str, dict[str, tuple[Row, Row | None]]] = {}
    for locale, features in sorted(newest.items()):
        for feature, by_version in features.items():
            first = next((row for row in by_version if row["state"] == "published"), by_version[0])
            table.setdefault(locale, {})[feature] = (first, by_version[0] if by_version[0] is not first else None)
    return table


def _figures(launches: Launches) -> dict[str, list[Markup]]:
    """Trusted SVG by locale: budget, then gain; locales without data are left out."""
    populations: dict[str, dict[str, None]] = {}
    for row in launches.rows:
        populations.setdefault(row["locale"], {})[row["population"]] = None
    figures = {}
    for locale, names in sorted(populations.items()):
        courses = [course for course in launches.courses if course.population in names]
        gained = [row for row in launches.rows if row["locale"] == locale and row["top1_gain"] is not None]
        if courses or gained:
            figures[locale] = _drawn(locale, courses, gained[::-1])
    return figures


def _drawn(locale: str, courses: "Sequence[Course]", gained: Sequence[Row]) -> list[Markup]:
    # Slow to import: matplotlib.
    from reports.figures.trends import of_budget, of_gain

    drawn = [of_budget(locale, courses)] if courses else []
    drawn += [of_gain(locale, gained)] if gained else []
    return [Markup(svg) for svg in drawn]
