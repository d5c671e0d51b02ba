"""The disclosure as files: JSON for machines, Markdown and HTML for people.

Every number comes from the ``Disclosure``; templates only lay it out. Each sentence is written once, in a
template of ``report.md``, and the page is rendered from that Markdown. Privacy losses are rounded up: a
printed guarantee may be weaker than the computed one, never stronger.
"""

import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pretrain.files import write_bytes, write_text
from reports import appendix, formats, markdown
from reports.disclosure import schema
from reports.disclosure.document import Disclosure
from reports.front import front, uncovered
from reports.languages import PICTURES, languages
from reports.listed import foreseen
from reports.losses import strength, up
from reports.paper import printed
from reports.worst import worst_facts

PAGE, PDF, CARD = "report.html", "report.pdf", "README.md"
# OpenDP's registry (github.com/opendp/deployments-registry-data) checks records by a schema that changes without a
# version. This day and commit identify the schema for which the template was written; each record and the name of
# ``opendp-DAY.schema.json`` repeat the day. That file restates the schema's fields and closed lists in our own words;
# rewrite it when the template moves to another day.
OPENDP_DAY, OPENDP_COMMIT = "2026-07-15", "3e9c812a924cf01d228f26f6c462c59c391c3f2a"
OPENDP_FILE = "opendp_registry.yaml"  # the registry wants small letters, digits and underscores
TEMPLATES = Path(__file__).parent / "templates"
_FILTERS = (
    formats.arm_name,
    formats.arms,
    formats.at_least,
    formats.canaries_held,
    formats.canaries_trained,
    formats.card_metric,
    formats.changes,
    formats.compared,
    formats.compared_metrics,
    formats.shown_arms,
    formats.feature_name,
    formats.how_hidden,
    formats.light,
    formats.metric_name,
    formats.most_exposed,
    formats.metric_value,
    formats.number,
    formats.on_fewest,
    formats.percent,
    formats.confidence,
    strength,
    uncovered,
    worst_facts,
    up,
    formats.warnings,
    foreseen,
    markdown.code,
    markdown.yaml,
)


def render(disclosure: Disclosure, directory: Path, *, prints: bool = False) -> list[Path]:
    """Write ``disclosure.json`` and its JSON Schema, the report as page and Markdown, its appendix, and the model card.

    Args:
      prints: also print the page to ``report.pdf``, if this machine can.

    Raises:
      OSError: the directory cannot be written.
    """
    drawn = draw(disclosure)
    contents = {"disclosure.json": as_json(disclosure), "disclosure.schema.json": schema.as_json()} | pages(
        disclosure, drawn
    )
    contents |= {f"figures/{name}.svg": svg for name, svg in drawn.items()} | appendix.files(disclosure)
    for name, content in contents.items():
        write_text(directory / name, content)
    if prints and (paper := printed(contents[PAGE], disclosure.launch.created_at)) is not None:
        write_bytes(directory / PDF, paper)
        return [directory / name for name in (*contents, PDF)]
    return [directory / name for name in contents]


def as_json(disclosure: Disclosure) -> str:
    """The disclosure as the text of ``disclosure.json``."""
    return disclosure.model_dump_json(indent=1) + "\n"


def draw(disclosure: Disclosure) -> dict[str, str]:
    """Every figure that has data: SVG by name."""
    # Slow to import: matplotlib.
    from reports.figures.audit import of_audits
    from reports.figures.comparison import of_utility
    from reports.figures.discovery import of_discovery
    from reports.figures.first_page import of_first_page
    from reports.figures.training import of_training

    figures = of_training(disclosure) | of_discovery(disclosure)
    return of_first_page(disclosure) | figures | of_audits(disclosure.audit) | of_utility(disclosure.utility)


def pages(disclosure: Disclosure, figures: Mapping[str, str]) -> dict[str, str]:
    """Files for readers, by name: the report as a page and as Markdown, the model card, and a record for a registry.

    Only a deployment gets the record.
    """

    def figure(name: str, caption: str) -> Markup:
        return markdown.figure(name, caption) if name in figures else Markup("")

    def picture(language: str) -> Markup:
        return figure(f"first_page_{language}", f"{PICTURES[language]['title']}.")

    fronts = {
        language: _written(f"front/{language}.md", front(disclosure, language) | {"picture": picture(language)})
        for language in languages(disclosure)
    }
    beside = {"tables": appendix.tables(disclosure), "folder": appendix.FOLDER, "figures": sorted(figures)}
    parts = {
        "opening": _written("opening.md", {"d": disclosure}),
        "body": _written("report.md", {"d": disclosure, "figure": figure} | beside),
    }
    shown = {name: markdown.to_html(text, figures) for name, text in parts.items()}
    shown_fronts = {language: markdown.to_html(text, figures) for language, text in fronts.items()}
    template = environment(html=True).get_template("report.html.j2")
    written = {
        PAGE: template.render(d=disclosure, fronts=shown_fronts, **shown),
        "report.md": "\n".join((parts["opening"], *fronts.values(), parts["body"])),
        CARD: model_card(disclosure),
    }
    if _deployed(disclosure):
        written[OPENDP_FILE] = _written("opendp_registry.yaml", _opendp_values(disclosure))
    return written


def model_card(disclosure: Disclosure) -> str:
    """Model card, for readers who have the bundle alone."""
    return _written("model_card.md", {"d": disclosure})


def _written(template: str, values: Mapping[str, Any]) -> str:
    # Omitted parts leave blank lines and spaces behind.
    text = environment(html=False).get_template(f"{template}.j2").render(values, told=_told(values))
    return re.sub(r"\s*\n\n+", "\n\n", text).strip() + "\n"


def _told(values: Mapping[str, Any]) -> Callable[..., Markup]:
    """Function that returns the text of a launch's releases for one place of a page.

    The text of a release is the macro named after the place in ``releases/NAME.md.j2``, if there is one.
    """
    made, delta = environment(html=False), f"{values['d'].accounting.delta:g}"
    parts = [
        made.get_template(f"releases/{release.name}.md.j2").make_module({**values, "r": release, "delta": delta})
        for release in values["d"].releases
    ]

    def told(place: str, between: str = " ") -> Markup:
        texts = (str(getattr(part, place)()).strip() for part in parts if hasattr(part, place))
        return Markup(between.join(text for text in texts if text))

    return told


@functools.cache
def environment(*, html: bool) -> Environment:
    """Templates that escape every value, and fail on a name that is not there."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=html,
        finalize=None if html else markdown.escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {function.__name__: function for function in _FILTERS}
    return made


def _deployed(disclosure: Disclosure) -> bool:
    """Return whether a launch is a deployment: the decision is to launch, and its guarantee is not void."""
    return disclosure.decision.decision == "launch" and not disclosure.launch.void


def _opendp_values(disclosure: Disclosure) -> dict[str, object]:
    """Values for the template of OpenDP's registry."""
    slug = re.sub(r"[^a-z0-9]+", "-", disclosure.launch.id.lower()).strip("-")
    return {"d": disclosure, "version": OPENDP_DAY, "commit": OPENDP_COMMIT, "slug": slug}
