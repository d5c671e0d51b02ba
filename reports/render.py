"""The disclosure as files: JSON for machines, HTML and Markdown for people.

Every number comes from the ``Disclosure``; templates only lay it out. Privacy losses are
rounded up: what is printed may be weaker than the truth, never stronger.
"""

import math
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from reports.disclosure import Disclosure
from reports.figures import all_figures

TEMPLATES = Path(__file__).parent / "templates"
_WEAK, _REASONABLE = 10.0, 1.0


def render(disclosure: Disclosure, directory: Path) -> list[Path]:
    """Write ``disclosure.json``, ``report.html``, ``report.md`` and the model card into ``directory``."""
    figures = all_figures(disclosure)
    contents = {
        "disclosure.json": disclosure.model_dump_json(indent=1) + "\n",
        "report.html": _fill("report.html.j2", disclosure, figures, escape=True),
        "report.md": _fill("report.md.j2", disclosure, {}, escape=False),
        "README.md": _fill("model_card.md.j2", disclosure, {}, escape=False),
    }
    paths = []
    for name, content in contents.items():
        path = directory / name
        temporary = directory / f".{name}.tmp"
        temporary.write_text(content, encoding="utf-8")
        temporary.replace(path)
        paths.append(path)
    return paths


def strength(epsilon: float) -> str:
    """A plain word for an epsilon, after the tiers of Ponomareva et al. 2023, section 5.2."""
    if epsilon <= _REASONABLE:
        return "strong"
    return "reasonable" if epsilon <= _WEAK else "weak"


def up(value: float | None, digits: int = 2) -> str:
    """A privacy loss, rounded up."""
    if value is None:
        return "none"
    scale = 10.0**digits
    return f"{math.ceil(round(value * scale, 6)) / scale:.{digits}f}"


def percent(value: float) -> str:
    """A share in percent."""
    return f"{100 * value:.2f}%"


def points(value: float) -> str:
    """A difference of shares in percentage points, with its sign."""
    return f"{100 * value:+.2f}"


def number(value: float | None) -> str:
    """A count or a plain figure."""
    if value is None:
        return "–"
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:.4g}"


def cell(value: object) -> str:
    """Text that cannot break out of a Markdown table."""
    return str(value).replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def _fill(template: str, disclosure: Disclosure, figures: dict[str, str], *, escape: bool) -> str:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for filter_function in (up, percent, points, number, strength, cell):
        environment.filters[filter_function.__name__] = filter_function
    drawn = {name: Markup(svg) for name, svg in figures.items()}
    return environment.get_template(template).render(d=disclosure, figures=drawn)
